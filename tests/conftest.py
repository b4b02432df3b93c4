"""Fixtures of all tests."""

import gc
import io
import os
from copy import copy
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path

import pytest
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hypothesis import settings
from omegaconf import OmegaConf

from mezzotint.backends import profile
from mezzotint.backends.profile import Profile

settings.register_profile("mezzotint", deadline=None)  # no test depends on the wall clock
settings.load_profile("mezzotint")

gc.set_threshold(50_000, 20, 50)  # with torch loaded, the default searches a million objects for cycles again and again

REPOSITORY = Path(__file__).resolve().parent.parent

ORACLES = REPOSITORY / "tests" / "oracles"
"""Tables and logs of others, each folder with its source and licence."""


class ClosedPipe(io.StringIO):
    """Standard output whose reader, such as head, has ended; for `contextlib.redirect_stdout`."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


@pytest.fixture(scope="session", autouse=True)
def files_of_packages() -> None:
    """Parse each file of mezzotint.conf and of Hydra once a process, which takes a quarter of every composition."""

    @cache
    def parsed(package: str, path: str) -> tuple[ConfigResult, object]:
        found = load(Source("", f"pkg://{package}"), path)
        return found, OmegaConf.to_container(found.config, resolve=False)

    def load_config(self: ConfigSource, config_path: str) -> ConfigResult:
        found, plain = parsed(self.path, config_path)
        found = copy(found)  # Hydra edits what it gets
        found.provider, found.header, found.config = self.provider, dict(found.header), OmegaConf.create(plain)
        return found

    Plugins.instance()  # registers the classes of sources
    Source = SourcesRegistry.instance().resolve("pkg")
    load = Source.load_config
    Source.load_config = load_config  # type: ignore[method-assign]
    ConfigStore.__deepcopy__ = lambda store, _: store  # a composition copies all of it, and edits copies of its nodes


@pytest.fixture(scope="session", autouse=True)
def profiles_by_content() -> None:
    """Check each content of a profile's file once a process, which takes half of a short run."""

    @cache
    def read(path: Path | Traversable, content: bytes) -> tuple[Profile, ...]:
        return tuple(read_models(path))

    def read_once(path: Path | Traversable) -> list[Profile]:
        try:
            content = path.read_bytes()
        except OSError:
            return read_models(path)
        return list(read(path, content))

    read_models = profile.read_models
    profile.read_models = read_once


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real traces, which the project never contains."""
    folder = Path(os.environ.get("MEZZOTINT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real traces in {folder}; name their folder in MEZZOTINT_DATA")
    return folder


@pytest.fixture(autouse=True)
def disk_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the disk cache into a folder of this session, which its processes share; allow test doubles as plug-ins."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "tests")
    monkeypatch.setenv("MEZZOTINT_CACHE", str(folder / "disk_cache"))
