"""The points of an experiment: the runs that `mezzotint run -m experiment=NAME` would make, without making them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sim.run.config.compose import OURS
from sim.run.config.compose import composed as compose
from sim.run.config.points import points, sweep_config

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """One run of an experiment of conf/experiment.

    Attributes:
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

    An experiment that cannot be composed is a single point, which fails as such when it is. ``overrides`` are settings
    of all of them, as on the command line; what they set is swept as they say, or not.
    """
    chosen = [f"experiment={experiment}", *overrides]
    try:
        jobs = [[word.split("=", 1) for word in job] for job in points(chosen, sweep_config(chosen, OURS), OURS)]
    except (HydraException, OmegaConfBaseException):
        return [Point(experiment, {}, tuple(chosen))]
    given = [word.partition("=")[0] for word in chosen]
    fixed = {key for key in given if all(f"{key}={dict(job)[key]}" in chosen for job in jobs)}
    return [
        Point(
            experiment,
            {key: value for key, value in job if key not in fixed},
            tuple("=".join(pair) for pair in sorted(job, key=lambda pair: pair[0] not in given)),
        )
        for job in jobs
    ]


def trace_of(experiment: str, overrides: Sequence[str] = ()) -> Config | None:
    """Return the settings of the trace of ``experiment``; None if the experiment cannot be composed."""
    try:
        found: Config = composed(Point(experiment, {}, (f"experiment={experiment}", *overrides)))["trace"]
    except (HydraException, OmegaConfBaseException):
        return None
    return found


def composed(point: Point) -> Config:
    """The resolved configuration of one point, but for the run directory, which is no part of what it computes.

    Raises HydraException, OmegaConfBaseException: a choice does not exist or does not go with another.
    """
    config = compose([*point.overrides, "run.dir=unnamed"])
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}
