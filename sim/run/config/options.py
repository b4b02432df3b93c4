"""Options and overrides of the commands that compose a configuration."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, QuotedString
from omegaconf import DictConfig, OmegaConf

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.completion import complete_override
from mezzotint.sim.run.config.choices import gpus, groups
from mezzotint.sim.run.config.compose import Files
from mezzotint.sim.run.config.override import of_hydra, readable
from mezzotint.sim.run.pool import Launcher, check_launcher

MAX_JOBS = 1024
"""Bound of the worker processes of a sweep; joblib reserves memory for all of them, however few points there are."""

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE ...]",
        help="settings and choices; --cfg job prints all, `mezzotint list` the groups",
        autocompletion=complete_override,
    ),
]
ConfigDir = Annotated[
    Path | None,
    typer.Option("--config-dir", "-cd", metavar="DIR", help="a folder with YAML files of your own, besides the groups"),
]
ConfigPath = Annotated[
    Path | None, typer.Option("--config-path", "-cp", metavar="DIR", help="the folder of a run to repeat")
]
ConfigName = Annotated[
    str, typer.Option("--config-name", "-cn", metavar="NAME", help="the file in --config-path, without its suffix")
]
Plugin = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="a module that the configuration may name classes of; may be repeated"),
]

RunsOn = Annotated[
    Launcher,
    typer.Option("--launcher", help="where worker processes run: here, on Ray, or as jobs of Slurm"),
]


def files_of(config_dir: Path | None, config_path: Path | None, config_name: str) -> Files:
    """Return the folders that the options name. Raises ConfigError if the options exclude each other."""
    if config_dir is not None and config_path is not None:
        raise ConfigError("--config-dir: found beside --config-path, whose configuration is whole; leave one out")
    if config_path is None and config_name != "config":
        raise ConfigError("--config-name: names a file in the folder of --config-path; add that")
    return Files(config_dir, config_path, config_name)


def prepare_overrides(words: Sequence[str]) -> list[str]:
    """Return overrides as Hydra reads them.

    A setting that a part's file does not list is added (++). The part's class refuses a misspelt one.

    Raises:
        ConfigError: a word cannot be read, or the value of a group is not a choice.
    """
    readable_words = [_kinds_in_lower_case(readable(word)) for word in words]
    for word in readable_words:
        _check_choice(word)
        key, _, value = word.lstrip("+~").partition("=")
        if of_hydra(word) and not key.startswith(("hydra/launcher", "hydra.launcher.", "hydra.searchpath")):
            raise ConfigError(
                f"{key}: cannot be set; of Hydra's settings, choose hydra/launcher and set hydra.launcher.*"
            )
        if key == "hydra/launcher":
            check_launcher(value, key)
        if key == "hydra.launcher.n_jobs" and value not in {"-1", *map(str, range(1, MAX_JOBS + 1))}:
            raise ConfigError(
                f"{key}: found {value}, expected 1 to {MAX_JOBS} processes at a time, or -1 for all cores"
            )
    settings = (re.match(r"(\w+)\.[^=@]+=", word) for word in readable_words)
    pairs = zip(readable_words, settings, strict=True)
    return [
        f"++{word}" if (part and part[1] in groups()) or word.startswith("hydra.launcher.") else word
        for word, part in pairs
    ]


def _kinds_in_lower_case(word: str) -> str:
    """Return the override ``word``; of ``cluster=H100`` or a sweep over kinds of GPUs, with their names as listed."""
    key, equals, value = word.partition("=")
    if key.lstrip("+") != "cluster":
        return word
    names = (name.lower() if name.lower() in gpus() else name for name in value.split(","))
    return f"{key}{equals}{','.join(names)}"


def _check_choice(word: str) -> None:
    """Raise ConfigError for a group with a number, a list or nothing; Hydra's message would not name the group."""
    group, _, value = word.partition("=")
    if not value or group not in groups():
        return
    read = OverridesParser.create().parse_override(word)
    several = read.is_sweep_override() and not isinstance(read.value(), Glob)
    for one in read.sweep_iterator() if several else [read.value()]:
        if not isinstance(one, str | QuotedString | Glob | dict):
            raise ConfigError(f"{group}: found {value}, expected one of its choices; ~{group} leaves out what may be")


def is_dated(config: DictConfig) -> bool:
    """Return True if the run folder is named after the time, and so must be new."""
    return "${now:" in str(OmegaConf.to_container(config.run, resolve=False))
