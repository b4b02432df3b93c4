"""Servers: what a start of a server process costs, and the first request of each shape after it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from mezzotint.backends.base import Cost, ServerStart, size_text
from mezzotint.settings.assumption import Assumption

Size = tuple[int, int, int]
"""Width, height and frames."""


@dataclass(frozen=True, slots=True)
class Server:
    """The seconds that a start of a server process costs, and the first request of each shape after it.

    A process starts when a GPU is back after a failure, at once after a crash, when a controller orders an instance,
    and, if ``begin`` is ``cold``, at 0 s. A change of the model is no start. A shape is a model with width, height and
    frames; neither the requests of a batch nor the GPUs of a group count.

    Args:
        compile: extra seconds of the first request of a shape since the start: those of the ``profile``, or the same
            number for every shape; ``off`` charges none.
        begin: the servers when the clock starts: ``warm`` have compiled every shape. ``ready`` take requests and have
            compiled ``warm_up`` alone. ``cold`` start at 0 s.
        warm_up: sizes that a start compiles before the server takes requests.
        ready_s: seconds from the start of the process until it takes requests, with the load of its model and without
            ``warm_up``; None takes those of the profile.
        crashes: True if servers crash in this run (``failures=crashes``).
    """

    compile: Literal["profile", "off"] | float = "profile"
    begin: Literal["warm", "ready", "cold"] = "warm"
    warm_up: tuple[Size, ...] = ()
    ready_s: float | None = None
    crashes: bool = False

    @property
    def is_asked(self) -> bool:
        """True if the run asks what a start or a first request costs, so that it lists what nobody measured."""
        asks = self.begin != "warm" or self.warm_up or self.ready_s is not None or self.crashes
        return bool(asks) or not isinstance(self.compile, str)

    def is_known(self, start: ServerStart) -> bool:
        """Return True if the first request of some shape is charged on a server like ``start``."""
        return start.knows_compile if self.compile == "profile" else self.compile != "off"

    def first_s(self, start: ServerStart, size: Size) -> float | None:
        """Return the extra seconds of the first request of ``size`` on a server like ``start``; None if unknown."""
        if self.compile == "profile":
            return start.first_s(size)
        return 0.0 if self.compile == "off" else float(self.compile)

    def loading(self, start: ServerStart, load: Cost) -> tuple[float, Cost]:
        """Return the seconds from the start of a process like ``start`` until its model loads, and that load."""
        ready_s = start.ready_s if self.ready_s is None else self.ready_s
        if ready_s is None:
            return 0.0, load
        # The whole was measured: a load of other seconds does not make it longer
        # (test_measured_start_includes_the_load).
        if load.seconds > ready_s:
            load = load.times(ready_s / load.seconds)
        return ready_s - load.seconds, load

    def assumptions(self) -> Iterator[Assumption]:
        """Yield what was set."""
        if self.begin != "warm":
            yield Assumption("servers when the clock starts", self.begin, "server.begin")
        if self.warm_up:
            sizes = [size_text(*size) for size in self.warm_up]
            yield Assumption("sizes that a start of a server compiles", sizes, "server.warm_up")
        if self.ready_s is not None:
            yield Assumption(
                "seconds from the start of a server until it takes requests", self.ready_s, "server.ready_s"
            )
        if not isinstance(self.compile, str):
            yield Assumption("extra seconds of the first request of a shape", self.compile, "server.compile")

    def of_profile(self, model: str, gpu: str, start: ServerStart) -> Iterator[Assumption]:
        """Yield what is taken from the profile of ``model`` on ``gpu``, and what it lacks."""
        if self.ready_s is None:
            what = f"seconds from the start of a server of {model} on {gpu} until it takes requests"
            if start.ready_s is not None:
                yield Assumption(what, start.ready_s, start.ready_source or "")
            elif self.is_asked:
                yield Assumption(what, "those of its load", "not charged: its profile has no `ready`")
        if self.compile == "profile":
            what = f"extra seconds of the first request of a shape of {model} on {gpu}"
            if start.knows_compile:
                seconds: dict[str, Any] = {size_text(*size): known_s for size, known_s in start.compile_s.items()}
                if start.other_compile_s is not None:
                    seconds["others"] = start.other_compile_s
                yield Assumption(what, seconds, start.compile_source or "")
            elif self.is_asked:
                yield Assumption(what, 0, "not charged: its profile has no `compile`")


WARM_SERVER = Server()
