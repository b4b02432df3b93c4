"""Compose a configuration with Hydra: overrides, on our groups and on files that the user names.

The user's files may set keys of a simulation and parameters of a sweep. Other settings of Hydra's could call any code
(logging factories, launchers), so only the command line may set them.
"""

import hashlib
import hmac
import json
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
import omegaconf
import yaml
from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from mezzotint.files.atomic import atomic_write
from mezzotint.files.document import DocumentError, parse
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.former_names import present_config
from mezzotint.sim.run.config.choices import CONF, check_groups, gpus, groups
from mezzotint.sim.run.config.override import of_hydra
from mezzotint.traces.encoders.disk_cache import DAMAGED, home, keyed_hash, note, secret

LAUNCHING = ("hydra/launcher=joblib", "hydra/job_logging=none", "hydra/hydra_logging=none")
"""The choices of Hydra's own groups, as in conf/config.yaml."""


@dataclass(frozen=True, slots=True)
class Files:
    """The folders of a configuration.

    Args:
        groups: a folder with the user's groups, besides ours; of two files of one name ours is taken.
        folder: the folder of a whole configuration, such as a run's, instead of ours.
        name: the file in ``folder``, without its suffix.
    """

    groups: Path | None = None
    folder: Path | None = None
    name: str = "config"

    def options(self) -> list[str]:
        """Return the same as options of the command line."""
        folder = [] if self.folder is None else [f"--config-path={self.folder}", f"--config-name={self.name}"]
        return folder + ([] if self.groups is None else [f"--config-dir={self.groups}"])


OURS = Files()

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def composed(words: Sequence[str], files: Files = OURS, *, hydra_too: bool = False, check: bool = True) -> DictConfig:
    """Compose overrides (sim/run/config/override.py) into an unresolved configuration.

    Points of a sweep that choose the same groups share a composition, and values are set on a copy of it.

    Args:
        hydra_too: keep Hydra's own settings under ``hydra``.
        check: refuse a group without the choice that it needs; False for a sweep, whose points are checked.

    Raises:
        HydraException, OmegaConfBaseException: a key does not exist, or a value does not fit.
        ConfigError: a choice does not exist, a group lacks the choice that it needs, or a file has settings of Hydra's.
    """
    found = _with_values(words) if files == OURS else None
    if found is None:
        found = _split(_by_hydra(tuple(words), files))
    if check:
        check_groups(found.hydra["runtime"]["choices"])
    if hydra_too:
        settings = OmegaConf.structured(HydraConf, flags={"struct": False})  # the class that launchers expect
        del settings["defaults"]
        settings.merge_with(found.hydra)
        OmegaConf.set_struct(settings, None)
        with open_dict(found.config):
            found.config.hydra = settings
    return found.config


@dataclass(frozen=True, slots=True)
class _Composition:
    """A configuration without Hydra's own settings, and these in plain values."""

    config: DictConfig
    hydra: dict[str, Any]


def _split(config: DictConfig) -> _Composition:
    settings = _settings(config)
    with open_dict(config):
        del config["hydra"]
    return _Composition(config, settings)


def _settings(config: DictConfig) -> dict[str, Any]:
    found: Any = OmegaConf.to_container(config.hydra, resolve=False, enum_to_str=True)
    return {str(key): value for key, value in found.items()}


def _with_values(words: Sequence[str]) -> _Composition | None:
    """Compose the choices among ``words``, then set the values; None if Hydra has to compose all of them."""
    parsed = OverridesParser.create().parse_overrides(list(words))
    choices = [word for word, override in zip(words, parsed, strict=True) if not _sets_value(override)]
    if any("searchpath" in word for word in choices):  # the user's files may change
        return None
    setup_globals()  # registers Hydra's resolvers
    found = deepcopy(_choices(tuple(choices)))
    try:
        for override in filter(_sets_value, parsed):
            OmegaConf.update(found.config, override.key_or_group, override.value(), force_add=override.is_force_add())
    except OmegaConfBaseException:
        return None
    found.hydra["overrides"]["task"] = [
        word for word, each in zip(words, parsed, strict=True) if not each.is_hydra_override()
    ]
    return found


