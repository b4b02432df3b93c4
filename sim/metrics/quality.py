"""Image quality of simulated runs, which make no images: taken from the papers' measurements, or bounded.

A quality factor is an image's score over that of the large model's full run, which has 1 by definition. It is null if
no paper states it. A run that departs from the measured design has no quality, but a reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mezzotint.files.validation import first_error
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model, reference
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import COMPLETED
from mezzotint.sim.metrics.design import Design, check_design, departure
from mezzotint.sim.metrics.recorder import RunRecord

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
Score = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scores = dict[str, Score]

Validated = TypeVar("Validated", bound=BaseModel)

METRICS = {"clip": "CLIPScore", "pick": "PickScore"}

OTHERS = {
    "clip": ("CLIPScore", ""),
    "pick": ("PickScore", ""),
    "fid": ("FID", " (lower is better)"),
    "inception": ("Inception Score", ""),
}
"""Names of scores, and a remark on those that fall as images improve."""


@dataclass(frozen=True, slots=True)
class QualityEstimate:
    """Estimated quality of a run.

    ``factor`` (rows,) is NaN if not known; ``mean`` is the system's, if only that was published. ``score`` names the
    score that is compared, None for a factor that is 1 by definition. ``basis`` states their origin, ``reason`` why
    others are not known. ``published`` are the paper's scores of the system, by metric, and ``full`` those of the large
    model's full runs.
    """

    factor: Reals
    mean: float | None = None
    basis: str | None = None
    published: dict[str, float] | None = None
    reason: str | None = None
    score: str | None = None
    full: dict[str, float] | None = None

    def summary(self, images: Mask) -> dict[str, Any]:
        """Return the summary's ``quality`` over ``images`` (rows,); no share below alpha, as the factors are means."""
        factor = self.factor if images.all() else self.factor[images]  # a copy is large
        mean = None
        if len(factor):
            mean = self.mean if np.isnan(factor).any() else float(factor.mean())
        reason = (self.reason if len(factor) else "no image was finished") or "not known for artifacts returned as is"
        return {
            "factor_mean": mean,
            "below_alpha_share": None,
            "score": None if mean is None else self.score,
            "note": None if mean is None else above_one(mean, self.score, self.published, self.full),
            "basis": None if mean is None else self.basis,
            "reason": reason if mean is None else None,
            "published": self.published,
        }


def above_one(
    factor: float, score: str | None, published: Scores | None = None, full: Scores | None = None
) -> str | None:
    """Say what a quality factor above 1 means, and what other published scores say; None for one up to 1.

    Args:
        published, full: scores of the system and of the large model's full runs, by metric.
    """
    if factor <= 1 + 1e-9:
        return None
    others = [
        f"{name} {published[key]:g} for {full[key]:g}{direction}"
        for key, (name, direction) in OTHERS.items()
        if published and full and key in published and key in full and name != score
    ]
    said = f"other scores: {', '.join(others)}" if others else "other scores are not known"
    name = score or "the score"
    return f"above 1: {name} is higher than that of the large model's full runs; {said}"


@runtime_checkable
class Quality(Protocol):
    """Estimate the quality of a simulated run."""

    def judge(
        self, record: RunRecord, models: Mapping[str, Model], config: Mapping[str, Any], alpha: float | None
    ) -> QualityEstimate:
        """Estimate the quality of the finished run that wrote ``record``, with ``models`` by role.

        ``config`` is resolved; ``alpha`` is the share of a full run's quality that the selector keeps, None without.
        """


class SystemScores(BaseModel):
    """Scores that a paper measured of a system with reuse: ``scores`` are means over all its images.

    ``small`` served the hits (None: the large model did, or none hit), ``hit_rate`` is None if not published, ``by_k``
    holds the scores of hits by K (no paper prints them). A ``design`` of None fits any system of these names.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    systems: list[str]
    design: str | None = None
    scores: Scores
    small: str | None = None
    hit_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    by_k: dict[int, Scores] = {}


class ScoreTable(BaseModel):
    """Table of scores on one dataset: of ``large`` in full, of other models in full, and of systems.

    All images have ``side`` x ``side`` pixels and ``steps`` steps; ``steps_of`` lists models with another number.
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
    systems: list[SystemScores] = []


