"""Search for the smallest cluster of one design that meets the targets: bisection over the number of GPUs.

More GPUs never lengthen a wait in a queue that is served first come, first served, so bisection finds the smallest
cluster. Controllers, caches and batches may break that. The search therefore also runs the next larger cluster, and if
that one misses the targets, it goes on above it and says so.
"""

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mezzotint.sim.plan.capacity.search import interval

T = TypeVar("T")

FIRST_SEEDS = 2
"""Replications with which the judgement of a cluster begins."""

IDLE_WAIT = 0.01
"""Share of the latency below which waiting does not matter: more GPUs then change nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of a cluster.

    Attributes:
        ratios: by target, the number over its bound; above 1 misses it.
        grows: True if the backlog grows, so that latencies depend on the length of the trace.
        needed: number of GPUs at which the cluster would be busy all the time, from this run.
        waits: mean wait in the queue over the mean latency.
    """

    ratios: tuple[float, ...]
    grows: bool
    needed: float
    waits: float


@dataclass(frozen=True, slots=True)
class Ask:
    """A run to make: the number of GPUs and the replication."""

    gpus: int
    replication: int


@dataclass(slots=True)
class Judgement:
    """The replications of one cluster, and what they say together.

    Attributes:
        outcomes: by replication.
        meets: True if the targets are met with 95 % confidence, False if not; None while it is open.
        is_open: True if the largest number of replications did not decide; it then counts as not met.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    meets: bool | None = None
    is_open: bool = False

    def asks(self, gpus: int, max_seeds: int) -> list[Ask]:
        """Return the runs of ``gpus`` GPUs that the judgement needs next; empty once it is made."""
        if self.meets is not None:
            return []
        made = len(self.outcomes)
        more = min(FIRST_SEEDS, max_seeds) if made < FIRST_SEEDS else 1
        return [Ask(gpus, each) for each in range(made, made + more)]

    def decide(self, max_seeds: int) -> None:
        """Set ``meets`` from the outcomes so far.

        A backlog that grows misses at once. Else the 95 % interval (Student) of the mean ratio of every target must lie
        below 1; one that lies above it misses.
        """
        if any(outcome.grows or math.inf in outcome.ratios for outcome in self.outcomes):
            self.meets = False
            return
        if len(self.outcomes) < min(FIRST_SEEDS, max_seeds):
            return
        spreads = [interval(ratios) for ratios in zip(*(each.ratios for each in self.outcomes), strict=True)]
        if all(spread.high <= 1 for spread in spreads):
            self.meets = True
        elif any(spread.low > 1 for spread in spreads):
            self.meets = False
        elif len(self.outcomes) >= max_seeds:
            self.meets, self.is_open = False, True


@dataclass(slots=True)
class Found:
    """The state of a search, and its result once it has ended.

    Attributes:
        low: fewest GPUs that may still meet the targets; all below it are ruled out.
        gpus: the smallest cluster that meets them; None if none was found.
        known: every cluster that was judged, by its number of GPUs.
        not_monotone: numbers of GPUs that miss the targets above one that meets them.
        is_floor: True if the largest cluster that ran hardly waits and misses: more GPUs cannot help.
    """

    low: int
    gpus: int | None = None
    known: dict[int, Judgement] = field(default_factory=dict)
    not_monotone: list[int] = field(default_factory=list)
    is_floor: bool = False

    @property
    def met(self) -> int | None:
        """The smallest cluster that is known to meet the targets, before or after the search has ended."""
        return min((gpus for gpus, judgement in self.known.items() if judgement.meets), default=None)

    def judgement(self, gpus: int) -> Judgement:
        """Return the judgement of a cluster, which may have just begun."""
        return self.known.setdefault(gpus, Judgement())


Steps = Generator[list[Ask], Mapping[Ask, Outcome], T]
"""Yields the runs that it needs next, and is sent their outcomes."""


def smallest(found: Found, max_gpus: int, max_seeds: int) -> Steps[None]:
    """Find the smallest cluster of ``found.low`` to ``max_gpus`` GPUs that meets the targets, and write ``found``.

    ``found`` always tells the state, so that a caller may stop the search once ``found.low`` rules it out.

    Args:
        max_seeds: replications at most of one cluster; a cluster that they leave open counts as one that misses.
    """
    while found.low <= max_gpus:
        found.gpus = yield from _bisected(found, max_gpus, max_seeds)
        if found.gpus is None or found.gpus == max_gpus:
            return
        above = yield from judged(found.judgement(found.gpus + 1), found.gpus + 1, max_seeds)
        if above.meets or above.is_open:
            return
        found.not_monotone.append(found.gpus + 1)
        found.low, found.gpus = found.gpus + 2, None


def run_search(search: Steps[T], outcomes: Callable[[list[Ask]], Mapping[Ask, Outcome]]) -> T:
    """Run ``search`` to its end, and return its result."""
    try:
        asks = next(search)
        while True:
            asks = search.send(outcomes(asks))
    except StopIteration as end:
        found: T = end.value
        return found


def judged(judgement: Judgement, gpus: int, max_seeds: int) -> Steps[Judgement]:
    """Run a cluster until its judgement is made, and return that."""
    while asks := judgement.asks(gpus, max_seeds):
        outcomes = yield asks
        judgement.outcomes.extend(outcomes[ask] for ask in asks)
        judgement.decide(max_seeds)
    return judgement


def _bisected(found: Found, max_gpus: int, max_seeds: int) -> Steps[int | None]:
    """Return the smallest cluster that meets the targets, if they are met from some size on; None without one."""
    high: int | None = None
    count, step = found.low, 1
    while high is None or found.low < high:
        judgement = yield from judged(found.judgement(count), count, max_seeds)
        outcomes = judgement.outcomes
        needed = math.ceil(min(max(each.needed for each in outcomes), max_gpus))
        if judgement.meets:
            high = count
        elif not any(each.grows for each in outcomes) and max(each.waits for each in outcomes) < IDLE_WAIT:
            found.is_floor = True
            return None
        else:
            found.low = count + 1
        if high is not None:
            count = needed if found.low < needed < high else (found.low + high - 1) // 2
        elif found.low > max_gpus:
            return None
        else:
            count = min(max_gpus, max(count + step, needed))
            step *= 2
    return high