def _sets_value(override: Override) -> bool:
    """Return True for KEY=VALUE if KEY is neither a group nor Hydra's."""
    key = override.key_or_group
    return (
        override.package is None
        and not (override.is_delete() or override.is_add() or override.is_hydra_override() or "/" in key)
        and key not in groups()
    )


@lru_cache(maxsize=64)
def _choices(words: tuple[str, ...]) -> _Composition:
    """Compose the choices of ``words``, or read their composition from the disk cache. Callers change a copy."""
    name = hashlib.sha256("\0".join((_version(), *words)).encode()).hexdigest()[:32]
    kept = home() / "compositions" / _version() / f"{name}.yaml"
    with suppress(OSError):  # the cache is optional
        found, _, text = kept.read_bytes().partition(b"\n")
        if hmac.compare_digest(found, _seal(name, text)):
            plain = parse(text)
            return _Composition(OmegaConf.create(plain["config"], flags={"struct": True}), plain["hydra"])
        note(f"{kept}: {DAMAGED}; composed again")
    made = _split(_by_hydra(words, OURS))
    plain = {"config": OmegaConf.to_container(made.config, resolve=False), "hydra": made.hydra}
    text = yaml.dump(plain, Dumper=_DUMPER, sort_keys=False).encode()
    with suppress(OSError, ConfigError):
        if not kept.parent.is_dir():
            shutil.rmtree(kept.parent.parent, ignore_errors=True)  # of another version
            kept.parent.mkdir(parents=True)
        with atomic_write(kept, ConfigError) as temporary:
            temporary.write_bytes(_seal(name, text) + b"\n" + text)
    return made


def _seal(name: str, text: bytes) -> bytes:
    seal = keyed_hash(name, secret())
    seal.update(text)
    return seal.hexdigest().encode()


@cache
def _version() -> str:
    """Return a digest of the form of what is kept, of the libraries that compose, and of the files of conf/."""
    libraries = ("sealed YAML, 2", hydra.__version__, omegaconf.__version__, sys.version)
    found = hashlib.sha256(json.dumps(libraries).encode())
    for file in sorted(Path(str(CONF)).rglob("*.yaml")):
        found.update(f"{file}\0".encode() + file.read_bytes())
    return found.hexdigest()[:32]


def _by_hydra(words: tuple[str, ...], files: Files) -> DictConfig:
    _store_gpus()
    if files.folder is not None and (present := _check_primary(files)) is not None:
        with TemporaryDirectory() as folder:
            Path(folder, f"{files.name.removesuffix('.yaml')}.yaml").write_text(
                yaml.safe_dump(present), encoding="utf-8"
            )
            return _by_hydra(words, replace(files, folder=Path(folder)))
    path, launching = [], []
    if files.folder is not None:
        chosen = {word.partition("=")[0] for word in words}
        launching = [word for word in LAUNCHING if word.partition("=")[0] not in chosen]
    elif files.groups is not None:
        if not files.groups.is_dir():
            raise ConfigError(f"--config-dir: {files.groups} is not a folder; name the one that holds your groups")
        path = [f"hydra.searchpath=['file://{os.path.abspath(files.groups)}']"]
    with _initialized(files), warnings.catch_warnings():
        # Hydra composes a primary file without _self_ in its defaults, or we refuse it in one line.
        warnings.filterwarnings("ignore", "In '.*': Defaults list is missing", UserWarning)
        try:
            config: DictConfig = compose(files.name, overrides=[*path, *launching, *words], return_hydra_config=True)
        except MissingConfigException as error:
            _refuse_choice(error)
            raise
        except (ValueError, TypeError, AttributeError, RecursionError) as error:  # of a file that is no configuration
            raise ConfigError(f"the configuration cannot be composed ({error}); see `mezzotint run --help`") from error
    if files != OURS or any("searchpath" in word for word in words):
        _check_hydra(config, tuple(word for word in words if of_hydra(word) and "searchpath" not in word))
    return config


def _refuse_choice(error: MissingConfigException) -> None:
    """Raise ConfigError if ``error`` is about a choice that its group lacks."""
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    if not group or not error.options:
        return
    raise ConfigError(f"{group}={choice}: no such choice; expected one of {', '.join(error.options)}") from None


