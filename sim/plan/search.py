"""Searches over simulations: for the smallest cluster of one design, and bisection between two ends.

More GPUs never lengthen a wait in a queue that is served first come, first served, so bisection finds the smallest
cluster. Controllers, caches and batches may break that. The search therefore also runs the next larger cluster, and if
that one misses the targets, it goes on above it and says so.
"""

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.special import stdtrit

from mezzotint.sim.report.compare import Spread

K = TypeVar("K")
N = TypeVar("N", int, float)

CONFIDENCE = 0.95

CLEAR_MISS, CLEAR_HIT = 3.0, 0.5
"""A number over its bound from which on, or up to which in a light cluster, a single replication decides."""

LIGHT = 0.8
"""Share of the time that the GPUs of a light cluster are busy at most; queues of others vary much between seeds."""

IDLE_WAIT = 0.01
"""Share of the latency below which waiting does not matter: more GPUs then change nothing."""


def interval(values: Sequence[float]) -> Spread:
    """Return the mean of independent values with its Student's t interval; a single value has width 0."""
    mean, count, half = float(np.mean(values)), len(values), 0.0
    if count > 1:
        half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2) * np.std(values, ddof=1) / math.sqrt(count))
    return Spread(mean, mean - half, mean + half, count)


def paired_difference(values: Sequence[float | None], others: Sequence[float | None]) -> Spread | None:
    """Return the mean of ``values`` less ``others``, pair by pair, with its Student's t interval.

    Replications of one seed have the same requests and arrivals in every design (common random numbers), so what they
    have in common cancels. None without two pairs, or with a null in one.

    Args:
        values, others: by replication, in one order; what only one of them has does not count.
    """
    pairs = list(zip(values, others, strict=False))
    differences = [value - other for value, other in pairs if value is not None and other is not None]
    return interval(differences) if len(differences) == len(pairs) > 1 else None


def bisect(
    brackets: Mapping[K, tuple[N, N]],
    middle: Callable[[N, N], N | None],
    hold: Callable[[list[tuple[K, N]]], list[bool]],
) -> dict[K, tuple[N, N]]:
    """Narrow brackets whose lower ends hold and whose upper ends do not, side by side.

    Args:
        middle: a value between two ends; None once they are close enough.
        hold: for each (bracket, value) of a round, True if it holds.
    """
    ends = dict(brackets)
    while tried := [(key, at) for key, (low, high) in ends.items() if (at := middle(low, high)) is not None]:
        for (key, at), holds in zip(tried, hold(tried), strict=True):
            low, high = ends[key]
            ends[key] = (at, high) if holds else (low, at)
    return ends


class Trial(NamedTuple):
    """A run to make: the number of GPUs and the replication."""

    gpus: int
    replication: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial.

    Attributes:
        ratios: by target, the number over its bound; above 1 misses it.
        grows: True if the run is overloaded, so that latencies depend on the length of the trace.
        gpus_needed: number of GPUs at which the cluster would be busy all the time, from this run.
        waits: mean wait in the queue over the mean latency.
        is_light: True if the GPUs are busy for at most `LIGHT` of the time.
    """

    ratios: tuple[float, ...]
    grows: bool
    gpus_needed: float
    waits: float
    is_light: bool = False


Steps = Generator[list[Trial], Mapping[Trial, Outcome], None]
"""Yields the trials that it needs next, and is sent their outcomes."""


def run_searches(
    searches: Mapping[K, Steps],
    measure: Callable[[list[tuple[K, Trial]]], list[Outcome]],
    stop: Callable[[Collection[K]], Collection[K]] = lambda _: (),
) -> None:
    """Run searches side by side, so that their trials fill the processes.

    Args:
        measure: returns the outcome of each trial of a round.
        stop: called before each round with the searches that go on; returns those to give up.
    """
    trials = {key: next(search) for key, search in searches.items()}
    while True:
        for key in stop(list(trials)):
            del trials[key]
        asked = [(key, trial) for key, wanted in trials.items() for trial in wanted]
        if not asked:
            return
        outcomes = dict(zip(asked, measure(asked), strict=True))
        for key, wanted in list(trials.items()):
            try:
                trials[key] = searches[key].send({trial: outcomes[key, trial] for trial in wanted})
            except StopIteration:
                del trials[key]


@dataclass(slots=True)
class Replications:
    """The replications of one cluster, and what they say together.

    Attributes:
        meets: True if the targets are met with 95 % confidence, False if not; None while it is open.
        is_undecided: True if the largest number of replications did not decide; it then counts as not met.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    meets: bool | None = None
    is_undecided: bool = False

    def judge(self, gpus: int, max_seeds: int) -> Steps:
        """Run a cluster of ``gpus`` GPUs until ``meets`` is known."""
        while self.meets is None:
            trial = Trial(gpus, len(self.outcomes))
            outcomes = yield [trial]
            self.outcomes.append(outcomes[trial])
            self.decide(max_seeds)

    def decide(self, max_seeds: int) -> None:
        """Set ``meets`` from the outcomes so far.

        An overloaded run misses at once, and so does a single replication with a ratio above `CLEAR_MISS`. One with
        ratios below `CLEAR_HIT` meets the targets if the cluster is light. Else the 95 % interval (Student) of the mean
        ratio of every target must lie below 1; one that lies above it misses.
        """
        if any(outcome.grows or math.inf in outcome.ratios for outcome in self.outcomes):
            self.meets = False
            return
        if len(self.outcomes) == 1 < max_seeds:
            (outcome,) = self.outcomes
            if max(outcome.ratios) > CLEAR_MISS:
                self.meets = False
            elif outcome.is_light and max(outcome.ratios) <= CLEAR_HIT:
                self.meets = True
            return
        spreads = [interval(ratios) for ratios in zip(*(outcome.ratios for outcome in self.outcomes), strict=True)]
        if all(spread.high <= 1 for spread in spreads):
            self.meets = True
        elif any(spread.low > 1 for spread in spreads):
            self.meets = False
        elif len(self.outcomes) >= max_seeds:
            self.meets, self.is_undecided = False, True


