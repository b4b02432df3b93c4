"""Compose a configuration with Hydra: overrides, on our groups and on files that the user names.

Files of the user's set keys of a simulation and the parameters of a sweep. Other settings of Hydra's could have
anything called (logging factories, launchers), so a file that brings one is refused. The command line may set them.
"""

import hashlib
import json
import os
import pickle
import shutil
import sys
import warnings
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
import omegaconf
import yaml
from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from conf.atomic import atomic_write
from conf.document import DocumentError, parse
from sim.core.errors import ConfigError
from sim.core.former_names import present_config
from sim.run.config.choices import CONF, check_groups, gpus, groups
from sim.run.config.override import of_hydra
from traces.encoders.disk_cache import home

LAUNCHING = ("hydra/launcher=joblib", "hydra/job_logging=none", "hydra/hydra_logging=none")
"""Hydra's groups as conf/config.yaml chooses them."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files of a configuration are.

    Args:
        groups: a folder with groups of the user's, beside ours; of two files of one name ours is taken.
        folder: the folder of a whole configuration, such as a run's; it takes the place of ours.
        name: the file in ``folder``, without its ending.
    """

    groups: Path | None = None
    folder: Path | None = None
    name: str = "config"

    def options(self) -> list[str]:
        """Return the words of the command line that say so."""
        folder = [] if self.folder is None else [f"--config-path={self.folder}", f"--config-name={self.name}"]
        return folder + ([] if self.groups is None else [f"--config-dir={self.groups}"])


OURS = Files()


def composed(words: Sequence[str], files: Files = OURS, *, hydra_too: bool = False, check: bool = True) -> DictConfig:
    """Compose ``words`` (see sim/run/config/override.py) into a configuration that is not resolved.

    Points of a sweep that choose the same groups share their composition: values are set on a copy of it.

    Args:
        hydra_too: leave Hydra's own settings under ``hydra``.
        check: refuse a group that lacks the choice it needs; not of a sweep as a whole, whose points are checked.

    Raises:
        HydraException, OmegaConfBaseException: a choice or key does not exist, or a value does not fit.
        ConfigError: a group is chosen without the choice that it needs, or a file has settings of Hydra's.
    """
    config = _with_values(words) if files == OURS else None
    if config is None:
        config = _by_hydra(tuple(words), files)
    if check:
        check_groups(OmegaConf.to_container(config.hydra.runtime.choices))
    if not hydra_too:
        with open_dict(config):
            del config["hydra"]
    return config


def _with_values(words: Sequence[str]) -> DictConfig | None:
    """Compose the choices among ``words``, then set the values as Hydra would; None where Hydra has to look at all."""
    parsed = OverridesParser.create().parse_overrides(list(words))
    choices = [word for word, override in zip(words, parsed, strict=True) if not _sets_value(override)]
    if any("searchpath" in word for word in choices):  # files of the user's, which may change
        return None
    setup_globals()  # the resolvers of Hydra's that a configuration may use
    config: DictConfig = pickle.loads(_choices(tuple(choices)))
    try:
        for override in filter(_sets_value, parsed):
            OmegaConf.update(config, override.key_or_group, override.value(), force_add=override.is_force_add())
    except OmegaConfBaseException:
        return None
    config.hydra.overrides.task = [
        word for word, each in zip(words, parsed, strict=True) if not each.is_hydra_override()
    ]
    return config


def _sets_value(override: Override) -> bool:
    """Return True for KEY=VALUE, where KEY is neither a group nor Hydra's."""
    key = override.key_or_group
    return (
        override.package is None
        and not (override.is_delete() or override.is_add() or override.is_hydra_override() or "/" in key)
        and key not in groups()
    )


@lru_cache(maxsize=64)
def _choices(words: tuple[str, ...]) -> bytes:
    """Compose the choices of ``words``, or read what an earlier command composed of them and kept in the disk cache."""
    kept = home() / "compositions" / _version() / hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
    with suppress(OSError, zlib.error):
        return zlib.decompress(kept.read_bytes())  # which sees damage
    made = pickle.dumps(_by_hydra(words, OURS))
    with suppress(OSError, ConfigError):  # where nothing can be written nothing is kept
        if not kept.parent.is_dir():
            shutil.rmtree(kept.parent.parent, ignore_errors=True)  # those of another version
            kept.parent.mkdir(parents=True)
        with atomic_write(kept, ConfigError) as temporary:
            temporary.write_bytes(zlib.compress(made, 1))
    return made