def _initialized(files: Files) -> AbstractContextManager[None]:
    if files.folder is None:
        return initialize_config_module("mezzotint.conf", version_base="1.3")  # type: ignore[no-any-return]
    return initialize_config_dir(os.path.abspath(files.folder), version_base="1.3")  # type: ignore[no-any-return]


@cache
def _store_gpus() -> None:
    """Register every kind of GPU with Hydra as a choice of `cluster=`."""
    for name, node in gpus().items():
        ConfigStore.instance().store(group="cluster", name=name, node=node, package="_global_")


def _check_primary(files: Files) -> dict[str, Any] | None:
    """Return the configuration in present names; None if it has no former names.

    Raises ConfigError for a file that is not YAML, names other files, computes a value, or has settings of Hydra's that
    no run's config.yaml has. This must precede Hydra, which follows the search path of a primary file, imports its
    packages, and resolves references in its list of defaults.
    """
    file = Path(files.folder or ".", f"{files.name.removesuffix('.yaml')}.yaml")
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; --config-path names its folder and --config-name the file")
    try:
        found = parse(file.read_bytes())
    except DocumentError as error:
        raise ConfigError(f"{file}: is not valid YAML ({error}); correct the file or name another") from None
    if isinstance(found, Mapping) and found.get("hydra", _ours()) != _ours():
        raise ConfigError(
            f"{file}: hydra: found settings that no run's config.yaml has; remove that key, and choose launchers on "
            "the command line"
        )
    if not isinstance(found, Mapping):
        return None
    _check_whole(file, found)
    present = present_config(found)
    return present if present != found else None


def _check_whole(file: Path, found: Mapping[Any, Any]) -> None:
    """Raise ConfigError for a file that is not whole, as a run's config.yaml is.

    It could read files beside it and, by a reference such as ``${oc.env:HOME}``, the environment of whoever runs it.
    """
    defaults = found.get("defaults") or []
    for each in defaults if isinstance(defaults, list) else [defaults]:
        word = next(iter(each), None) if isinstance(each, Mapping) else each
        if not (word == "_self_" or (isinstance(word, str) and word.startswith("override hydra/"))):
            raise ConfigError(
                f"{file}: defaults: found {each!r}, expected a whole configuration, which names no other file; put "
                "what that one says into this one, or choose it on the command line (--config-dir)"
            )
    run = found.get("run") or {}
    if not isinstance(run, Mapping) or run.get("dir", "???") != "???":
        raise ConfigError(
            f"{file}: run: found {run}, expected none; name the new folder on the command line (run.dir=...)"
        )
    for key, text in _texts({key: value for key, value in found.items() if key != "hydra"}):
        if "${" in text:
            raise ConfigError(
                f"{file}: {key}: found {text!r}, expected a value: a configuration from a file refers to nothing and "
                f"reads no environment; write the value there, or as an override"
            )


def _texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text below ``node``, keys included, each after its dotted key."""
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, Mapping | list):
        for name, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            if isinstance(name, str):
                yield key, name
            yield from _texts(value, f"{key}.{name}" if key else str(name))


@cache
def _ours() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["hydra"]
    return found


def _check_hydra(config: DictConfig, words: tuple[str, ...]) -> None:
    """Raise ConfigError for settings of Hydra's that come from a user's file."""
    found, expected = _plain(_settings(config)), _plain(_choices(words).hydra)
    for key in expected:
        if key not in ("job", "runtime", "overrides", "searchpath") and found.get(key) != expected[key]:
            raise ConfigError(
                f"hydra.{key}: found {found.get(key)}, expected {expected[key]}; remove it from the file, and choose "
                "launchers on the command line"
            )
    for key in ("chdir", "env_set", "env_copy"):
        if found["job"][key] != expected["job"][key]:
            raise ConfigError(f"hydra.job.{key}: found {found['job'][key]}, expected none; remove it")


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return Hydra's settings without the parameters of a sweep, which a file may give as plain values."""
    plain = deepcopy(settings)
    params = (plain.get("sweeper") or {}).pop("params", None) or {}
    if not all(isinstance(value, str | int | float) for value in params.values()):
        raise ConfigError(f"hydra.sweeper.params: found {params}, expected values as text, as in eviction: fifo,lru")
    return plain
