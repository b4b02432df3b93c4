"""Compose a configuration with Hydra: overrides, on our groups and on files that the user names.

The user's files may set keys of a simulation and parameters of a sweep. Other settings of Hydra's could call any code
(logging factories, launchers), so only the command line may set them.
"""

import glob
import hashlib
import hmac
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import hydra
import omegaconf
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from mezzotint.files.atomic import atomic_write
from mezzotint.files.document import DocumentError, dump, parse
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.former_names import present_config
from mezzotint.sim.run.config.choices import CONF, check_groups, engine_models, gpus, groups
from mezzotint.sim.run.config.override import of_hydra
from mezzotint.sim.run.pool import SWEEP_LAUNCHERS
from mezzotint.traces.encoders.disk_cache import DAMAGED, home, keyed_hash, note, secret


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


def compose_config(words: Sequence[str], files: Files = OURS) -> DictConfig:
    """Compose overrides (sim/run/config/override.py) into an unresolved configuration.

    Points of a sweep that choose the same groups share a composition, and values are set on a copy of it.

    Raises:
        HydraException, OmegaConfBaseException: a key does not exist, or a value does not fit.
        ConfigError: a choice does not exist, a group lacks the choice that it needs, or a file has settings of Hydra's.
    """
    composition = _compose(words, files)
    check_groups(composition.hydra["runtime"]["choices"])
    return composition.config


def hydra_settings(words: Sequence[str], files: Files) -> dict[str, Any]:
    """Return Hydra's own settings: the launcher and the parameters of a sweep. Raises as ``compose_config`` does."""
    choices = _split(words)[0] if files == OURS else None
    return _by_hydra(tuple(words), files).hydra if choices is None else _choices(choices).hydra


@dataclass(frozen=True, slots=True)
class _Composition:
    """A configuration without Hydra's own settings, and these in plain values."""

    config: DictConfig
    hydra: dict[str, Any]


@dataclass(frozen=True)
class _Choices:
    """The composition of choices, which all points with these choices share.

    Attributes:
        plain: the configuration as written, its references unresolved.
        hydra: Hydra's own settings in plain values.
    """

    plain: dict[str, Any]
    hydra: dict[str, Any]

    @cached_property
    def config(self) -> DictConfig:
        """The whole configuration. Callers change a copy."""
        return OmegaConf.create(self.plain, flags={"struct": True})

    @cached_property
    def referring(self) -> frozenset[str]:
        """The keys whose values are missing or refer to something, and those that a reference may name."""
        texts = {key: [text for _, text in _texts({key: value})] for key, value in self.plain.items()}
        written = {key: [text for text in listed if "${" in text or text == "???"] for key, listed in texts.items()}
        named = {name for listed in written.values() for text in listed for name in re.findall(r"\w+", text)}
        in_another = any(re.search(r"\$\{[^}]*\$\{", text) for listed in written.values() for text in listed)
        return frozenset(key for key in self.plain if in_another or written[key] or key in named)


def compose_resolved(words: Sequence[str]) -> dict[str, Any]:
    """Compose as ``compose_config`` does from our files, and resolve all references, in plain dictionaries and lists.

    Points of a sweep share all that neither their values nor a reference touches. Resolving it takes most of the time
    of a composition.

    Raises HydraException, ConfigError, OmegaConfBaseException: as ``compose_config``, or a value is absent.
    """
    choices, values = _split(words)
    if choices is None:
        return resolve_config(compose_config(words))
    composition = _choices(choices)
    check_groups(composition.hydra["runtime"]["choices"])
    changed = {value.key_or_group.partition(".")[0] for value in values}
    if not changed <= composition.plain.keys() or any("${" in word for word in words):
        return resolve_config(compose_config(words))
    part = deepcopy(_part(choices, composition.referring | changed))
    try:
        for value in values:
            _set(part, value)
    except OmegaConfBaseException:
        return resolve_config(compose_config(words))
    resolved = resolve_config(part)
    return {key: resolved[key] if key in resolved else deepcopy(value) for key, value in composition.plain.items()}


def resolve_config(config: DictConfig) -> dict[str, Any]:
    """Return a configuration in plain dictionaries and lists. Raises OmegaConfBaseException if a value is absent."""
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}


