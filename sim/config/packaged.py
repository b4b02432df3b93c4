"""Configuration files of packages are read once in a process: they do not change while it lives.

A composition reads sixty files, and a sweep or a scorecard composes as often as it has points.
"""

import pickle
from functools import cache

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.config_source import ConfigResult, ConfigSource


class Packaged(ImportlibResourcesConfigSource):  # type: ignore[misc]
    """The files of one package; what is handed out is the caller's to change, as Hydra does."""

    def load_config(self, config_path: str) -> ConfigResult:
        """The file of this name. Raises ConfigLoadError where there is none."""
        return pickle.loads(_read(self.full_path(), config_path, self.provider))


class Repository(ConfigRepository):  # type: ignore[misc]
    """Hydra's own, with packages read once."""

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Open what the search path names."""
        super().initialize_sources(config_search_path)
        # By its scheme: Hydra imports its plugins once more, as classes of their own.
        self.sources: list[ConfigSource] = [
            Packaged(source.provider, source.full_path()) if source.scheme() == Packaged.scheme() else source
            for source in self.sources
        ]


@cache
def _read(package: str, config_path: str, provider: str) -> bytes:
    return pickle.dumps(ImportlibResourcesConfigSource(provider, package).load_config(config_path))
