"""Image quality of simulated runs: no image is made, so it is carried from what the papers measured, or bounded.

A quality factor is an image's score over that of the full run of the large model, which has 1 by definition. It is null
where no paper tells it. A run that departs from the design that was measured has no quality, and a reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from conf.validation import first_error
from sim.errors import ConfigError
from sim.model import Model, reference
from sim.record.design import Design, checked, departure
from sim.record.record import Record
from sim.request import COMPLETED, MISSING

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
Score = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scores = dict[str, Score]

Checked = TypeVar("Checked", bound=BaseModel)

METRICS = {"clip": "CLIPScore", "pick": "PickScore"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of a run's quality.

    ``factor`` (rows,) has a factor per request, NaN where none is known; ``mean`` is that of the whole system, for
    where only the mean was published. ``basis`` says where they come from, ``reason`` why those that are not known are
    not; ``published`` are the scores of the system as they stand in the paper, by metric.
    """

    factor: Reals
    mean: float | None = None
    basis: str | None = None
    published: dict[str, float] | None = None
    reason: str | None = None

    def summary(self, images: Mask) -> dict[str, Any]:
        """The summary's ``quality`` over ``images`` (rows,). No share below alpha: these factors are means."""
        factor = self.factor[images]
        mean = None
        if len(factor):
            mean = self.mean if np.isnan(factor).any() else float(factor.mean())
        reason = (self.reason if len(factor) else "no image was finished") or "not known of images returned as they are"
        return {
            "factor_mean": mean,
            "below_alpha_share": None,
            "basis": None if mean is None else self.basis,
            "reason": reason if mean is None else None,
            "published": self.published,
        }


def unknown(rows: int, reason: str) -> Judgement:
    """The judgement of ``rows`` requests of which nothing is known."""
    return Judgement(np.full(rows, np.nan), reason=reason)


@runtime_checkable
class Quality(Protocol):
    """Judges the images of a simulated run."""

    def judge(
        self, record: Record, models: Mapping[str, Model], config: Mapping[str, Any], alpha: float | None
    ) -> Judgement:
        """Of the finished run that wrote ``record``, with ``models`` by role, of the resolved ``config``; ``alpha`` is
        what its selector's thresholds keep of the full run's quality, None where it has none."""


class Row(BaseModel):
    """What a paper measured of a system that reuses earlier work.

    ``small`` is the model that served its hits, None where the large one did or none; ``scores`` are means over
    all its images, of which the share ``hit_rate`` were hits (None: not published); ``by_k`` are the scores of the
    hits that skipped K steps (no paper prints them). ``design`` names what the system was made of; None applies to
    whatever goes by its name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    systems: list[str]
    design: str | None = None
    scores: Scores
    small: str | None = None
    hit_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    by_k: dict[int, Scores] = {}


class Table(BaseModel):
    """A table of scores on one dataset: of ``large`` in full, of other models in full, and of systems.

    ``steps`` (``steps_of`` a model, where it has others) and ``side`` in pixels are what all images were made with.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    source: str
    dataset: str
    large: str
    steps: int | None = None
    side: int | None = None
    steps_of: dict[str, int] = {}
    full: Scores
    models: dict[str, Scores] = {}
    systems: list[Row] = []