@lru_cache(maxsize=256)
def _part(choices: tuple[str, ...], keys: frozenset[str]) -> DictConfig:
    """Return ``keys`` of the composition of ``choices``. Callers change a copy."""
    plain = {key: value for key, value in _choices(choices).plain.items() if key in keys}
    return OmegaConf.create(plain, flags={"struct": True})


def _set(config: DictConfig, value: Override) -> None:
    OmegaConf.update(config, value.key_or_group, value.value(), force_add=value.is_force_add())


def _compose(words: Sequence[str], files: Files) -> _Composition:
    composition = _with_values(words) if files == OURS else None
    return _by_hydra(tuple(words), files) if composition is None else composition


def _with_values(words: Sequence[str]) -> _Composition | None:
    """Compose the choices among ``words``, then set the values; None if Hydra has to compose all of them."""
    choices, values = _split(words)
    if choices is None:
        return None
    shared = _choices(choices)
    composition = _Composition(deepcopy(shared.config), shared.hydra)
    try:
        for value in values:
            _set(composition.config, value)
    except OmegaConfBaseException:
        return None
    return composition


def _split(words: Sequence[str]) -> tuple[tuple[str, ...] | None, list[Override]]:
    """Return the choices among ``words``, and the values to set; no choices if Hydra has to compose all of them."""
    parsed = [_parse(word) for word in words]
    choices = tuple(word for word, override in zip(words, parsed, strict=True) if not _sets_value(override))
    setup_globals()  # registers Hydra's resolvers
    has_path = any("searchpath" in word for word in choices)  # the user's files may change
    return None if has_path else choices, [override for override in parsed if _sets_value(override)]


