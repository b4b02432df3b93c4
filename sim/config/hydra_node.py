"""What Hydra may do on behalf of a configuration file: compose it, and sweep with its own launchers.

Settings of Hydra's own can have anything called: callbacks, the factories of a logging configuration, what a launcher
runs before a job. They also say which folders are written to. None of this is a setting of a simulation, so a file
that touches it is refused after it was composed and before anything of it is called. A run's own ``config.yaml`` is
data, and tells Hydra only what we wrote there.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import hydra._internal.hydra
import yaml
from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_search_path import ConfigSearchPath
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override

from conf.document import DocumentError, parse
from sim.config.choices import CONF
from sim.config.packaged import Repository
from sim.config.theirs import TARGET
from sim.errors import ConfigError

OWN = {
    "launcher": (
        "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
        "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    ),
    "sweeper": ("hydra._internal.core_plugins.basic_sweeper.BasicSweeper",),
}
"""What launches and sweeps on this machine; another one is chosen on the command line alone."""

MODE = "hydra.mode"
"""Whether a run is a sweep: ours to set, from -m."""

SILENT: dict[str, Any] = {"version": 1, "root": None, "disable_existing_loggers": False}
"""Hydra's logging that is none."""


@cache
def _ours() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["hydra"]
    return found


@contextmanager
def guarded() -> Iterator[None]:
    """While it lasts, what Hydra composes is held to what this module says, in processes of a sweep too."""
    before = hydra._internal.hydra.ConfigLoaderImpl
    hydra._internal.hydra.ConfigLoaderImpl = Loader
    try:
        yield
    finally:
        hydra._internal.hydra.ConfigLoaderImpl = before


def composed(overrides: Sequence[str], *, hydra_too: bool = False) -> DictConfig:
    """What ``overrides`` make of conf/config.yaml, unresolved; with Hydra's own settings under ``hydra`` if asked.

    Raises:
        HydraException, OmegaConfBaseException: a choice does not exist or does not go with another.
        ConfigError: settings of Hydra's that are not ours.
    """
    words = tuple(overrides)
    elsewhere = any("searchpath" in word for word in words)  # files of the user's, which may change
    make = _composed.__wrapped__ if elsewhere else _composed
    config: DictConfig = pickle.loads(make(words, hydra_too))
    return config


@lru_cache(maxsize=256)  # a scorecard and its pages ask for the same points again and again
def _composed(overrides: tuple[str, ...], hydra_too: bool) -> bytes:
    with guarded(), initialize_config_module("conf", version_base="1.3"):
        return pickle.dumps(compose("config", overrides=list(overrides), return_hydra_config=hydra_too))


class Loader(ConfigLoaderImpl):  # type: ignore[misc]
    """Hydra's own, which goes to the processes of a sweep as it is; Hydra offers no other place to look."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = Repository(config_search_path)

    def load_configuration(self, *args: Any, **kwargs: Any) -> DictConfig:
        """Compose. Raises ConfigError for settings of Hydra's that are not ours."""
        if kwargs["run_mode"] is RunMode.MULTIRUN and not kwargs["validate_sweep_overrides"]:
            # Hydra composes all of it first to see whether a file asks for a sweep: -m does, and nothing else.
            raise ConfigError(f"{MODE}: -m alone says that a run is a sweep")
        config: DictConfig = super().load_configuration(*args, **kwargs)
        refuse(config.hydra)
        _drop_given(config.hydra)
        return config

    def _process_config_searchpath(self, config_name: str | None, parsed_overrides: list[Any], repo: Any) -> None:
        # Before Hydra follows the search path of the primary file, which may name a package to import.
        _refuse_unreadable(config_name, repo)
        found = None if config_name is None else repo.load_config(config_path=config_name)
        if found is not None and found.provider == "main" and not found.path.startswith("pkg://"):
            refuse_primary(OmegaConf.to_container(found.config, resolve=False), f"{config_name}")
        super()._process_config_searchpath(config_name, parsed_overrides, repo)


def _refuse_unreadable(config_name: str | None, repo: Any) -> None:
    """Raise ConfigError for a primary file that is no YAML, or that Hydra would not be done with in a lifetime."""
    for source in repo.get_sources():
        file = Path(source.path, f"{str(config_name).removesuffix('.yaml')}.yaml")
        if source.provider == "main" and source.scheme() == "file" and file.is_file():
            try:
                parse(file.read_bytes())
            except DocumentError as error:
                raise ConfigError(f"{file}: is not valid YAML ({error}); correct the file or name another") from None


def refuse_primary(config: Any, name: str) -> None:
    """Raise ConfigError for a primary file, such as a run's, that tells Hydra what we would not have written."""
    if isinstance(config, Mapping) and config.get("hydra", _ours()) != _ours():
        raise ConfigError(
            f"--config-name {name}: hydra: found what no run's config.yaml tells Hydra, which could call anything "
            "by it; remove that key, and choose launchers on the command line"
        )


def _drop_given(node: DictConfig) -> None:
    """Drop the sweep of every key that the command line sets: Hydra takes ++KEY and KEY for two."""
    params: Any = node.sweeper.get("params") if OmegaConf.is_dict(node.sweeper) else None
    if not params:
        return
    given = {word.lstrip("+~").partition("=")[0] for word in node.overrides.task}
    with flag_override(params, ["readonly", "struct"], False):
        for key in [key for key in params if str(key).lstrip("+~") in given]:
            del params[key]


def refuse(node: DictConfig) -> None:
    """Raise ConfigError for settings of Hydra's that could call what is not part of a simulation."""
    plain: dict[str, Any] = OmegaConf.to_container(node, resolve=False)  # type: ignore[assignment]
    job = {name: plain["job"][name] for name in ("chdir", "env_set", "env_copy")}
    held = {"callbacks": plain["callbacks"] or {}, "job": job} | {
        key: plain[key] for key in ("hydra_logging", "job_logging", "output_subdir", "run", "sweep")
    }
    ours = _ours()
    expected = {key: ours[key] for key in ("output_subdir", "run", "sweep")} | {
        "callbacks": {},
        "job": {**ours["job"], "env_set": {}, "env_copy": []},
        "hydra_logging": SILENT,
        "job_logging": SILENT,
    }
    for key, value in held.items():
        if value != expected[key]:
            raise ConfigError(
                f"hydra.{key}: found {value}, expected {expected[key]}; a configuration has no say in it, remove it"
            )
    for key, own in OWN.items():
        settings: Any = node[key]  # null, or a plain value, if a file or the command line says so
        if OmegaConf.is_config(settings):
            settings = OmegaConf.to_container(settings, resolve=True)
        chosen = any(word.startswith(f"hydra/{key}=") for word in plain["overrides"]["hydra"])
        if not isinstance(settings, dict) or (settings.get(TARGET) not in own and not chosen):
            raise ConfigError(
                f"hydra.{key}: found {settings}, expected one that `hydra/{key}=` on the command line names"
            )
        _refuse_calls({name: value for name, value in settings.items() if name != TARGET}, f"hydra.{key}")


def _refuse_calls(settings: Any, key: str) -> None:
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            if str(name).startswith("_"):
                raise ConfigError(f"{key}.{name}: found {value!r}, expected plain settings, nothing to be called")
            _refuse_calls(value, f"{key}.{name}")
    elif isinstance(settings, list):
        for i, value in enumerate(settings):
            _refuse_calls(value, f"{key}.{i}")
