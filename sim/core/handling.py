"""Handling: the seconds of a request that need no GPU, before and after the GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzotint.backends.base import size_text
from mezzotint.settings.assumption import Assumption
from mezzotint.sim.core.request import Request


@dataclass(frozen=True, slots=True)
class Handling:
    """Seconds of a request that need no GPU: HTTP, encoding of the answer, hand-over to a client that polls.

    They have the same meaning with every executor. A discarded or failed request has none after the GPU.

    Args:
        before_s: seconds from the arrival until the front end is done at the earliest; they add to its own. The
            deadline counts from the arrival.
        after_s: seconds from the image to the answer, which is the end of the request.
        overlap: True if the GPUs serve the next request meanwhile. False holds them: they draw idle power and are not
            busy. A worker with a batch holds it for the longest of a static batch, and for each request of a continuous
            batch, whose other requests wait.
        by_size: WIDTHxHEIGHT, of a video WIDTHxHEIGHTxFRAMES -> the seconds of that size, in place of ``after_s``.

    Attributes:
        has_after: True if some request may have seconds after the GPU.
        holds_gpus: True if GPUs wait for answers.
    """

    before_s: float = 0.0
    after_s: float = 0.0
    overlap: bool = True
    by_size: Mapping[str, float] = field(default_factory=dict)
    has_after: bool = field(init=False)
    holds_gpus: bool = field(init=False)

    def __post_init__(self) -> None:
        has_after = self.after_s > 0 or any(self.by_size.values())
        object.__setattr__(self, "has_after", has_after)
        object.__setattr__(self, "holds_gpus", has_after and not self.overlap)

    def answer_s(self, request: Request) -> float:
        """Return the seconds from the image of ``request`` to its answer."""
        if not self.by_size:
            return self.after_s
        return self.by_size.get(size_text(request.width, request.height, request.frames), self.after_s)

    def assumptions(self) -> list[Assumption]:
        """Return what was set."""
        assumptions = []
        if self.before_s:
            assumptions.append(Assumption("seconds before the GPU on none", self.before_s, "handling.before_s"))
        if self.has_after:
            after = {**self.by_size, "others": self.after_s} if self.by_size else self.after_s
            assumptions.append(
                Assumption("seconds from the image to the answer", after, "handling.after_s and by_size")
            )
            gpus = "serve others" if self.overlap else "are held, idle"
            assumptions.append(Assumption("GPUs from the image to the answer", gpus, "handling.overlap"))
        return assumptions


NO_HANDLING = Handling()