@dataclass(slots=True)
class Published:
    """Quality factors from the papers' tables.

    A request in full on the large model has 1, in full on another model that model's mean. A hit has the mean of
    its K where there is one; else what its system's mean m leaves for the hits, (m - (1 - h)) / h at the paper's
    hit rate h, if that is published: the full runs of hits and of misses are taken to score the same. All of this
    applies to a run of the models, steps, size and design that were measured; else only the 1 does.

    Args:
        designs: what the systems in them are made of, by the names that their rows use: group -> its choice.
        tables: the papers' tables; of several for one large model and dataset the first that has the system counts.

    Raises:
        ConfigError: a table that lacks a key, has an unknown one, a score that is not positive, or a design that is
            none; a dataset that no table is of.
    """

    tables: list[dict[str, Any]]
    designs: dict[str, Design] = field(default_factory=dict)
    dataset: str = "DiffusionDB"
    metric: Literal["clip", "pick"] = "clip"
    _tables: list[Table] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tables = [_validated(Table, table, f"quality.tables.{i}") for i, table in enumerate(self.tables)]
        for name, design in self.designs.items():
            checked(design, f"quality.designs.{name}")
        named = {row.design for table in self._tables for row in table.systems} - {None, *self.designs}
        if named:
            raise ConfigError(f"quality.tables: a row names the design {named.pop()!r}, which quality.designs lacks")
        known = list(dict.fromkeys(table.dataset for table in self._tables))
        if known and self.dataset not in known:
            raise ConfigError(f"quality.dataset: found {self.dataset!r}, expected one of {', '.join(known)}")

    def judge(
        self, record: Record, models: Mapping[str, Model], config: Mapping[str, Any], alpha: float | None
    ) -> Judgement:
        images = Images(record, models)
        factor, system = images.by_definition, config["system"]["name"]
        table, row = self._find(models, system)
        if table is None:
            large = reference(models).name
            return Judgement(factor, basis=_BY_DEFINITION, reason=f"no table of scores on {self.dataset} is of {large}")
        if unlike := _unlike(table, images, models, config):
            return Judgement(factor, basis=_BY_DEFINITION, reason=_not_carried(table, unlike))
        named = f"{METRICS[self.metric]} of {table.source} ({table.dataset})"
        basis = _BY_DEFINITION
        published: dict[str, float] | None = None
        for name, scores in table.models.items():
            alone = images.in_full_on(name)
            if name != table.large and alone.any():
                factor[alone] = self._ratio(scores, table)
                basis, published = f"carried: {named}, mean of {name} in full", scores
        if row is None:
            reason = f"{table.source} ({table.dataset}) has no system={system} with these models"
            return Judgement(factor, basis=basis, published=published, reason=reason)
        if row.design and (unlike := departure(config, self.designs[row.design])):
            return Judgement(factor, basis=basis, reason=_not_carried(table, unlike))
        mean = self._ratio(row.scores, table)
        hits, all_hits = images.hits_on(row.small), images.hits_on(None)
        if not all_hits.any():
            return Judgement(factor, basis=basis, published=row.scores)
        if row.small and (all_hits & ~hits).any():  # a monitor had others refine them
            reason = f"hits ran elsewhere than on {row.small} too"
            return Judgement(factor, basis=basis, reason=_not_carried(table, reason))
        if row.by_k:
            for k, scores in row.by_k.items():
                factor[hits & (images.k == k)] = self._ratio(scores, table)
            basis = f"carried: {named}, means of the hits by K"
        elif row.hit_rate is not None:
            hit = (mean - (1 - row.hit_rate)) / row.hit_rate
            factor[hits] = hit
            record.assume("quality factor of a hit", hit, f"{named}: mean {mean:.4f} at hit rate {row.hit_rate:g}")
            basis = f"carried: {named}, hits from its mean and its hit rate of {row.hit_rate:g}"
        else:
            basis = f"carried: {named}, mean of the paper's own run, whose hit rate is not published"
        if np.isnan(mean):
            return Judgement(factor, None, basis, row.scores, f"{table.source} has no {METRICS[self.metric]} of it")
        return Judgement(factor, mean, basis, row.scores)

    def _find(self, models: Mapping[str, Model], system: str) -> tuple[Table | None, Row | None]:
        """The table for the run's large model, and the row of its system there."""
        large, *smaller = (model.name for model in models.values())
        tables = [table for table in self._tables if table.large == large and table.dataset == self.dataset]
        for table in tables:
            for row in table.systems:
                if system in row.systems and row.small in (None, *smaller):
                    return table, row
        return (tables[0] if tables else None), None

    def _ratio(self, scores: Scores, table: Table) -> float:
        return scores.get(self.metric, np.nan) / table.full.get(self.metric, np.nan)


