"""The points of an experiment: the runs that `mezzotint run -m experiment=NAME` would make, without making them."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sim.config.compose import composed as compose
from traces.error import TraceError
from traces.table.trace import about

Config = dict[str, Any]

WITHOUT_PROMPTS = ("traces.sources.mix.Mix", "traces.sources.add_ons.AddOns")
"""Sources of requests that are sizes and steps, or add-ons, alone, as the paper's experiment makes them up."""

_ROOMS = ("sim", "traces", "backends")
_AFTER_THE_RUN = ("study",)
"""Folders of code that only reads finished runs."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of an experiment.

    Attributes:
        experiment: name of its file in conf/experiment.
        choices: what the experiment's sweep sets for this run, by group or key, as written.
        overrides: all overrides that make this run, ``choices`` among them.
    """

    experiment: str
    choices: Mapping[str, str]
    overrides: tuple[str, ...]

    @property
    def command(self) -> str:
        """What makes this run alone."""
        return " ".join(["mezzotint run", *self.overrides])


def sweep(experiment: str, overrides: Sequence[str] = ()) -> list[Point]:
    """The points of ``experiment`` in the order of its sweep, every combination of what it sweeps.

    An experiment that cannot be composed is a single point, which fails as such when it is.

    Args:
        experiment: name of its file in conf/experiment.
        overrides: settings of all of them, as on the command line; what they set is swept as they say, or not.
    """
    parser = OverridesParser.create()
    chosen = [f"experiment={experiment}", *overrides]
    given = {word.partition("=")[0]: word for word in overrides}
    several = {each.get_key_element() for each in parser.parse_overrides(list(overrides)) if each.is_sweep_override()}
    try:
        one = [f"experiment={experiment}", *(word for key, word in given.items() if key not in several)]
        whole = compose(one, hydra_too=True)
        params = OmegaConf.to_container(whole.hydra.sweeper.params or OmegaConf.create())
    except (HydraException, OmegaConfBaseException):
        return [Point(experiment, {}, tuple(chosen))]
    assert isinstance(params, dict)
    swept = {str(key): str(value) for key, value in params.items() if key not in given}
    words = [*chosen, *(f"{key}={value}" for key, value in swept.items())]
    swept |= {key: given[key].partition("=")[2] for key in several}
    (batch,) = BasicSweeper.split_arguments(parser.parse_overrides(words), None)
    return [Point(experiment, _choices(job, swept), tuple(job)) for job in batch]


def has_prompts(experiment: str, overrides: Sequence[str] = ()) -> bool:
    """Whether ``experiment`` asks something of prompts, and not of sizes or add-ons, so that those of another trace can
    take their place; so it is said of one that cannot be composed."""
    try:
        trace = composed(Point(experiment, {}, (f"experiment={experiment}", *overrides)))["trace"]
    except (HydraException, OmegaConfBaseException):
        return True
    return str(trace["_target_"]) not in WITHOUT_PROMPTS and trace.get("service") is None  # whose add-ons


def rows_asked(experiment: str, overrides: Sequence[str] = ()) -> int | None:
    """How many rows of its trace ``experiment`` asks for; None where it asks for no number, or cannot be composed."""
    try:
        trace = composed(Point(experiment, {}, (f"experiment={experiment}", *overrides)))["trace"]
    except (HydraException, OmegaConfBaseException):
        return None
    rows = trace.get("requests")
    return rows if isinstance(rows, int) else None


def _choices(job: Sequence[str], swept: Mapping[str, str]) -> dict[str, str]:
    set_to = dict(word.split("=", 1) for word in job)
    return {key: set_to[key] for key in swept}


def composed(point: Point) -> Config:
    """The resolved configuration of one point, but for the run directory, which is no part of what it computes.

    Raises:
        HydraException, OmegaConfBaseException: a choice does not exist or does not go with another.
    """
    config = compose([*point.overrides, "run.dir=unnamed"])
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def digest(config: Config) -> str:
    """What a run's results follow from, as 16 hex digits: its configuration and the code that runs it.

    A trace's file counts by its content, wherever it lies.
    """
    said = {key: value for key, value in config.items() if key != "run"}
    if (path := config["trace"].get("path")) is not None:
        with suppress(TraceError):  # what is no trace is refused by the run, with its error
            said["trace"] = config["trace"] | {"path": about(Path(path).expanduser())[1]}
    return hashlib.sha256(f"{code()} {json.dumps(said, sort_keys=True)}".encode()).hexdigest()[:16]


@cache
def code() -> str:
    """Digest of the simulator's own files, so that no run outlives a change of what made it."""
    found = hashlib.sha256()
    for room in _ROOMS:
        for name, file in sorted(_files(resources.files(room), room)):
            found.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def _files(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name not in _AFTER_THE_RUN:
            yield from _files(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".yaml")):
            yield f"{name}/{entry.name}", entry
