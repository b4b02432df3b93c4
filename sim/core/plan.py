"""Plans: what a front end decides about a request before it queues, and the stages of which it consists."""

from dataclasses import dataclass
from math import nan
from typing import NamedTuple

from mezzotint.settings.ranges import Count

WHOLE, TEXT_ENCODER, DENOISER, VAE = "whole", "text-encoder", "denoiser", "vae"
"""Components. WHOLE is all of them in one stage: text encoding is part of its first step, decoding of its last."""

COMPONENTS = TEXT_ENCODER, DENOISER, VAE
"""The components of WHOLE."""

MISSING = -1

DECLARED = -2
"""Source of a declared hit, which no row of the trace made."""

MISS, HIT, EMPTY, STALE, PREDICTED_MISS, FORGONE_MATCH, NO_DATABASE, NO_STORE = range(1, 9)
LOOKUPS = ("", "miss", "hit", "empty", "stale", "predicted miss", "forgone match", "no database", "no store")
"""The results of a cache lookup by code; 0 is a request without a lookup. All but a hit are generated in full.

| result | meaning |
|---|---|
| miss | no artifact is similar enough |
| hit | an artifact to start from |
| empty | the match has no stored state at or below K (holes) |
| stale | the match was deleted, and the index has not applied that yet |
| predicted miss | no search: the match predictor expected a miss, rightly |
| forgone match | no search: the match predictor expected a miss, wrongly |
| no database, no store | the vector index or the artifact store was out of service |
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a plan: the unit that queues, runs, is preempted and moves between GPUs.

    Attributes:
        component: what runs: WHOLE, TEXT_ENCODER, DENOISER, VAE, or another that the backend knows.
        steps: steps, with a boundary after each; 1 for a component that runs once.
        max_degree: greatest parallel degree; 0 for any. Text encoders and VAEs do not gain from several GPUs.
        max_batch: most requests in one batch, which they join and leave at step boundaries; 1 runs each alone, unless
            the group policy forms batches of its own.
    """

    component: str
    steps: int = 1
    max_degree: int = 0
    max_batch: Count = 1

    @property
    def denoises(self) -> bool:
        """True if its steps are those of the denoiser."""
        return self.component in (WHOLE, DENOISER)


class Plan(NamedTuple):
    """The plan of a request. It is immutable: a part that decides otherwise assigns another one (Run.assign).

    Attributes:
        model: name of the model that runs it; None if the artifact itself is the answer and no GPU runs.
        k, of_steps: steps that may be skipped, K of N in the selector's table.
        skip_fraction: share of the steps that is skipped if K is 0.
        lookup: code of the cache lookup's result (LOOKUPS).
        search_s: seconds of the search.
        source: the row whose artifact is reused; MISSING without one, DECLARED if the hit is declared.
        source_age_s, similarity: age of that artifact, and its similarity; NaN without one.
        fetch_s: seconds of fetching the artifact onto the worker.
        refine: True if the artifact is an image, to be encoded and noised, not a latent.
        stages: its stages; empty for those of the executor, which are one whole stage unless executor=stages.
        then: the plan of the next try, if the image of this one is judged too poor (a cascade); None without one.
    """

    model: str | None
    k: int = 0
    of_steps: int = 1
    skip_fraction: float = 0.0
    lookup: int = 0
    search_s: float = 0.0
    source: int = MISSING
    source_age_s: float = nan
    similarity: float = nan
    fetch_s: float = 0.0
    refine: bool = False
    stages: tuple[Stage, ...] = ()
    then: "Plan | None" = None

    def on(self, model: str | None) -> "Plan":
        """Return the same plan for another model."""
        return self._replace(model=model)


UNPLANNED = Plan(None)


def difference(planned: Plan, found: Plan) -> tuple[str, object, object]:
    """Return the name of the first attribute in which two plans differ, and both values."""
    for name, before, after in zip(Plan._fields, planned, found, strict=True):
        if before is not after and before != after:
            return name, before, after
    return "plan", planned, found


def whole_stage(steps: int) -> tuple[Stage, ...]:
    """Return one stage of ``steps`` denoising steps, with text encoding in its first and decoding in its last."""
    return (Stage(WHOLE, steps),)


def three_stages(steps: int) -> tuple[Stage, ...]:
    """Return three stages: text encoder and VAE on one GPU, the denoiser on any number."""
    return Stage(TEXT_ENCODER, max_degree=1), Stage(DENOISER, steps), Stage(VAE, max_degree=1)
