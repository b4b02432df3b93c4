"""A request in flight: the trace row's request, its plan, and its times so far."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from mezzotint.sim.core.culprit import caller, innermost_kind, is_ours
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.plan import MISSING, UNPLANNED, Plan, difference
from mezzotint.sim.core.sampling import Sampling

COMPLETED, DISCARDED, FAILED = 1, 2, 3
OUTCOMES = ("", "completed", "discarded", "failed")
"""The outcomes of a request by code; 0 is a request that has not ended."""


class Addons(NamedTuple):
    """Add-ons by name, in the order in which they are applied."""

    controlnets: tuple[str, ...] = ()
    loras: tuple[str, ...] = ()


NO_ADDONS = Addons()


GIVEN_UP = "its client had given it up"
"""Reason of an executor that stops a request; the record has that of the client."""


@dataclass(slots=True, eq=False, init=False)
class Request:
    """One request of the trace on its way through the system.

    Instants are seconds of simulated time, durations are seconds. What a single part records of a request is a request
    column (Run.add_column), not an attribute.

    Attributes, from the trace:
        row: its number from the head of the trace, counting rows that only fill a cache.
        arrival_s: instant of arrival.
        width, height: size in pixels.
        frames: frames of a video; 1 is an image.
        steps: denoising steps N.
        deadline_s: instant of its deadline: its own, else the first of the run's SLO limits; infinite without one.
        sampling: its other sampling parameters; None without any that change its cost.
        addons: its ControlNets and LoRAs; None without any.

    Attributes, the plan (Run.assign writes them):
        plan: what the front end decided; immutable.
        model: name of the plan's model; None if the artifact itself is the answer and no GPU runs.
        skipped: steps that the plan skips; it runs ``steps - skipped``.

    Attributes, execution:
        steps_left: steps still to run; continuous batching counts them down.
        worker: number of its worker (Worker.id); MISSING while it waits. The engine sets it.
        start_s: instant at which a GPU started on it.
        load_s: duration of loading its model and add-ons.
        denoise_s: duration from its first to its last step, shared with others or not.
        decode_s: all other time on the GPU: text encoder, VAE, post-processing.
        energy_j: its share of the joules that its GPUs drew.
        remote_controlnets: True if its ControlNets run on GPUs of their own.
        loras_pending: True if it steps without its LoRAs, which are still being fetched.
        swapped_bytes: bytes of its ControlNets that do not fit on its worker and take turns there.
        capture, artifact, made: a live backend's steps to keep latents of, start state, and result.
    """

    row: int
    arrival_s: float
    width: int
    height: int
    steps: int
    frames: int
    deadline_s: float
    plan: Plan
    model: str | None
    skipped: int
    steps_left: int
    start_s: float
    load_s: float
    denoise_s: float
    decode_s: float
    energy_j: float
    worker: int
    addons: Addons | None
    sampling: Sampling | None
    remote_controlnets: bool
    loras_pending: bool
    swapped_bytes: int
    capture: Mapping[int, int] | None
    artifact: Any
    made: Any

    def __init__(
        self,
        row: int,
        arrival_s: float,
        width: int,
        height: int,
        steps: int,
        deadline_s: float = inf,
        frames: int = 1,
        sampling: Sampling | None = None,
    ) -> None:
        # Written out, since a dataclass with many arguments is slower to make.
        self.row = row
        self.arrival_s = arrival_s
        self.width = width
        self.height = height
        self.steps = steps
        self.frames = frames
        self.sampling = sampling
        self.deadline_s = deadline_s
        self.plan = UNPLANNED
        self.model = None
        self.skipped = 0
        self.steps_left = 0
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
    def loras_now(self) -> tuple[str, ...]:
        """LoRAs of the request that are in the weights by now."""
        return () if self.addons is None or self.loras_pending else self.addons.loras

    def forget_execution(self) -> None:
        """Forget the times and the energy of its execution so far: it is run anew."""
        self.start_s = self.load_s = self.denoise_s = self.decode_s = self.energy_j = 0.0

    @property
    def pixels(self) -> int:
        """Pixels of all its images, of a video of all frames."""
        pixels = self.width * self.height * self.frames
        return pixels if self.sampling is None else pixels * self.sampling.images

    @property
    def hit(self) -> bool:
        """True if an artifact is reused."""
        return self.plan.source != MISSING


class HashedRequest(Request):
    """A request that hashes by its row, so that a set in a class from outside the package has one order in all runs."""

    __slots__ = ()

    def __hash__(self) -> int:
        return self.row


def hashed_by_row(request: Request) -> Request:
    """Make ``request`` hash by its row, before a set or dictionary holds it; return it."""
    request.__class__ = HashedRequest
    return request


PLAN = (
    *("row", "arrival_s", "width", "height", "frames", "steps", "deadline_s", "sampling"),
    *("addons", "plan", "model", "skipped"),
)
"""Attributes that only the front end and Run.assign may write."""

EXECUTION = (
    *("start_s", "load_s", "denoise_s", "decode_s", "energy_j"),
    *("remote_controlnets", "loras_pending", "swapped_bytes", "made"),
)
"""Attributes that only the executor may write."""


def guarded_class(parts: Mapping[str, object]) -> type[Request]:
    """Return the class of requests that refuse changes of their plan and their times, and name the caller.

    A property is several times slower than a slot, so requests are guarded where a class from outside the package sees
    them; what our own do is held by their tests.

    Args:
        parts: the parts of the run by kind.
    """

    def may_plan() -> bool:
        return bool(sys._getframe(2).f_globals["__name__"] == "mezzotint.sim.engine")

    def may_execute() -> bool:
        return is_ours(sys._getframe(2).f_globals["__name__"]) or innermost_kind(parts) in ("executor", "backend")

    guards = {
        name: _guard(name, may_plan, "the front end plans a request, and after it only Run.assign does")
        for name in PLAN
    }
    guards |= {name: _guard(name, may_execute, "only an executor writes it") for name in EXECUTION}
    return type("GuardedRequest", (HashedRequest,), {"__slots__": (), **guards})


def _guard(name: str, may_write: Callable[[], bool], law: str) -> property:
    slot = getattr(Request, name)

    def change(request: Request, value: Any) -> None:
        known = slot.__get__(request)
        if value is not known and not may_write() and value != known:
            what = difference(known, value) if isinstance(value, Plan) else (name, known, value)
            raise SimulationError(
                f"{caller()} changed {what[0]} of the request in row {request.row} from {what[1]!r} to {what[2]!r}; "
                f"{law}"
            )
        slot.__set__(request, value)

    return property(slot.__get__, change)