@cache
def _version() -> str:
    """Return a digest of the files of conf/ and of what composes them."""
    libraries = (hydra.__version__, omegaconf.__version__, sys.version)
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
            raise ConfigError(f"--config-dir: {files.groups} is no folder; name the one that holds your groups")
        path = [f"hydra.searchpath=['file://{os.path.abspath(files.groups)}']"]
    with _initialized(files), warnings.catch_warnings():
        # A primary file whose defaults lack _self_ is composed as Hydra says, or refused in one line.
        warnings.filterwarnings("ignore", "In '.*': Defaults list is missing", UserWarning)
        try:
            config: DictConfig = compose(files.name, overrides=[*path, *launching, *words], return_hydra_config=True)
        except (ValueError, TypeError, AttributeError) as error:  # of a file that is no configuration
            raise ConfigError(f"the configuration cannot be composed ({error}); see `mezzotint run --help`") from error
    if files != OURS or any("searchpath" in word for word in words):
        _check_hydra(config, tuple(word for word in words if of_hydra(word) and "searchpath" not in word))
    return config


def _initialized(files: Files) -> AbstractContextManager[None]:
    if files.folder is None:
        return initialize_config_module("conf", version_base="1.3")  # type: ignore[no-any-return]
    return initialize_config_dir(os.path.abspath(files.folder), version_base="1.3")  # type: ignore[no-any-return]


@cache
def _store_gpus() -> None:
    """Offer every kind of GPUs to Hydra as a choice of `cluster=`."""
    for name, node in gpus().items():
        ConfigStore.instance().store(group="cluster", name=name, node=node, package="_global_")


def _check_primary(files: Files) -> dict[str, Any] | None:
    """Return the configuration of an earlier version's run in present names; None where it has no former names.

    Raises ConfigError for a file that is no YAML, or that tells Hydra what no run's config.yaml does. Hydra follows
    the search path of a primary file before it can be looked at, and imports the packages in it.
    """
    file = Path(files.folder or ".", f"{files.name.removesuffix('.yaml')}.yaml")
    if not file.is_file():
        raise ConfigError(f"{file}: found no such file; --config-path names its folder and --config-name the file")
    try:
        found = parse(file.read_bytes())
    except DocumentError as error:
        raise ConfigError(f"{file}: is not valid YAML ({error}); correct the file or name another") from None
    if isinstance(found, Mapping) and found.get("hydra", _ours()) != _ours():
        raise ConfigError(
            f"{file}: hydra: found settings that no run's config.yaml has; remove that key, and choose launchers on "
            "the command line"
        )
    present = present_config(found) if isinstance(found, Mapping) else found
    return present if present != found else None


@cache
def _ours() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["hydra"]
    return found


def _check_hydra(config: DictConfig, words: tuple[str, ...]) -> None:
    """Raise ConfigError for settings of Hydra's that neither we nor the command line made."""
    found, expected = (_plain(each.hydra) for each in (config, pickle.loads(_choices(words))))
    for key in expected:
        if key not in ("job", "runtime", "overrides", "searchpath") and found.get(key) != expected[key]:
            raise ConfigError(
                f"hydra.{key}: found {found.get(key)}, expected {expected[key]}; remove it from the file, and choose "
                "launchers on the command line"
            )
    for key in ("chdir", "env_set", "env_copy"):
        if found["job"][key] != expected["job"][key]:
            raise ConfigError(f"hydra.job.{key}: found {found['job'][key]}, expected none; remove it")


def _plain(node: DictConfig) -> dict[str, Any]:
    """Return Hydra's settings but for the parameters of a sweep, which a file may give as plain values."""
    plain: Any = OmegaConf.to_container(node, resolve=False)
    params = (plain.get("sweeper") or {}).pop("params", None) or {}
    if not all(isinstance(value, str | int | float) for value in params.values()):
        raise ConfigError(f"hydra.sweeper.params: found {params}, expected values as text, as in eviction: fifo,lru")
    found: dict[str, Any] = plain
    return found