@dataclass(slots=True)
class Published:
    """Quality factors from the papers' tables.

    A request in full on the large model has 1, in full on another model that model's mean. A hit has the mean of its K
    if there is one. Else, with the system's mean m and the paper's hit rate h, it has (m - (1 - h)) / h: full runs of
    hits and of misses are assumed to score the same. All but the 1 needs the models, steps, size and design that were
    measured.

    Args:
        designs: designs of the measured systems, by the names that rows of the tables use: group -> its choice.
        tables: the papers' tables; of several for one large model and dataset, the first that has the system counts.

    Raises:
        ConfigError: a table lacks a key, or has an unknown key, a score that is not positive or an unknown design.
        ConfigError: no table is of the dataset.
    """

    tables: list[dict[str, Any]]
    designs: dict[str, Design] = field(default_factory=dict)
    dataset: str = "DiffusionDB"
    metric: Literal["clip", "pick"] = "clip"
    _tables: list[ScoreTable] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tables = [_validate(ScoreTable, table, f"quality.tables.{i}") for i, table in enumerate(self.tables)]
        for name, design in self.designs.items():
            check_design(design, f"quality.designs.{name}")
        named = {row.design for table in self._tables for row in table.systems} - {None, *self.designs}
        if named:
            raise ConfigError(f"quality.tables: a row names the design {named.pop()!r}, which quality.designs lacks")
        known = list(dict.fromkeys(table.dataset for table in self._tables))
        if known and self.dataset not in known:
            raise ConfigError(f"quality.dataset: found {self.dataset!r}; {suggest(self.dataset, known)}")

    def judge(
        self, record: RunRecord, models: Mapping[str, Model], config: Mapping[str, Any], alpha: float | None
    ) -> QualityEstimate:
        table, row = self._find(models, config["system"]["name"])
        estimate = self._estimate(record, models, config, table, row)
        if estimate.basis == _BY_DEFINITION or table is None:
            return estimate
        return replace(estimate, score=METRICS[self.metric], full=table.full)

    def _estimate(
        self,
        record: RunRecord,
        models: Mapping[str, Model],
        config: Mapping[str, Any],
        table: ScoreTable | None,
        row: SystemScores | None,
    ) -> QualityEstimate:
        images = ImageMasks(record, models)
        factor, system = images.by_definition, config["system"]["name"]
        if table is None:
            large = reference(models).name
            reason = f"no table of scores on {self.dataset} is of {large}"
            return QualityEstimate(factor, basis=_BY_DEFINITION, reason=reason)
        if difference := _difference(table, images, models, config):
            return QualityEstimate(factor, basis=_BY_DEFINITION, reason=_not_measured(table, difference))
        named = f"{METRICS[self.metric]} of {table.source} ({table.dataset})"
        basis = _BY_DEFINITION
        published: dict[str, float] | None = None
        for name, scores in table.models.items():
            in_full = images.in_full_on(name)
            if name != table.large and in_full.any():
                factor[in_full] = self._ratio(scores, table)
                basis, published = f"carried: {named}, mean of {name} in full", scores
        if row is None:
            reason = f"{table.source} ({table.dataset}) has no system={system} with these models"
            return QualityEstimate(factor, basis=basis, published=published, reason=reason)
        if row.design and (difference := departure(config, self.designs[row.design])):
            return QualityEstimate(factor, basis=basis, reason=_not_measured(table, difference))
        mean = self._ratio(row.scores, table)
        hits, all_hits = images.hits_on(row.small), images.hits_on(None)
        if not all_hits.any():
            return QualityEstimate(factor, basis=basis, published=row.scores)
        if row.small and (all_hits & ~hits).any():  # MoDM's monitor ran hits on other models
            difference = f"hits ran elsewhere than on {row.small} too"
            return QualityEstimate(factor, basis=basis, reason=_not_measured(table, difference))
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
            reason = f"{table.source} has no {METRICS[self.metric]} of it"
            return QualityEstimate(factor, None, basis, row.scores, reason)
        return QualityEstimate(factor, mean, basis, row.scores)

    def _find(self, models: Mapping[str, Model], system: str) -> tuple[ScoreTable | None, SystemScores | None]:
        """Return the table for the run's large model, and the row of its system there."""
        large, *smaller = (model.name for model in models.values())
        tables = [table for table in self._tables if table.large == large and table.dataset == self.dataset]
        for table in tables:
            for row in table.systems:
                if system in row.systems and row.small in (None, *smaller):
                    return table, row
        return (tables[0] if tables else None), None

    def _ratio(self, scores: Scores, table: ScoreTable) -> float:
        return scores.get(self.metric, np.nan) / table.full.get(self.metric, np.nan)


ALPHA_SCORE = METRICS["clip"]
"""Score whose share alpha is, in NIRVANA (5.3) and in MoDM (eq. 5)."""