@dataclass(slots=True)
class ClusterSearch:
    """The search for the smallest cluster that meets the targets, and its result once it has ended.

    A caller may give the search up once ``low`` rules it out.

    Attributes:
        max_seeds: replications at most of one cluster; a cluster that they leave open counts as one that misses.
        step: numbers of GPUs are multiples of it, where so many form a group.
        start: number of GPUs of the first trial.
        low: fewest GPUs that may still meet the targets; all below it are ruled out.
        gpus: the smallest cluster that meets them; None if none was found.
        known: every cluster that was judged, by its number of GPUs.
        not_monotone: numbers of GPUs that miss the targets above one that meets them.
        is_floor: True if the largest cluster that ran hardly waits and misses: more GPUs cannot help.
    """

    max_gpus: int
    max_seeds: int
    step: int = 1
    start: int = 1
    low: int = 0
    gpus: int | None = None
    known: dict[int, Replications] = field(default_factory=dict)
    not_monotone: list[int] = field(default_factory=list)
    is_floor: bool = False

    def __post_init__(self) -> None:
        self.max_gpus -= self.max_gpus % self.step
        self.start = min(max(self._whole(self.start), self.step), self.max_gpus)
        self.low = self.step

    @property
    def met(self) -> int | None:
        """The smallest cluster that is known to meet the targets, before or after the search has ended."""
        return min((gpus for gpus, replications in self.known.items() if replications.meets), default=None)

    @property
    def runs_left(self) -> int:
        """An estimate of the runs that the search still takes."""
        top = self.met or max(4 * self.low, 8 * self.step)
        return 2 * math.ceil(math.log2(max((top - self.low) / self.step + 1, 1)) + 1)

    def _whole(self, gpus: float) -> int:
        """Return the smallest multiple of ``step`` from ``gpus`` on."""
        return math.ceil(gpus / self.step) * self.step

    def steps(self) -> Steps:
        """Find the smallest cluster, and make sure that the next larger one meets the targets, too."""
        while self.low <= self.max_gpus:
            self.gpus = yield from self._smallest()
            if self.gpus is None or self.gpus == self.max_gpus:
                return
            above = yield from self._judge(self.gpus + self.step)
            if above.meets or above.is_undecided:
                return
            self.not_monotone.append(self.gpus + self.step)
            self.low, self.gpus = self.gpus + 2 * self.step, None

    def _judge(self, gpus: int) -> Generator[list[Trial], Mapping[Trial, Outcome], Replications]:
        replications = self.known.setdefault(gpus, Replications())
        yield from replications.judge(gpus, self.max_seeds)
        return replications

    def _smallest(self) -> Generator[list[Trial], Mapping[Trial, Outcome], int | None]:
        """Return the smallest cluster that meets the targets, if they are met from some size on; None without one."""
        high: int | None = None
        count, step = max(self.start, self.low), self.step
        while high is None or self.low < high:
            replications = yield from self._judge(count)
            outcomes = replications.outcomes
            needed = self._whole(min(max(outcome.gpus_needed for outcome in outcomes), self.max_gpus))
            if replications.meets:
                high = count
            elif not any(outcome.grows for outcome in outcomes) and max(each.waits for each in outcomes) < IDLE_WAIT:
                self.is_floor = True
                return None
            else:
                self.low = count + self.step
            if high is not None:  # the work of a run says where the answer is, better than the middle does
                middle = (self.low + high - self.step) // (2 * self.step) * self.step
                count = needed if self.low < needed < high else max(middle, self.low)
            elif self.low > self.max_gpus:
                return None
            else:
                count = min(self.max_gpus, max(count + step, needed))
                step *= 2
        return high
