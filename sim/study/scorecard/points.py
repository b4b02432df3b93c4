"""The points of an experiment: the runs that `mezzotint run -m experiment=NAME` would make, without making them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sim.config.compose import composed as compose

Config = dict[str, Any]


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
        whole = compose(one, hydra_too=True, check=False)
        params = OmegaConf.to_container(whole.hydra.sweeper.params or OmegaConf.create())
    except (HydraException, OmegaConfBaseException):
        return [Point(experiment, {}, tuple(chosen))]
    assert isinstance(params, dict)
    swept = {str(key): str(value) for key, value in params.items() if key not in given}
    words = [*chosen, *(f"{key}={value}" for key, value in swept.items())]
    swept |= {key: given[key].partition("=")[2] for key in several}
    jobs = list(product(*map(_values, parser.parse_overrides(words))))
    set_to = [dict(word.split("=", 1) for word in job) for job in jobs]
    return [Point(experiment, {key: each[key] for key in swept}, job) for job, each in zip(jobs, set_to, strict=True)]


def _values(override: Override) -> list[str]:
    """Return what a sweep makes of one override: itself, or one for each of its values."""
    values = override.sweep_string_iterator() if override.is_sweep_override() else [override.get_value_element_as_str()]
    return [f"{override.get_key_element()}={value}" for value in values]


def trace_of(experiment: str, overrides: Sequence[str] = ()) -> Config | None:
    """Return the settings of the trace of ``experiment``; None if the experiment cannot be composed."""
    try:
        found: Config = composed(Point(experiment, {}, (f"experiment={experiment}", *overrides)))["trace"]
    except (HydraException, OmegaConfBaseException):
        return None
    return found


def composed(point: Point) -> Config:
    """The resolved configuration of one point, but for the run directory, which is no part of what it computes.

    Raises:
        HydraException, OmegaConfBaseException: a choice does not exist or does not go with another.
    """
    config = compose([*point.overrides, "run.dir=unnamed"])
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}
