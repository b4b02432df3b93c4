"""Image quality of simulated runs: no image is made, so it is carried from what the papers measured, or bounded.

A quality factor is an image's score over that of the full run of the large model; the full run itself has 1 by
definition. Where no paper tells the factor of an image it is null, and where only the mean over a system's images
is told, only that is given. A live backend measures its own, and nothing here is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sim.errors import ConfigError
from sim.model import Model, reference
from sim.record.record import Record
from sim.request import COMPLETED, MISSING

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
Score = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scores = dict[str, Score]

METRICS = {"clip": "CLIPScore", "pick": "PickScore"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of a run's quality.

    ``factor`` (rows,) has a factor per request, NaN where none is known; ``mean`` is that of the whole system, for
    where only the mean was published. ``basis`` says where they come from; ``published`` are the scores of the
    system as they stand in the paper, by metric.
    """

    factor: Reals
    mean: float | None = None
    basis: str | None = None
    published: dict[str, float] | None = None

    def summary(self, images: Mask) -> dict[str, Any]:
        """The summary's ``quality`` over ``images`` (rows,). No share below alpha: these factors are means."""
        factor = self.factor[images]
        mean = self.mean if np.isnan(factor).any() or not len(factor) else float(factor.mean())
        basis = None if mean is None else self.basis
        return {"factor_mean": mean, "below_alpha_share": None, "basis": basis, "published": self.published}


@runtime_checkable
class Quality(Protocol):
    """Judges the images of a simulated run."""

    def judge(self, record: Record, models: Mapping[str, Model], system: str, alpha: float | None) -> Judgement:
        """Of the finished run that wrote ``record``, with ``models`` by role, of the system so named; ``alpha`` is
        what its selector's thresholds keep of the full run's quality, None where it has none."""


class Row(BaseModel):
    """What a paper measured of a system that reuses earlier work.

    ``small`` is the model that served its hits, None where the large one did or none; ``scores`` are means over
    all its images, of which the share ``hit_rate`` were hits (None: not published); ``by_k`` are the scores of the
    hits that skipped K steps (no paper prints them).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    systems: list[str]
    scores: Scores
    small: str | None = None
    hit_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    by_k: dict[int, Scores] = {}


class Table(BaseModel):
    """A table of scores on one dataset: of ``large`` in full, of other models in full, and of systems."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source: str
    dataset: str
    large: str
    full: Scores
    models: dict[str, Scores] = {}
    systems: list[Row] = []


@dataclass(slots=True)
class Published:
    """Quality factors from the papers' tables.

    A request in full on the large model has 1, in full on another model that model's mean. A hit has the mean of
    its K where there is one; else what its system's mean m leaves for the hits, (m - (1 - h)) / h at the paper's
    hit rate h, if that is published: the full runs of hits and of misses are taken to score the same.

    Args:
        tables: the papers' tables; of several for one large model and dataset the first that has the system counts.
        dataset: whose scores are taken.
        metric: the score whose ratio is the factor.

    Raises:
        ConfigError: a table that lacks a key, has an unknown one, or a score that is not positive.
    """

    tables: list[dict[str, Any]]
    dataset: str = "DiffusionDB"
    metric: Literal["clip", "pick"] = "clip"
    _tables: list[Table] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tables = [_checked(table, f"quality.tables.{i}") for i, table in enumerate(self.tables)]

    def judge(self, record: Record, models: Mapping[str, Model], system: str, alpha: float | None) -> Judgement:
        """See Quality.judge."""
        images = Images(record, models)
        factor = images.by_definition()
        table, row = self._find(models, system)
        if table is None:
            return Judgement(factor, basis=_BY_DEFINITION)
        named = f"{METRICS[self.metric]} of {table.source} ({table.dataset})"
        basis = _BY_DEFINITION
        published: dict[str, float] | None = None
        for name, scores in table.models.items():
            alone = images.in_full_on(name)
            if alone.any():
                factor[alone] = self._ratio(scores, table)
                basis, published = f"carried: {named}, mean of {name} in full", scores
        if row is None:
            return Judgement(factor, basis=basis, published=published)
        mean = self._ratio(row.scores, table)
        hits = images.hits_on(row.small)
        if not images.hits_on(None).any():
            return Judgement(factor, basis=basis, published=row.scores)
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
        return Judgement(factor, None if np.isnan(mean) else mean, basis, row.scores)

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


@dataclass(slots=True)
class AtLeastAlpha:
    """A lower bound: a selector's thresholds were chosen so that every hit keeps alpha of the full run's quality.

    Source: NIRVANA, eq. 10 and Algorithm 2; MoDM, eq. 5. Null for an image returned as it is, and for models that
    no selector speaks of.
    """

    def judge(self, record: Record, models: Mapping[str, Model], system: str, alpha: float | None) -> Judgement:
        """See Quality.judge."""
        images = Images(record, models)
        factor = images.by_definition()
        if alpha is None:
            return Judgement(factor, basis=_BY_DEFINITION)
        factor[images.hits_on(None)] = alpha
        return Judgement(factor, basis=f"lower bound: alpha = {alpha:g} of the step selector for every hit")


_BY_DEFINITION = "1 by definition: every image is the full run of the large model"


class Images:
    """Which images a finished run made, and how: masks (rows,)."""

    def __init__(self, record: Record, models: Mapping[str, Model]) -> None:
        facts = record.facts
        self._code = facts.model_code
        self._large = reference(models).name
        self._completed: Mask = facts["outcome"] == COMPLETED
        self._model = facts["model"]
        self._hit: Mask = facts["source"] != MISSING
        self.k = facts["k"]

    def by_definition(self) -> Reals:
        """1 for full runs of the large model, NaN for all else."""
        return np.where(self._full(self._large), 1.0, np.nan)

    def in_full_on(self, model: str) -> Mask:
        """Requests that ran in full on ``model``, which is not the large one."""
        return self._full(model) if model != self._large else np.zeros(len(self.k), bool)

    def hits_on(self, model: str | None) -> Mask:
        """Requests that reused earlier work and finished on ``model``, or, with None, on any or without one."""
        hits = self._completed & self._hit
        return hits if model is None else hits & self._on(model)

    def _full(self, model: str) -> Mask:
        return self._completed & ~self._hit & self._on(model)

    def _on(self, model: str) -> Mask:
        on: Mask = self._model == self._code.get(model, MISSING - 1)
        return on


def _checked(table: dict[str, Any], key: str) -> Table:
    try:
        return Table.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join((key, *(str(part) for part in first["loc"])))
        found = "" if first["type"] == "missing" else f", found {first['input']!r}"
        raise ConfigError(f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}{found}") from None
