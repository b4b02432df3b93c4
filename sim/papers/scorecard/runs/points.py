"""Points of an experiment: the runs that `mezzotint run -m experiment=NAME` would make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.compose import OURS
from mezzotint.sim.run.config.compose import composed as compose
from mezzotint.sim.run.config.points import points

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """One run of an experiment of conf/experiment.

    Attributes:
        choices: settings of this run from the experiment's sweep, by group or key, as written.
        overrides: all overrides that make this run, ``choices`` among them.
    """

    experiment: str
    choices: Mapping[str, str]
    overrides: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that makes this run alone."""
        return " ".join(["mezzotint run", *self.overrides])


def sweep(experiment: str, overrides: Sequence[str] = ()) -> list[Point]:
    """Return the points of ``experiment``, every combination of its sweep in order.

    ``overrides`` apply to all points and replace what the sweep sets. An experiment that does not compose is one point,
    which fails when it is run.
    """
    chosen = [f"experiment={experiment}", *overrides]
    try:
        jobs = [[word.split("=", 1) for word in job] for job in points(chosen, OURS).overrides]
    except (ConfigError, HydraException, OmegaConfBaseException):
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
    """Return the settings of the trace of ``experiment``; None if the experiment does not compose."""
    try:
        found: Config = composed(Point(experiment, {}, (f"experiment={experiment}", *overrides)))["trace"]
    except (ConfigError, HydraException, OmegaConfBaseException):
        return None
    return found


def encoder_of(experiment: str) -> str | None:
    """Return the class of the encoder of ``experiment``; None if it does not compose."""
    try:
        return str(composed(Point(experiment, {}, (f"experiment={experiment}",)))["encoder"]["_target_"])
    except (ConfigError, HydraException, OmegaConfBaseException):
        return None


def with_hits(point: Point, hits: Mapping[str, Sequence[str]]) -> Point:
    """Return ``point`` with the overrides in ``hits`` that declare the hits of its system.

    A point that declares hits itself, or does not compose, is returned unchanged.
    """
    try:
        config = composed(point)
    except (ConfigError, HydraException, OmegaConfBaseException):
        return point
    added = () if config.get("hits") else hits.get(config["system"]["name"], ())
    return replace(point, overrides=(*point.overrides, *added))


def composed(point: Point) -> Config:
    """Return the resolved configuration of one point, without its run folder, which no result depends on.

    Raises HydraException, OmegaConfBaseException: a choice does not exist or does not go with another.
    """
    config = compose([*point.overrides, "run.dir=unnamed"])
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}
