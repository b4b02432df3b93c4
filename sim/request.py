"""A request in flight: what it asks for, its plan, and the seconds that its life took so far."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = -1


@dataclass(slots=True)
class Request:
    """One row of the trace on its way through the system.

    ``row`` counts from the first row that is served. The front door fills in the plan: ``model`` (None: the
    artifact itself is the answer and no GPU runs), ``k`` of ``of_steps`` as the selector's table has it and
    ``skipped``, the same share of this request's steps, ``source`` (the row whose artifact is
    used, or -1, counted from the head of the trace), its age and its
    ``similarity``; ``lookup`` says what came of asking a cache (sim.record.columns), ``switched`` that the worker
    had to change models, ``hole`` that the state wanted there was
    gone. With a live backend ``artifact`` is what it starts from, ``capture`` what must be kept on the way and
    ``made`` what was. All times are in seconds of simulated time.
    """

    row: int
    arrival_s: float
    width: int
    height: int
    steps: int
    model: str | None = None
    k: int = 0
    of_steps: int = 1
    skipped: int = 0
    source: int = MISSING
    source_age_s: float = float("nan")
    similarity: float = float("nan")
    refine: bool = False
    lookup: int = 0
    hole: bool = False
    switched: bool = False
    search_s: float = 0.0
    wasted_s: float = 0.0
    fetch_s: float = 0.0
    start_s: float = 0.0
    load_s: float = 0.0
    denoise_s: float = 0.0
    decode_s: float = 0.0
    energy_j: float = 0.0
    worker: int = MISSING
    quality: float = float("nan")
    capture: Mapping[int, int] | None = None
    artifact: Any = None
    made: Any = None

    @property
    def hit(self) -> bool:
        """Whether an artifact is reused."""
        return self.source != MISSING
