"""Plan a deployment: search every candidate, rank those that meet the targets, and measure their headroom."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mezzotint.sim.metrics.summary_keys import number_at
from mezzotint.sim.plan.clusters.candidates import Candidate
from mezzotint.sim.plan.clusters.search import Ask, Found, Judgement, Outcome, Steps, judged, run_search, smallest
from mezzotint.sim.plan.clusters.target import Target
from mezzotint.sim.plan.clusters.trials import Summary, Trial, Trials

Key = TypeVar("Key")

SERVICE_ERROR = 1.03
"""Factor on the service time in the check of each answer: 3 %, the error of a good profile."""

LOADS = (1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 3.0, 4.0)
"""Factors on the load at which the headroom is looked for, by bisection among them."""

MORE_GPUS = 4
"""GPUs that are added at most to an answer in the check of its service time."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a plan: the load, the targets and the bounds of the search.

    Attributes:
        model: the model of an image in full.
        load: the requests and their rate, in words.
        targets: what the cluster must hold.
        seed, replications: the first seed, and the most replications of one cluster.
        max_gpus: largest cluster.
        rank: number of clusters to rank; dearer candidates are dropped as soon as that is certain.
        min_quality: lowest mean quality (carried from the papers, 1 is the large model's in full); None asks for none.
    """

    model: str
    load: str
    targets: tuple[Target, ...]
    seed: int
    replications: int
    max_gpus: int
    rank: int
    min_quality: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A cluster that ran: means over its replications; None where a summary has null.

    ``gpus`` are those of the kind that the plan looks for (`Candidate.gpu`).

    ``meets`` is None if the search did not have to judge it.
    """

    candidate: Candidate
    gpus: int
    meets: bool | None
    is_open: bool
    replications: int
    usd_per_h: float
    numbers: Mapping[str, float | None]

    @property
    def cluster(self) -> str:
        """The GPUs in words, such as ``2 x h100-sxm + 3 x l40s``."""
        return self.candidate.cluster(self.gpus)

    @property
    def devices(self) -> int:
        """The number of GPUs of all kinds."""
        return self.candidate.devices(self.gpus)


@dataclass(slots=True)
class Ranked:
    """A cluster that meets the targets.

    Attributes:
        headroom: factors on the load: the highest tried that it carries, and the lowest that it does not (None: all).
        gpus_if_slower: GPUs that meet the targets if the service takes 3 % longer; None if `MORE_GPUS` more do not.
        error: the largest known error of its models' service times; None if nobody states one.
        gpus_if_error: GPUs that meet the targets if the service takes longer by ``error``; None likewise.
        needed: GPUs, of all kinds, that its work would keep busy all the time: no cluster can be smaller.
        not_monotone: larger clusters that miss the targets.
    """

    measured: Measured
    needed: float
    not_monotone: tuple[int, ...]
    summary: Summary = field(repr=False)
    headroom: tuple[float, float | None] = (1.0, None)
    gpus_if_slower: int | None = None
    error: float | None = None
    gpus_if_error: int | None = None


@dataclass(frozen=True, slots=True)
class Unmet:
    """A candidate that is not ranked, and why.

    Attributes:
        kind: ``infeasible`` (no cluster in range meets the targets), ``dropped`` (dearer than those ranked, at least
            ``usd_per_h``), ``refused`` (it cannot run) or ``quality`` (below the floor, or unknown).
        best: the cluster that came closest to the targets.
    """

    candidate: Candidate
    kind: str
    reason: str
    usd_per_h: float | None = None
    best: Measured | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: ranked clusters, the candidates that are not, and every cluster that ran."""

    question: Question
    ranked: tuple[Ranked, ...]
    unmet: tuple[Unmet, ...]
    clusters: tuple[Measured, ...]
    notes: tuple[str, ...]
    runs: int


NUMBERS = {
    "mean_s": ("latency_s", "mean"),
    "p50_s": ("latency_s", "p50"),
    "p90_s": ("latency_s", "p90"),
    "p95_s": ("latency_s", "p95"),
    "p99_s": ("latency_s", "p99"),
    "throughput_rpm": ("throughput_rpm",),
    "usd_per_image": ("cost_usd", "per_image"),
    "energy_j_per_image": ("energy_j", "per_image"),
    "quality": ("quality", "factor_mean"),
    "hit_rate": ("cache", "hit_rate"),
    "busy_fraction": ("gpu", "busy_fraction"),
}
"""Numbers of a measured cluster, and where summary.json has them."""


def plan(
    question: Question,
    candidates: Sequence[Candidate],
    trials: Trials,
    notes: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Answer ``question`` over ``candidates``.

    Args:
        progress: called with an estimate of the runs that are left.
    """
    driver = _Driver(question, trials)
    unmet = driver.search(candidates, progress)
    ranked = driver.rank()
    for each in ranked:
        driver.check(each)
    return Plan(question, tuple(ranked), tuple(unmet), tuple(driver.clusters()), tuple(notes), driver.runs)


class _Driver:
    """Runs the searches of all candidates side by side, so that their runs fill the processes."""

    def __init__(self, question: Question, trials: Trials) -> None:
        self._question, self._trials = question, trials
        self._found: dict[Candidate, Found] = {}
        self._summaries: dict[tuple[Candidate, int], list[Summary]] = {}
        self._refused: dict[Candidate, list[str]] = {}
        self.runs = 0

    def search(self, candidates: Sequence[Candidate], progress: Callable[[int], None]) -> list[Unmet]:
        """Search every candidate, and return those that cannot be ranked."""
        question, unmet = self._question, []
        searches: dict[Candidate, Steps[None]] = {}
        asks: dict[Candidate, list[Ask]] = {}
        for each in candidates:
            found = self._found[each] = Found(1)
            searches[each] = smallest(found, question.max_gpus, question.replications)
            asks[each] = next(searches[each])
        while asks:
            progress(sum(self._left(self._found[each]) for each in asks))
            trials = {(each, ask): self._trial(each, ask) for each, some in asks.items() for ask in some}
            outcomes = self._outcomes(trials)
            for each in list(asks):
                try:
                    asks[each] = searches[each].send({ask: outcomes[each, ask] for ask in asks[each]})
                except StopIteration:
                    del asks[each]
            for each in list(asks):
                reason = self._ruled_out(each)
                if reason is not None:
                    unmet.append(reason)
                    del asks[each], self._found[each]
        unmet += [self._unmet(each) for each, found in self._found.items() if found.gpus is None]
        met = {each: found.gpus for each, found in self._found.items() if found.gpus is not None}
        for each, gpus in met.items():
            if below := self._below_floor(each, gpus):
                measured = self._measured(each, gpus)
                unmet.append(Unmet(each, "quality", below, measured.usd_per_h, measured))
                del self._found[each]
        return unmet

    def rank(self) -> list[Ranked]:
        """Return the cheapest clusters that meet the targets; of equal ones the faster first."""
        met = [self._ranked(each) for each, found in self._found.items() if found.gpus is not None]
        met.sort(key=lambda each: _order(each.measured))
        return met[: self._question.rank]

    def check(self, each: Ranked) -> None:
        """Find the headroom of a ranked cluster, and how many GPUs it needs if the service takes longer."""
        candidate, gpus = each.measured.candidate, each.measured.gpus
        low, high = 0, len(LOADS) + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._meets(candidate, gpus, load=LOADS[middle - 1]):
                low = middle
            else:
                high = middle
        each.headroom = (1.0 if low == 0 else LOADS[low - 1], None if high > len(LOADS) else LOADS[high - 1])
        each.gpus_if_slower = self._enough(candidate, gpus, SERVICE_ERROR)
        errors = [row["service_error"] for row in each.summary["models"] if row["service_error"] is not None]
        each.error = max(errors, default=None)
        if each.error is not None:
            each.gpus_if_error = self._enough(candidate, gpus, 1 + each.error)

    def _enough(self, candidate: Candidate, gpus: int, service: float) -> int | None:
        """Return the GPUs of all kinds, from ``gpus`` on, that meet the targets at ``service`` times the seconds."""
        sizes = range(gpus, gpus + MORE_GPUS + 1)
        enough = next((each for each in sizes if self._meets(candidate, each, service=service)), None)
        return None if enough is None else candidate.devices(enough)

    def clusters(self) -> list[Measured]:
        """Return every cluster that ran at the asked load, by candidate and number of GPUs."""
        return [
            self._measured(candidate, gpus)
            for candidate, gpus in sorted(self._summaries, key=lambda each: (each[0].name, each[1]))
        ]

    def _meets(self, candidate: Candidate, gpus: int, load: float = 1.0, service: float = 1.0) -> bool:
        def outcomes(asks: list[Ask]) -> dict[Ask, Outcome]:
            return self._outcomes({ask: self._trial(candidate, ask, load, service) for ask in asks})

        return run_search(judged(Judgement(), gpus, self._question.replications), outcomes).meets is True

    def _trial(self, candidate: Candidate, ask: Ask, load: float = 1.0, service: float = 1.0) -> Trial:
        return Trial(candidate, ask.gpus, self._question.seed + ask.replication, load, service)

    def _outcomes(self, trials: Mapping[Key, Trial]) -> dict[Key, Outcome]:
        summaries = self._trials.measure(list(trials.values()))
        self.runs += len(trials)
        outcomes = {}
        for key, trial in trials.items():
            summary = summaries[trial]
            if isinstance(summary, str):
                self._refused.setdefault(trial.candidate, []).append(summary)
                outcomes[key] = Outcome((math.inf,) * len(self._question.targets), False, trial.gpus + 1.0, 1.0)
                continue
            if trial.load == trial.service == 1.0:
                self._summaries.setdefault((trial.candidate, trial.gpus), []).append(summary)
            outcomes[key] = self._outcome(trial, summary)
        return outcomes

    def _outcome(self, trial: Trial, summary: Summary) -> Outcome:
        grows = summary["backlog"]["grows"] is True
        latency_s, queue_s = number_at(summary, "latency_s", "mean"), number_at(summary, "queue_s", "mean")
        return Outcome(
            tuple(target.ratio(summary) for target in self._question.targets),
            grows,
            needed(summary, trial.candidate.devices(trial.gpus)) - trial.candidate.devices(0),
            1.0 if not latency_s or queue_s is None else queue_s / latency_s,
        )

    def _left(self, found: Found) -> int:
        top = found.met or max(4 * found.low, 8)
        return 2 * math.ceil(math.log2(max(top - found.low + 1, 1)) + 1)

    def _usd_per_h(self, candidate: Candidate, gpus: int) -> float:
        """Return the US$ of an hour; of rented GPUs, those of the runs."""
        if not candidate.rents:
            return candidate.usd_per_h(gpus)
        hours = [
            60 * (number_at(each, "cost_usd", "per_image") or 0.0) * (number_at(each, "throughput_rpm") or 0.0)
            for each in self._summaries[candidate, gpus]
        ]
        return sum(hours) / len(hours)

    def _ruled_out(self, candidate: Candidate) -> Unmet | None:
        """Return why a search can stop: it cannot run, or enough others are cheaper than its lower bound."""
        refused = self._refused.get(candidate, [])
        if len(set(refused)) < len(refused) and len(refused) >= 4 and self._best(candidate) is None:
            return Unmet(candidate, "refused", refused[-1])
        found = self._found[candidate]
        costs = [
            self._usd_per_h(each, other.met)
            for each, other in self._found.items()
            if each is not candidate and other.met is not None and not self._below_floor(each, other.met)
        ]
        bound = 0.0 if candidate.rents else candidate.usd_per_h(found.low)
        if len(costs) < self._question.rank or bound <= sorted(costs)[self._question.rank - 1]:
            return None
        smallest = candidate.cluster(found.low)
        reason = f"{smallest}, the smallest that is not ruled out, costs more than the clusters that are ranked"
        return Unmet(candidate, "dropped", reason, bound, self._best(candidate))

    def _below_floor(self, candidate: Candidate, gpus: int) -> str:
        """Return why the quality of a cluster is not enough; empty if it is."""
        floor = self._question.min_quality
        if floor is None:
            return ""
        quality = self._measured(candidate, gpus).numbers["quality"]
        if quality is None:
            return "its quality is not known"
        return "" if quality >= floor else f"its quality of {quality:.3f} is below {floor:g}"

    def _unmet(self, candidate: Candidate) -> Unmet:
        found, best = self._found[candidate], self._best(candidate)
        if best is None:
            return Unmet(candidate, "refused", self._refused[candidate][-1])
        numbers, summaries = best.numbers, self._summaries[candidate, best.gpus]
        if binding := _unmeetable(self._question.targets, summaries[0], best):
            reason = binding
        elif other := next((each for each in self._question.targets if each.misses(summaries[0])), None):
            reason = f"{other.key} is {_text(other.value(summaries[0]))} on {best.cluster}, which misses {other.text}"
            reason += "; hardly a request waits, so more GPUs do not help" if found.is_floor else ""
        elif found.is_floor:
            reason = (
                f"the service itself binds: on {best.cluster} hardly a request waits, and p95 is "
                f"{_text(numbers['p95_s'])} s; more GPUs do not help"
            )
        elif any(each["backlog"]["grows"] for each in summaries):
            reason = f"capacity binds: the backlog grows on {best.cluster}, the most that were asked for"
        else:
            reason = f"waiting binds: {best.cluster}, the most that were asked for, miss the target"
        return Unmet(candidate, "infeasible", reason, None, best)

    def _best(self, candidate: Candidate) -> Measured | None:
        sizes = [gpus for each, gpus in self._summaries if each is candidate]
        return self._measured(candidate, max(sizes)) if sizes else None

    def _ranked(self, candidate: Candidate) -> Ranked:
        found = self._found[candidate]
        assert found.gpus is not None
        summaries = self._summaries[candidate, found.gpus]
        busy = sum(needed(each, candidate.devices(found.gpus)) for each in summaries) / len(summaries)
        return Ranked(self._measured(candidate, found.gpus), busy, tuple(found.not_monotone), summaries[0])

    def _measured(self, candidate: Candidate, gpus: int) -> Measured:
        summaries = self._summaries[candidate, gpus]
        found = self._found.get(candidate)
        judgement = None if found is None else found.known.get(gpus)
        numbers = {name: _mean([number_at(each, *keys) for each in summaries]) for name, keys in NUMBERS.items()}
        for target in self._question.targets:
            numbers[target.key] = _mean([target.value(each) for each in summaries])
        return Measured(
            candidate,
            gpus,
            None if judgement is None else judgement.meets,
            judgement is not None and judgement.is_open,
            len(summaries),
            self._usd_per_h(candidate, gpus),
            numbers,
        )


def _unmeetable(targets: Sequence[Target], summary: Summary, best: Measured) -> str:
    """Return why a run misses a target whatever waits: a number that it lacks, or its service; empty otherwise."""
    latency_s, queue_s = (number_at(summary, group, "mean") for group in ("latency_s", "queue_s"))
    for target in targets:
        if target.value(summary) is None:
            return f"{target.text} cannot be met: {target.key} is null, since it does not apply or nothing was measured"
        within_s = target.within_s(summary)
        if within_s is None or latency_s is None or queue_s is None:
            continue
        if latency_s - queue_s > within_s and target.ratio(summary) > 1:
            return (
                f"the service itself binds: an image takes {_text(latency_s - queue_s)} s on {best.cluster} without "
                f"a wait, and {target.text} leaves {_text(within_s)} s; more GPUs do not help"
            )
    return ""


def needed(summary: Summary, gpus: int) -> float:
    """Return the GPUs that the work of a run would keep busy all the time.

    While a backlog grows, the busy share says nothing of the load; then it is the GPUs times the rate of arrivals over
    that of the images.
    """
    if summary["backlog"]["grows"]:
        served = number_at(summary, "throughput_until_last_arrival_rpm")
        per_hour = number_at(summary, "backlog", "per_hour")
        if not served or per_hour is None:
            return gpus + 1.0
        return gpus * (1 + max(per_hour, 0.0) / (60 * served))
    busy = number_at(summary, "gpu", "busy_fraction")
    return float(gpus) if busy is None else gpus * busy


def front(clusters: Sequence[Measured], better: Callable[[Measured], float | None]) -> list[Measured]:
    """Return the Pareto front of cost against ``better`` (lower is better): no other cluster is better in both."""
    known = [(each.usd_per_h, value, each) for each in clusters if (value := better(each)) is not None]
    best, lowest = [], math.inf
    for _, value, each in sorted(known, key=lambda row: row[:2]):
        if value < lowest:
            best.append(each)
            lowest = value
    return best


def _order(each: Measured) -> tuple[float, float, str]:
    p95_s = each.numbers["p95_s"]
    return each.usd_per_h, math.inf if p95_s is None else p95_s, each.candidate.name


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