@lru_cache(maxsize=4096)
def _parse(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def _sets_value(override: Override) -> bool:
    """Return True for KEY=VALUE if KEY is neither a group nor Hydra's."""
    key = override.key_or_group
    return (
        override.package is None
        and not (override.is_delete() or override.is_add() or override.is_hydra_override() or "/" in key)
        and key not in groups()
    )


@lru_cache(maxsize=256)
def _choices(words: tuple[str, ...]) -> _Choices:
    """Compose the choices of ``words``, or read their composition from the disk cache. Callers change a copy."""
    name = hashlib.sha256("\0".join((_version(), *words)).encode()).hexdigest()[:32]
    kept = home() / "compositions" / _version() / f"{name}.yaml"
    with suppress(OSError):  # the cache is optional
        seal, _, text = kept.read_bytes().partition(b"\n")
        if hmac.compare_digest(seal, _seal(name, text)):
            plain = parse(text)
            return _Choices(plain["config"], plain["hydra"])
        note(f"{kept}: {DAMAGED}; composed again")
    made = _by_hydra(words, OURS)
    plain = {"config": OmegaConf.to_container(made.config, resolve=False), "hydra": made.hydra}
    text = dump(plain).encode()
    with suppress(OSError, ConfigError):
        if not kept.parent.is_dir():
            shutil.rmtree(kept.parent.parent, ignore_errors=True)  # of another version
            kept.parent.mkdir(parents=True)
        with atomic_write(kept, ConfigError) as temporary:
            temporary.write_bytes(_seal(name, text) + b"\n" + text)
    return _Choices(plain["config"], made.hydra)


def _seal(name: str, text: bytes) -> bytes:
    seal = keyed_hash(name, secret())
    seal.update(text)
    return seal.hexdigest().encode()


@cache
def _version() -> str:
    """Return a digest of the form of what is kept, of the libraries that compose, and of the files of conf/."""
    libraries = ("sealed YAML, 2", hydra.__version__, omegaconf.__version__, sys.version)
    digest = hashlib.sha256(json.dumps(libraries).encode())
    for file in sorted(Path(str(CONF)).rglob("*.yaml")):
        digest.update(f"{file}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:32]


def _by_hydra(words: tuple[str, ...], files: Files) -> _Composition:
    _store_nodes()
    name, path = "config", []
    if files.folder is not None:
        name = "whole"
        ConfigStore.instance().store(name=name, node=_whole(files))
    elif files.groups is not None:
        if not files.groups.is_dir():
            raise ConfigError(f"--config-dir: {files.groups} is not a folder; name the one that holds your groups")
        path = [f"hydra.searchpath=['file://{os.path.abspath(files.groups)}']"]
        if _differs(files.groups, "config.yaml"):
            raise ConfigError(
                f"{files.groups / 'config.yaml'}: is not read, as --config-dir adds groups; --config-path repeats a"
                " run, and settings of your own go into a file of experiment/"
            )
    with initialize_config_module("mezzotint.conf", version_base="1.3"):
        try:
            config: DictConfig = compose(name, overrides=[*path, *words], return_hydra_config=True)
        except MissingConfigException as error:
            _refuse_choice(error, files.groups)
            raise
        except ConfigCompositionException as error:
            _refuse_key(error, files.groups)
            raise
        except RecursionError:
            raise ConfigError("a file of a group names itself in its defaults; name another choice there") from None
        except (ValueError, TypeError, AttributeError) as error:  # of a file that is no configuration
            where = _not_utf8(files.groups) if isinstance(error, UnicodeDecodeError) else "the configuration"
            raise ConfigError(f"{where} cannot be composed ({error}); see `mezzotint run --help`") from error
    settings: Any = OmegaConf.to_container(config.hydra, resolve=False, enum_to_str=True)
    with open_dict(config):
        del config["hydra"]
    if files.groups is not None:
        _check_taken(files.groups, settings["runtime"]["choices"])
        if "experiment" in config:
            raise ConfigError(
                f"{files.groups / 'experiment'}: found a file without its package, expected the first line: # @package "
                "_global_ (in UTF-8 without a byte order mark)"
            )
    if files != OURS or any("searchpath" in word for word in words):
        _check_hydra(settings, tuple(word for word in words if of_hydra(word) and "searchpath" not in word))
    return _Composition(config, settings)


def _differs(folder: Path, name: str) -> bool:
    """Return True if the user's folder has a file of this name that is not a copy of ours."""
    own, ours = folder / name, Path(str(CONF)) / name
    return own.is_file() and not (ours.is_file() and own.read_bytes() == ours.read_bytes())


def _check_taken(folder: Path, chosen: Mapping[str, Any]) -> None:
    """Raise ConfigError if the user's folder has a file of its own for a choice of ours, which Hydra takes instead."""
    for group, choice in chosen.items():
        name = f"{group}/{choice}.yaml"
        is_ours = (Path(str(CONF)) / name).is_file() or (group == "models" and choice in engine_models())
        if is_ours and _differs(folder, name):
            raise _has_our_name(folder / name, group)


def _has_our_name(file: Path, group: str) -> ConfigError:
    said = f"{file}: has the name of a choice of ours, which is taken instead"
    return ConfigError(f"{said}; rename it, and choose {group}=NAME")


def _not_utf8(folder: Path | None) -> str:
    """Return the user's file that is not UTF-8, in words."""
    for file in sorted(folder.rglob("*.yaml")) if folder is not None else ():
        try:
            file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return f"{file}: is not UTF-8 and"
    return "the configuration"


def _refuse_choice(error: MissingConfigException, folder: Path | None) -> None:
    """Raise ConfigError if ``error`` is about a choice that its group lacks."""
    path = error.missing_cfg_file or ""
    group = next((name for name in groups() if path.startswith(f"{name}/")), path.rpartition("/")[0])
    choice = path[len(group) + 1 :]
    if not group or not error.options:
        return
    if group == "trace" and Path(choice).suffix:
        raise ConfigError(f"trace={choice}: is a file; name it with trace=file trace.path={choice}") from None
    other = next(folder.glob(f"{glob.escape(path)}.*"), None) if folder is not None else None
    if other is not None:
        raise ConfigError(f"{other}: is not read, as a choice is a file NAME.yaml; rename it") from None
    listing = f"mezzotint list {group}" if group in groups() else ""
    raise ConfigError(f"{group}={choice}: no such choice; {suggest(choice, error.options, listing)}") from None


def _refuse_key(error: ConfigCompositionException, folder: Path | None) -> None:
    """Raise ConfigError for a first word that is neither a group nor a key, for several values of a single run, or for
    a user's file with the name of a choice that we store."""
    stored = re.match(r"'([^']+)' is validated against ConfigStore schema with the same name", str(error))
    if stored and folder is not None:
        raise _has_our_name(folder / f"{stored[1]}.yaml", stored[1].partition("/")[0]) from None
    if several := re.match(r"Ambiguous value for argument '\+*([^=]+)=(.*)'", str(error)):
        key, values = several.groups()
        raise ConfigError(
            f"{key}={values}: found several values for one run; `run -m` and mezzotint.sweep run each, {key}=[{values}]"
            f" is a list, and {key}='\"{values}\"' is text"
        ) from None
    unknown = re.match(r"Could not (?:override|delete from config)[^']*'([^'.]+)", str(error))
    known = [*groups(), *(key for key in _ours() if key not in {"hydra", "defaults"})]
    if unknown and unknown[1] not in known:
        raise ConfigError(
            f"{unknown[1]}: is neither a group nor a setting; {suggest(unknown[1], known, 'mezzotint list')}"
        ) from None


@cache
def _store_nodes() -> None:
    """Register with Hydra the kinds of GPUs, the models on engines, and the launchers as choices."""
    Plugins.instance()  # first, or an installed launcher of Hydra's would replace ours of its name
    store = ConfigStore.instance().store
    for name, node in gpus().items():
        store(group="cluster", name=name, node=node, package="_global_")
    for name, node in engine_models().items():
        store(group="models", name=name, node=node)
    for name, (_, options) in SWEEP_LAUNCHERS.items():
        store(group="hydra/launcher", name=name, node=options)


def _whole(files: Files) -> dict[str, Any]:
    """Return the configuration in a user's file, in present names, with Hydra's settings as in ours.

    Raises ConfigError for a file that is not YAML, or not whole as a run's config.yaml is: that names other files or
    computes a value. It could read files beside it and, by a reference such as ``${oc.env:HOME}``, the environment of
    whoever runs it.
    """
    file = Path(files.folder or ".", f"{files.name.removesuffix('.yaml')}.yaml")
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; --config-path names its folder and --config-name the file")
    try:
        found = parse(file.read_bytes())
    except DocumentError as error:
        raise ConfigError(f"{file}: is not valid YAML ({error}); correct the file or name another") from None
    if not isinstance(found, Mapping):
        what = "nothing" if found is None else repr(str(found)[:60])
        raise ConfigError(f"{file}: found {what}, expected the configuration of a run")
    if found.get("hydra", _ours()["hydra"]) != _ours()["hydra"]:
        raise ConfigError(
            f"{file}: hydra: found settings that no run's config.yaml has; remove that key, and choose launchers on "
            "the command line"
        )
    defaults = found.get("defaults") or []
    for entry in defaults if isinstance(defaults, list) else [defaults]:
        word = next(iter(entry), None) if isinstance(entry, Mapping) else entry
        if not (word == "_self_" or (isinstance(word, str) and word.startswith("override hydra/"))):
            raise ConfigError(
                f"{file}: defaults: found {entry!r}, expected a whole configuration, which names no other file; put "
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
    overrides = [entry for entry in _ours()["defaults"] if any("hydra/" in str(key) for key in entry)]
    return {**present_config(found), "hydra": _ours()["hydra"], "defaults": [*overrides, "_self_"]}


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
    found: dict[str, Any] = parse((CONF / "config.yaml").read_bytes())
    return found


def _check_hydra(found: dict[str, Any], words: tuple[str, ...]) -> None:
    """Raise ConfigError for settings of Hydra's that come from a user's file."""
    expected = _choices(words).hydra
    params = (found.get("sweeper") or {}).get("params") or {}
    if not all(isinstance(value, str | int | float) for value in params.values()):
        raise ConfigError(f"hydra.sweeper.params: found {params}, expected values as text, as in eviction: fifo,lru")
    for key in expected:
        if key not in ("runtime", "overrides", "searchpath") and _plain(found, key) != _plain(expected, key):
            raise ConfigError(
                f"hydra.{key}: found {found.get(key)}, expected {expected[key]}; remove it from the file, and choose "
                "launchers on the command line"
            )


def _plain(settings: dict[str, Any], key: str) -> Any:
    """Return one of Hydra's settings, without what a file may give (parameters of a sweep) or Hydra counts (jobs)."""
    value = settings.get(key)
    if key == "job":
        return {name: value[name] for name in ("chdir", "env_set", "env_copy")}  # type: ignore[index]
    return {**(value or {}), "params": None} if key == "sweeper" else value