class AlphaFor(BaseModel):
    """What a selector's alpha was chosen for: the large model, the one that ran the hits, the space, and the table."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    large: str
    hits: str
    of_steps: int
    at_least: dict[int, float]
    space: str | list[str]


@dataclass(slots=True)
class AtLeastAlpha:
    """A lower bound: a selector's thresholds were chosen so that every hit keeps alpha of the full run's quality.

    Source: NIRVANA, eq. 10 and Algorithm 2; MoDM, eq. 5. It holds for the models and the table that alpha was chosen
    for (``selector.alpha_for``), and for higher thresholds. Null otherwise, for an image returned as it is, and for
    models that no selector speaks of.
    """

    def judge(
        self, record: Record, models: Mapping[str, Model], config: Mapping[str, Any], alpha: float | None
    ) -> Judgement:
        images, selector = Images(record, models), config.get("selector") or {}
        factor = images.by_definition
        if alpha is None:
            reason = "the selector has no alpha" if selector else "no selector, so no alpha, speaks of this model"
            return Judgement(factor, basis=_BY_DEFINITION, reason=reason)
        if selector.get("alpha_for") is None:
            reason = "selector.alpha_for does not say which models and thresholds alpha was chosen for"
            return Judgement(factor, basis=_BY_DEFINITION, reason=reason)
        held = _validated(AlphaFor, selector["alpha_for"], "selector.alpha_for")
        if lacking := _unheld(held, selector, models, config):
            return Judgement(factor, basis=_BY_DEFINITION, reason=f"alpha = {alpha:g} bounds nothing here: {lacking}")
        factor[images.hits_on(held.hits)] = alpha
        reason = f"alpha = {alpha:g} was chosen for hits on {held.hits}, and others ran elsewhere"
        basis = f"lower bound: alpha = {alpha:g} of the step selector for every hit"
        return Judgement(factor, basis=basis, reason=reason)


def _unheld(
    held: AlphaFor, selector: Mapping[str, Any], models: Mapping[str, Model], config: Mapping[str, Any]
) -> str | None:
    if reference(models).name != held.large:
        return f"it was chosen for {held.large} and not {reference(models).name}"
    table = selector["at_least"]
    lower = [k for k, least in table.items() if least < held.at_least.get(k, math.inf)]
    if lower or selector.get("of_steps", held.of_steps) != held.of_steps:
        return f"selector.at_least is {table}, and it was chosen for {held.at_least}"
    return departure(config, {"space": held.space})


def _unlike(table: Table, images: "Images", models: Mapping[str, Model], config: Mapping[str, Any]) -> str | None:
    """The first thing in which the run's images are not of the steps and size of ``table``'s."""
    if table.steps is not None and config["shapes"] != "model":
        return f"shapes is {config['shapes']} and not model"
    for role, model in models.items():
        if role != next(iter(models)) and not images.on(model.name).any():
            continue
        expected = {"steps": table.steps_of.get(model.name, table.steps), "width": table.side, "height": table.side}
        for key, value in expected.items():
            if value is not None and getattr(model, key) != value:
                return f"models.{role}.{key} is {getattr(model, key)} and not {value}"
    return None


def _not_carried(table: Table, unlike: str) -> str:
    return f"not what {table.source} measured: {unlike}"


_BY_DEFINITION = "1 by definition: every image is the full run of the large model"


class Images:
    """Which images a finished run made, and how: masks (rows,); ``by_definition`` is the factor of those in full."""

    def __init__(self, record: Record, models: Mapping[str, Model]) -> None:
        facts = record.facts
        self._code = facts.model_code
        self._completed: Mask = facts["outcome"] == COMPLETED
        self._model = facts["model"]
        self._hit: Mask = facts["source"] != MISSING
        self.k = facts["k"]
        self.by_definition: Reals = np.where(self.in_full_on(reference(models).name), 1.0, np.nan)

    def in_full_on(self, model: str) -> Mask:
        """Requests that ran in full on ``model``."""
        return self._completed & ~self._hit & self.on(model)

    def hits_on(self, model: str | None) -> Mask:
        """Requests that reused earlier work and finished on ``model``, or, with None, on any or without one."""
        hits = self._completed & self._hit
        return hits if model is None else hits & self.on(model)

    def on(self, model: str) -> Mask:
        """Requests that ran on ``model``."""
        on: Mask = self._model == self._code.get(model, MISSING - 1)
        return on


def _validated(kind: type[Checked], node: Any, key: str) -> Checked:
    try:
        return kind.model_validate(node)
    except ValidationError as error:
        raise ConfigError(first_error(error, key)) from None
