"""Bound of what is in flight at once, and the queue of what waits for it at the client."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mezzotint.sim.core.clock import ARRIVAL, Clock


@dataclass(slots=True)
class InFlight:
    """At most ``limit`` rows of the trace in flight at once; others wait at the client, first come first served.

    Args:
        limit: None is no bound.
        begin: sends the first request of a row.
    """

    clock: Clock
    limit: int | None
    begin: Callable[[int], None]
    count: int = field(init=False, default=0)
    held: "deque[int]" = field(init=False, default_factory=deque)

    @property
    def is_full(self) -> bool:
        """True if one more would have to wait, behind those that wait already."""
        return self.limit is not None and (bool(self.held) or self.count >= self.limit)

    def add(self, row: int) -> None:
        """Begin ``row``, or hold it back."""
        if self.is_full:
            self.held.append(row)
        else:
            self._begin(row)

    def remove(self) -> None:
        """Take note that a row ended: another one may begin."""
        self.count -= 1
        if self.held:
            # As an arrival: after all ends of the instant.
            self.clock.at(self.clock._now, ARRIVAL, self._release)

    def _begin(self, row: int) -> None:
        self.count += 1
        self.begin(row)

    def _release(self, _: None) -> None:
        assert self.limit is not None
        if self.held and self.count < self.limit:
            self._begin(self.held.popleft())
