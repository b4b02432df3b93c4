"""The points of a sweep: every combination of the values that the command line names."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.choices import choices
from mezzotint.sim.run.config.compose import Files, hydra_settings
from mezzotint.sim.run.config.override import of_hydra
from mezzotint.sim.run.pool import SWEEP_LAUNCHERS, Launcher
from mezzotint.sim.run.sweep_folder import command_of


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a sweep.

    Attributes:
        overrides: those of each point, in the order of the values.
        launcher: where they run.
        jobs: how many run at a time; -1, of joblib alone: one for each core.
        options: the other settings ``hydra.launcher.*``.
    """

    overrides: list[list[str]]
    launcher: Launcher
    jobs: int
    options: dict[str, Any]


def points_of(folder: Path) -> list[list[str]]:
    """Return the overrides of each point of the sweep in ``folder``, in the order of its run folders.

    Empty of a folder that no sweep has made, or whose experiment or groups are gone.
    """
    words = command_of(folder)
    options = {name: value for name, _, value in (word[2:].partition("=") for word in words if word.startswith("--"))}
    groups, whole = (Path(options[name]) if name in options else None for name in ("config-dir", "config-path"))
    files = Files(groups, whole, options.get("config-name", "config"))
    words = [word for word in words if not (word.startswith("-") or of_hydra(word) or "${" in word)]
    try:
        return points(words, files).overrides if words else []
    except (ConfigError, HydraException, OmegaConfBaseException):
        return []


def points(words: Sequence[str], files: Files) -> Points:
    """Return the points of the overrides ``words``, some with several values; an experiment may add some.

    Raises:
        HydraException: an override cannot be read.
        ConfigError: an interval has no values, or a setting of Hydra's cannot be used.
    """
    parsed = OverridesParser.create().parse_overrides(list(words))
    fixed = [word for word, override in zip(words, parsed, strict=True) if not override.is_sweep_override()]
    settings = hydra_settings(fixed, files)
    params = settings["sweeper"].get("params") or {}
    tasks = [word for word in words if not of_hydra(word)]
    chosen = {word.lstrip("+~").partition("=")[0] for word in tasks}  # these replace parameters of an experiment
    given = [f"{key}={value}" for key, value in params.items() if str(key).lstrip("+~") not in chosen] + tasks
    # Hydra's parser asks for the choices of a group where an override is a glob, such as eviction=*.
    loader: Any = SimpleNamespace(
        get_group_options=lambda group, *_, **__: [choice.name for choice in choices(group, files.groups)]
    )
    lists: dict[str, list[str]] = {}
    for word, override in zip(given, OverridesParser.create(loader).parse_overrides(given), strict=True):
        key = override.get_key_element()
        if not override.is_sweep_override():
            lists[key] = [word]
        elif override.is_discrete_sweep():
            lists[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise ConfigError(f"{key}: found {word.partition('=')[2]}, expected values with commas between them")
    overrides = [list(point) for point in itertools.product(*lists.values())]
    launcher, _ = SWEEP_LAUNCHERS[settings["runtime"]["choices"]["hydra/launcher"]]
    options = dict(settings["launcher"])
    jobs = options.pop("n_jobs", None) or options.pop("array_parallelism", None) or max(1, len(overrides))
    if not isinstance(jobs, int) or (jobs < 1 and (jobs != -1 or launcher != "joblib")):
        expected = "a number from 1 on" + (", or -1 for all cores" if launcher == "joblib" else "")
        raise ConfigError(f"hydra.launcher: found {jobs} runs at a time, expected {expected}")
    if options and launcher == "joblib":
        raise ConfigError(f"hydra.launcher.{next(iter(options))}: joblib takes no such setting; it takes n_jobs")
    return Points(overrides, launcher, jobs, options)