class AlphaFor(BaseModel):
    """Setting that a selector's alpha was chosen for: large model, model of the hits, similarity and thresholds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    large: str
    hits: str
    of_steps: int
    thresholds: dict[int, float]
    similarity: str | list[str]


@dataclass(slots=True)
class AtLeastAlpha:
    """Lower bound: a selector's thresholds were chosen so that every hit keeps alpha of the full run's quality.

    The bound holds for the models and thresholds that alpha was chosen for (``selector.alpha_for``), and for higher
    thresholds. The factor is null otherwise, for an artifact returned as it is, and for models without a selector.
    Source: NIRVANA, eq. 10 and Algorithm 2; MoDM, eq. 5.
    """

    def judge(
        self, record: RunRecord, models: Mapping[str, Model], config: Mapping[str, Any], alpha: float | None
    ) -> QualityEstimate:
        images, selector = ImageMasks(record, models), config.get("selector") or {}
        factor = images.by_definition
        if alpha is None:
            reason = "the selector has no alpha" if selector else "there is no selector, so no alpha"
            return QualityEstimate(factor, basis=_BY_DEFINITION, reason=reason)
        if selector.get("alpha_for") is None:
            reason = "selector.alpha_for does not say which models and thresholds alpha was chosen for"
            return QualityEstimate(factor, basis=_BY_DEFINITION, reason=reason)
        chosen_for = _validate(AlphaFor, selector["alpha_for"], "selector.alpha_for")
        if difference := _alpha_difference(chosen_for, selector, models, config):
            reason = f"alpha = {alpha:g} bounds nothing here: {difference}"
            return QualityEstimate(factor, basis=_BY_DEFINITION, reason=reason)
        factor[images.hits_on(chosen_for.hits)] = alpha
        reason = f"alpha = {alpha:g} was chosen for hits on {chosen_for.hits}, and others ran elsewhere"
        basis = f"lower bound: alpha = {alpha:g} of the step selector for every hit"
        score = ALPHA_SCORE if images.hits_on(chosen_for.hits).any() else None
        return QualityEstimate(factor, basis=basis, reason=reason, score=score)


def _alpha_difference(
    chosen_for: AlphaFor, selector: Mapping[str, Any], models: Mapping[str, Model], config: Mapping[str, Any]
) -> str | None:
    if reference(models).name != chosen_for.large:
        return f"it was chosen for {chosen_for.large} and not {reference(models).name}"
    thresholds = selector["thresholds"]
    lower = [k for k, threshold in thresholds.items() if threshold < chosen_for.thresholds.get(k, math.inf)]
    if lower or selector.get("of_steps", chosen_for.of_steps) != chosen_for.of_steps:
        return f"selector.thresholds is {thresholds}, and it was chosen for {chosen_for.thresholds}"
    return departure(config, {"similarity": chosen_for.similarity})


def _difference(
    table: ScoreTable, images: "ImageMasks", models: Mapping[str, Model], config: Mapping[str, Any]
) -> str | None:
    """Return the first setting in which the run's images differ from the steps and size of ``table``'s."""
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


def _not_measured(table: ScoreTable, difference: str) -> str:
    return f"not what {table.source} measured: {difference}"


_BY_DEFINITION = "1 by definition: every image is the full run of the large model"


class ImageMasks:
    """Masks (rows,) of a finished run's images by model and reuse; ``by_definition`` is the factor of full runs."""

    def __init__(self, record: RunRecord, models: Mapping[str, Model]) -> None:
        columns = record.request_columns
        self._code = columns.model_code
        self._completed: Mask = columns["outcome"] == COMPLETED
        self._model = columns["model"]
        self._hit: Mask = columns["source"] != MISSING
        self.k = columns["k"]
        large = self._code.get(reference(models).name, MISSING - 1)
        self.by_definition: Reals = columns.computed(
            lambda block: np.where(
                (block["outcome"] == COMPLETED) & (block["source"] == MISSING) & (block["model"] == large), 1.0, np.nan
            )
        )

    def in_full_on(self, model: str) -> Mask:
        """Return the requests that ran in full on ``model``."""
        return self._completed & ~self._hit & self.on(model)

    def hits_on(self, model: str | None) -> Mask:
        """Return the hits that completed on ``model``; with None, on any model or without one."""
        hits = self._completed & self._hit
        return hits if model is None else hits & self.on(model)

    def on(self, model: str) -> Mask:
        """Return the requests that ran on ``model``."""
        on: Mask = self._model == self._code.get(model, MISSING - 1)
        return on


def _validate(kind: type[Validated], node: Any, key: str) -> Validated:
    try:
        return kind.model_validate(node)
    except ValidationError as error:
        raise ConfigError(first_error(error, key)) from None
