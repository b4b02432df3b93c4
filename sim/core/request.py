"""A request in flight: what it asks for, its plan, and the seconds that its life took so far."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any, NamedTuple

from sim.core.culprit import caller
from sim.core.errors import SimulationError

MISSING = -1

COMPLETED, DISCARDED, FAILED = 1, 2, 3
OUTCOMES = ("", "completed", "discarded", "failed")
"""The three ways for a request to end, by code; 0 is a request that has not ended."""

MISS, HIT, EMPTY, STALE, PREDICTED_MISS, FORGONE_MATCH, NO_DATABASE, NO_STORE = range(1, 9)
LOOKUPS = ("", "miss", "hit", "empty", "stale", "predicted miss", "forgone match", "no database", "no store")
"""What came of asking a cache, by code; 0 is a request that asked none.

A search found nothing that is similar enough (miss), an artifact to start from (hit), an entry of which no state
that may be used is left (empty: holes), or one that is deleted and that the database still had (stale). A request
was predicted to find nothing, rightly, or though a search would have found a match (forgone match). The database
or the store was out of service. All but a hit are generated in full.
"""


class Addons(NamedTuple):
    """Add-ons by name, in the order in which they are applied."""

    controlnets: tuple[str, ...] = ()
    loras: tuple[str, ...] = ()


NO_ADDONS = Addons()


@dataclass(slots=True, eq=False, init=False)
class Request:
    """One row of the trace on its way through the system. All times are in seconds of simulated time.

    What only some part knows of a request is no attribute here but a fact that the part declares (Run.add_column).

    Attributes:
        row: counted from the head of the trace, rows that only fill a cache included; so is ``source``.
        deadline_s: when its image should be there: the first of the run's SLO limits after its arrival.
        addons: the ControlNets and LoRAs that it asks for; None where it asks for none.
        remote_controlnets: whether its ControlNets run on GPUs of their own, and not in its worker's loop.
        loras_pending: whether it steps without its LoRAs, which have not come yet.
        swapped_bytes: bytes of its ControlNets that are not on its worker, and take turns there.
        model: what will run it; None: the artifact itself is the answer and no GPU runs.
        planned: the model of the plan (Run.assign); ``model`` must equal it when the request ends.
        k, of_steps: steps that may be skipped, as the selector's table has it; ``skipped`` is the same share of this
            request's own ``steps``.
        steps_left: steps that are still to be run; an executor that works step by step counts them down.
        source: the row whose artifact is used, or MISSING, with its age and its ``similarity``.
        lookup: what came of asking a cache (LOOKUPS).
        worker: the worker that it was handed to; MISSING while it waits.
        start_s: when a GPU began with it.
        load_s, fetch_s: seconds on the GPU that its model and its artifact took to come.
        denoise_s: seconds between its first and its last step, with whomever it shared them.
        decode_s: all other seconds on the GPU: text encoder, VAE, post-processing.
        energy_j: its share of the joules that its GPU drew.
        capture, artifact, made: of a live backend: what must be kept on the way, what it starts from, what was made.
    """

    row: int
    arrival_s: float
    width: int
    height: int
    steps: int
    deadline_s: float
    model: str | None
    planned: str | None
    k: int
    of_steps: int
    skipped: int
    steps_left: int
    source: int
    source_age_s: float
    similarity: float
    refine: bool
    lookup: int
    search_s: float
    fetch_s: float
    start_s: float
    load_s: float
    denoise_s: float
    decode_s: float
    energy_j: float
    worker: int
    addons: Addons | None
    remote_controlnets: bool
    loras_pending: bool
    swapped_bytes: int
    capture: Mapping[int, int] | None
    artifact: Any
    made: Any

    def __init__(
        self, row: int, arrival_s: float, width: int, height: int, steps: int, deadline_s: float = inf
    ) -> None:
        # Written out: one is made for every request, and what begins empty is no argument.
        self.row = row
        self.arrival_s = arrival_s
        self.width = width
        self.height = height
        self.steps = steps
        self.deadline_s = deadline_s
        self.model = None
        self.planned = None
        self.k = 0
        self.of_steps = 1
        self.skipped = 0
        self.steps_left = 0
        self.source = MISSING
        self.source_age_s = nan
        self.similarity = nan
        self.refine = False
        self.lookup = 0
        self.search_s = 0.0
        self.fetch_s = 0.0
        self.start_s = 0.0
        self.load_s = 0.0
        self.denoise_s = 0.0
        self.decode_s = 0.0
        self.energy_j = 0.0
        self.worker = MISSING
        self.addons = None
        self.remote_controlnets = False
        self.loras_pending = False
        self.swapped_bytes = 0
        self.capture = None
        self.artifact = None
        self.made = None

    @property
    def hit(self) -> bool:
        """Whether an artifact is reused."""
        return self.source != MISSING


PLAN = (
    *("row", "arrival_s", "width", "height", "steps", "deadline_s", "model", "planned", "k", "of_steps", "skipped"),
    *("source", "source_age_s", "similarity", "refine", "lookup", "search_s", "fetch_s"),
)
"""Attributes that nothing may change after the front end; Run.assign alone plans anew."""


class Guarded(Request):
    """A request that refuses a change of its plan, and names the caller: the first requests of a run, since Python
    reads a property in several times the time of a slot. The plans of all are compared when the run ends."""

    __slots__ = ()


def _guard(name: str) -> property:
    slot = getattr(Request, name)

    def change(request: Request, value: Any) -> None:
        planned = slot.__get__(request)
        if sys._getframe(1).f_globals["__name__"] != "sim.engine" and value is not planned and value != planned:
            raise SimulationError(
                f"{caller()} changed {name} of the request in row {request.row} from {planned!r} to {value!r}; the "
                "front end plans a request, and after it only Run.assign does"
            )
        slot.__set__(request, value)

    return property(slot.__get__, change)


for _name in PLAN:
    setattr(Guarded, _name, _guard(_name))
