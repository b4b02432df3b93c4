"""Plan a deployment: search every candidate, rank those that meet the targets, and measure their headroom."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mezzotint.figures.page import number
from mezzotint.sim.metrics.counterfactuals import counterfactuals
from mezzotint.sim.metrics.header import is_overloaded, rests_on
from mezzotint.sim.metrics.summary_keys import number_at
from mezzotint.sim.plan.candidate import Candidate
from mezzotint.sim.plan.options import Caches
from mezzotint.sim.plan.runs import Run, Runs, Summary
from mezzotint.sim.plan.search import (
    LIGHT,
    ClusterSearch,
    Outcome,
    Replications,
    Trial,
    bisect,
    paired_difference,
    run_searches,
)
from mezzotint.sim.plan.target import Target
from mezzotint.sim.report.compare import Spread

UNSTATED_ERROR = 0.1
"""Relative error of service times in the check of an answer where nobody states one, as in the report's reruns."""

HEADROOM_FACTORS = (1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 3.0, 4.0)
"""Factors on the load at which the headroom is looked for, by bisection among them."""

ALONE_ROWS = 100
"""Requests of the run in which each is alone, which shows the service without a wait."""

ALONE_GPUS = 8
"""GPUs of that run: enough for the widest groups."""

ALONE_LOAD = 0.01
"""Factor on the load of that run. A wait that is left does not count as service."""

CHECK_SEEDS = 1
"""Replications in checks of an answer: its headroom, and longer service times. They draw as the answer's first did."""

RELAXATIONS = 10
"""Times that a queue forgets its start in a run whose cluster counts as able to carry the load."""

MAX_PASSES = 20
"""Most times that a run repeats its requests. A cluster that needs more is so near saturation that it is overloaded."""

MORE_GPUS = 4
"""GPUs that are added at most to an answer in the check of its service time, beside the share of its error."""


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """The question of a plan: the load, the targets and the bounds of the search.

    Attributes:
        model: the model of an image in full.
        load: the requests and their rate, in words.
        targets: what the cluster must hold.
        seed, replications: the first seed, and the most replications of one cluster.
        max_gpus: largest cluster.
        rank: number of clusters to rank; dearer candidates are dropped as soon as that is certain.
        min_quality: lowest mean quality (carried from the papers, 1 is the large model's in full); None asks for none.
        mean_rpm: mean rate of a log, requests per minute, whose busiest hour is the load; else None.
        rate_rpm: mean rate of the load; None where a process changes it.
        cache: ``both`` if clusters with a warm cache are also searched with an empty one.
    """

    model: str
    load: str
    targets: tuple[Target, ...]
    seed: int
    replications: int
    max_gpus: int
    rank: int
    min_quality: float | None = None
    mean_rpm: float | None = None
    rate_rpm: float | None = None
    cache: Caches = "both"


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """A cluster that ran: means over its replications; None where a summary has null.

    ``gpus`` are those of the kind that the plan looks for (`Candidate.gpu`).

    ``meets`` is None if the search did not have to judge it, ``usd_per_h`` if the price of a part is not known.
    """

    candidate: Candidate
    gpus: int
    meets: bool | None
    is_undecided: bool
    replications: int
    usd_per_h: float | None
    numbers: Mapping[str, float | None]

    @property
    def cluster(self) -> str:
        """The GPUs in words, such as ``2 x h100-sxm + 3 x l40s``."""
        return self.candidate.cluster(self.gpus)

    @property
    def devices(self) -> int:
        """The number of GPUs of all kinds."""
        return self.candidate.devices(self.gpus)


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of a cluster beside the baseline (negative: it costs more); None if one of the two is not known.

    Attributes:
        usd_per_h: US$ per hour, beside the cheapest baseline of the same work.
        gpus: GPUs, beside the baseline on the same kinds.
    """

    usd_per_h: float | None
    gpus: int | None


@dataclass(frozen=True, slots=True)
class Warming:
    """The time in which an empty cache gets warm, at the asked load.

    Attributes:
        hours: hours that the requests take to arrive; None where the rate changes.
        usd: what the larger cluster, which an empty cache needs, costs more in these hours; None if not known.
    """

    requests: int
    hours: float | None
    usd: float | None


@dataclass(slots=True)
class Ranked:
    """A cluster that meets the targets.

    Attributes:
        saving: what it saves beside the baseline; None of a baseline, and where none meets the targets.
        usd_per_image_at_mean: US$ per image at the mean rate of a log whose busiest hour is the load; else None.
        from_empty: the cluster that the design needs while its cache begins empty, where both states are asked for.
        warming: how long that lasts, and what it costs.
        rests_on: what the result rests on most, found by runs without it; empty of all but the first.
        gpus_kept_busy: GPUs, of all kinds, that its work would keep busy all the time: no cluster can be smaller.
        not_monotone: larger clusters that miss the targets.
        headroom: factors on the load: the highest tried that it carries, and the lowest that it does not (None: all).
        beside_first: by key of a target, its number less that of the first cluster of its work (`paired_difference`
            over the seeds that both ran); without two such seeds, or a number, absent.
        error: the largest known error of its models' service times; `UNSTATED_ERROR` for those of which none is stated.
        error_is_stated: False if the error of a model's service times is not known.
        gpus_if_slower: GPUs of all kinds that meet the targets if the service takes longer by ``error``; None if
            `MORE_GPUS` more than that share of them do not.
    """

    result: ClusterResult
    gpus_kept_busy: float
    not_monotone: tuple[int, ...]
    summary: Summary = field(repr=False)
    headroom: tuple[float, float | None] = (1.0, None)
    error: float = UNSTATED_ERROR
    error_is_stated: bool = False
    gpus_if_slower: int | None = None
    saving: Saving | None = None
    usd_per_image_at_mean: float | None = None
    from_empty: ClusterResult | None = None
    warming: Warming | None = None
    rests_on: str = ""
    beside_first: dict[str, Spread] = field(default_factory=dict)

    @property
    def work(self) -> str:
        """The work of a request, in words: model, size, steps and precision."""
        return self.result.candidate.work

    @property
    def most_gpus(self) -> int:
        """The largest cluster that is tried if the service takes longer, by its number of GPUs as `ClusterResult`."""
        return self.result.gpus + MORE_GPUS + math.ceil(self.result.gpus * self.error)


@dataclass(frozen=True, slots=True)
class Unranked:
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
    best: ClusterResult | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: ranked clusters, the candidates that are not, and every cluster that ran.

    ``ranked`` goes by work, the one with the cheapest cluster first; within one, the cheapest cluster first.
    """

    spec: PlanSpec
    ranked: tuple[Ranked, ...]
    unranked: tuple[Unranked, ...]
    clusters: tuple[ClusterResult, ...]
    notes: tuple[str, ...]
    runs: int

    @property
    def works(self) -> dict[str, list[Ranked]]:
        """The rankings by work: clusters of different work are not compared."""
        works: dict[str, list[Ranked]] = {}
        for one in self.ranked:
            works.setdefault(one.work, []).append(one)
        return works


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
"""Numbers of a cluster that ran, and where summary.json has them."""

Load = tuple[Candidate, float, float]
"""A candidate under a factor on the load, and one on its service time."""


def find_plan(
    spec: PlanSpec,
    candidates: Sequence[Candidate],
    runs: Runs,
    notes: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
    found: Callable[[Plan], None] = lambda _: None,
) -> Plan:
    """Answer ``spec`` over ``candidates``.

    Args:
        progress: called with an estimate of the runs that are left.
        found: called with the ranked clusters before what they carry beyond the load is tested: half of the runs.
    """
    planner = _Planner(spec, runs)
    unranked = planner.search(candidates, progress)
    ranked = planner.rank()
    unranked += planner.passed_over

    def plan() -> Plan:
        keys = sorted(planner.summaries, key=lambda key: (key[0].name, key[1]))
        results = [planner.result(*key) for key in keys if key[0] not in planner.from_empty]
        return Plan(spec, tuple(ranked), tuple(unranked), tuple(results), tuple(notes), planner.runs)

    found(plan())
    planner.test_margins(ranked)
    return plan()


class _Planner:
    """Runs the searches of all candidates side by side, so that their runs fill the processes.

    Attributes:
        searches: of the candidates that may still be ranked.
        summaries: by candidate and number of GPUs, of the runs at the asked load.
        errors: of the runs that could not be made.
        passed_over: candidates that meet the targets, and are dearer than those ranked.
        from_empty: candidates of an empty cache, beside the same ones of a warm cache that are ranked.
        runs: number of runs that were asked for.
    """

    def __init__(self, spec: PlanSpec, runs: Runs) -> None:
        self._spec, self._runs = spec, runs
        self.searches: dict[Candidate, ClusterSearch] = {}
        self.summaries: dict[tuple[Candidate, int], list[Summary]] = {}
        self.errors: dict[Candidate, list[str]] = {}
        self.passed_over: list[Unranked] = []
        self.from_empty: set[Candidate] = set()
        self.runs = 0

    def search(self, candidates: Sequence[Candidate], progress: Callable[[int], None]) -> list[Unranked]:
        """Search every candidate, and return those that cannot be ranked."""
        unranked, starts = self._run_alone(candidates)
        self.searches = {candidate: self._new_search(candidate, start) for candidate, start in starts.items()}

        def stop(running: Collection[Load]) -> list[Load]:
            stopped = []
            for load in running:
                if (reason := self._rule_out(load[0])) is not None:
                    unranked.append(reason)
                    stopped.append(load)
                    del self.searches[load[0]]
            progress(sum(self.searches[load[0]].runs_left for load in running if load not in stopped))
            return stopped

        steps = {(candidate, 1.0, 1.0): search.steps() for candidate, search in self.searches.items()}
        run_searches(steps, self._measure, stop)
        unranked += [self._explain(candidate) for candidate, search in self.searches.items() if search.gpus is None]
        for candidate, search in list(self.searches.items()):
            if search.gpus is not None and (reason := self._below_floor(candidate, search.gpus)):
                result = self.result(candidate, search.gpus)
                unranked.append(Unranked(candidate, "quality", reason, result.usd_per_h, result))
                del self.searches[candidate]
        return unranked

    def _run_alone(self, candidates: Sequence[Candidate]) -> tuple[list[Unranked], dict[Candidate, int]]:
        """Return the candidates whose service alone exceeds a target, and for each other one the GPUs to begin with.

        Requests that run alone never wait, so that more GPUs cannot help where their mean exceeds a latency target.
        Hits of a cache are faster, and are not judged. The work of a request times the rate is the number of GPUs below
        which a backlog grows, unless batches or hits save work.
        """
        unranked, starts, seed = list[Unranked](), dict[Candidate, int](), self._spec.seed
        runs = {}
        for candidate in candidates:
            gpus = min(math.ceil(ALONE_GPUS / candidate.step) * candidate.step, self._spec.max_gpus)
            runs[candidate] = Run(candidate, gpus, seed, ALONE_LOAD, 1.0, ALONE_ROWS)
        summaries = self._runs.measure(list(runs.values()))
        self.runs += len(runs)
        for candidate, run in runs.items():
            summary = summaries[run]
            starts[candidate] = 1
            if isinstance(summary, str):
                continue
            reason = _service_binds(self._spec.targets, summary, candidate.cluster(run.gpus))
            if reason and candidate.cache is None:
                del starts[candidate]
                unranked.append(Unranked(candidate, "infeasible", reason))
            elif (rate_rpm := self._spec.rate_rpm) is not None:
                gpu_s = number_at(summary, "gpu", "seconds") or 0.0
                busy_s = gpu_s * (number_at(summary, "gpu", "busy_fraction") or 0.0) / summary["requests"]["completed"]
                starts[candidate] = math.floor(rate_rpm / 60 * busy_s) + 1 - candidate.devices(0)
        return unranked, starts

    def rank(self) -> list[Ranked]:
        """Return the cheapest clusters that meet the targets, of equal ones the faster first.

        Of one work there are `PlanSpec.rank` clusters with a price, as many without one, and the baseline.
        """
        meeting: dict[str, list[Ranked]] = {}
        for candidate, search in self.searches.items():
            if search.gpus is None:
                continue
            summaries, devices = self.summaries[candidate, search.gpus], candidate.devices(search.gpus)
            busy = sum(gpus_kept_busy(summary, devices) for summary in summaries) / len(summaries)
            result = self.result(candidate, search.gpus)
            one = Ranked(result, busy, tuple(search.not_monotone), summaries[0])
            meeting.setdefault(one.work, []).append(one)
        ranked = [one for ones in meeting.values() for one in self._best_of_work(ones)]
        for one in itertools.chain.from_iterable(meeting.values()):
            if one not in ranked:
                reason = f"{one.result.cluster} meets the targets, and is dearer or larger than those ranked"
                dropped = Unranked(one.result.candidate, "dropped", reason, one.result.usd_per_h, one.result)
                self.passed_over.append(dropped)
        cheapest = {work: min(_order(one.result) for one in ones) for work, ones in meeting.items()}
        ranked.sort(key=lambda one: (cheapest[one.work], one.work, _order(one.result)))
        firsts: dict[str, Ranked] = {}
        for one in ranked:
            first = firsts.setdefault(one.work, one)
            if one is not first:
                one.beside_first = self._differences(one.result, first.result)
        return ranked

    def _differences(self, one: ClusterResult, first: ClusterResult) -> dict[str, Spread]:
        """Return the number of each target of ``one`` less that of ``first``, by `Ranked.beside_first`."""
        found: dict[str, Spread] = {}
        for target in self._spec.targets:
            # In the order of the seeds, of which all clusters have the first ones.
            values = ([target.value(each) for each in self.summaries[of.candidate, of.gpus]] for of in (one, first))
            if (spread := paired_difference(*values)) is not None:
                found[target.key] = spread
        return found

    def test_margins(self, ranked: Sequence[Ranked]) -> None:
        """Set on each ranked cluster the load that it carries, the GPUs if its service is slower, what it needs while
        its cache is empty, and on the first what it rests on."""
        sizes = {one.result.candidate: one.result.gpus for one in ranked}

        def hold(tried: list[tuple[Candidate, int]]) -> list[bool]:
            return self._meet(
                [((candidate, HEADROOM_FACTORS[index], 1.0), sizes[candidate]) for candidate, index in tried]
            )

        def lowest_overload(one: Ranked) -> int:
            """Return the index of the lowest factor whose work alone fills the cluster, if it is fixed."""
            full = one.result.devices / one.gpus_kept_busy if one.result.candidate.is_plain else math.inf
            return bisect_left(HEADROOM_FACTORS, full)

        ends = bisect(
            {one.result.candidate: (-1, lowest_overload(one)) for one in ranked},
            lambda low, high: (low + high) // 2 if high - low > 1 else None,
            hold,
        )
        for one in ranked:
            low, high = ends[one.result.candidate]
            carries = 1.0 if low < 0 else HEADROOM_FACTORS[low]
            one.headroom = (carries, None if high == len(HEADROOM_FACTORS) else HEADROOM_FACTORS[high])
            errors = [row["service_error"] for row in one.summary["models"]]
            one.error = max((UNSTATED_ERROR if error is None else error for error in errors), default=UNSTATED_ERROR)
            one.error_is_stated = bool(errors) and None not in errors
            self._add_rates(one)
        self._check_service_times(ranked)
        self._search_from_empty(ranked)
        if ranked:
            self._find_decisive(ranked[0])

    def _best_of_work(self, ones: list[Ranked]) -> list[Ranked]:
        """Return the clusters to rank of those of one work, with what they save beside the baseline."""
        ones.sort(key=lambda one: _order(one.result))
        baselines = [one.result for one in ones if one.result.candidate.is_baseline]
        for one in ones:
            if baselines and one.result is not baselines[0]:
                one.saving = _saving(one.result, baselines)
        priced = [one for one in ones if one.result.usd_per_h is not None]
        unpriced = [one for one in ones if one.result.usd_per_h is None]
        kept = [*priced[: self._spec.rank], *unpriced[: self._spec.rank]]
        return kept + [one for one in ones if one.result in baselines[:1] and one not in kept]

    def _add_rates(self, one: Ranked) -> None:
        """Add what an image costs at the mean rate of a log whose busiest hour is the load."""
        if self._spec.mean_rpm is not None and one.result.usd_per_h is not None:
            images = number_at(one.summary, "images_per_request") or 1.0
            one.usd_per_image_at_mean = one.result.usd_per_h / (60 * self._spec.mean_rpm * images)

    def _find_decisive(self, best: Ranked) -> None:
        """Set on what the best cluster rests most, by its first run without the parts and facts that may decide."""
        result = best.result
        config = result.candidate.config(result.gpus, self._spec.seed, 1.0, 1.0)
        changes = counterfactuals(best.summary, config)
        summaries = self._runs.measure_configs([changed for _, changed in changes])
        self.runs += len(changes)
        tried = [(words, one) for (words, _), one in zip(changes, summaries, strict=True) if not isinstance(one, str)]
        best.rests_on = rests_on(best.summary, tried)

    def _search_from_empty(self, ranked: Sequence[Ranked]) -> None:
        """Add the clusters that the designs with a warm cache need while it begins empty, and how long that lasts."""
        if self._spec.cache != "both":
            return
        warm = {one.result.candidate.from_empty(): one for one in ranked if one.result.candidate.cache == "warm"}
        searches = {empty: self._new_search(empty, one.result.gpus) for empty, one in warm.items()}
        self.searches |= searches
        self.from_empty |= set(searches)
        run_searches({(empty, 1.0, 1.0): search.steps() for empty, search in searches.items()}, self._measure)
        for empty, one in warm.items():
            gpus, rate_rpm = searches[empty].gpus, self._spec.rate_rpm
            hours = None if rate_rpm is None else empty.warmed_by / rate_rpm / 60
            usd = None
            if gpus is not None:
                one.from_empty = self.result(empty, gpus)
                if hours is not None and one.result.usd_per_h is not None and one.from_empty.usd_per_h is not None:
                    usd = hours * (one.from_empty.usd_per_h - one.result.usd_per_h)
            one.warming = Warming(empty.warmed_by, hours, usd)

    def _new_search(self, candidate: Candidate, start: int = 1) -> ClusterSearch:
        spec = self._spec
        return ClusterSearch(spec.max_gpus, spec.replications, candidate.step, start)

    def result(self, candidate: Candidate, gpus: int) -> ClusterResult:
        """Return what the runs of a cluster say together."""
        summaries = self.summaries[candidate, gpus]
        search = self.searches.get(candidate)
        judged = Replications() if search is None else search.known.get(gpus, Replications())
        numbers = {name: _mean([number_at(summary, *keys) for summary in summaries]) for name, keys in NUMBERS.items()}
        numbers |= {target.key: _mean(list(map(target.value, summaries))) for target in self._spec.targets}
        usd_per_h = self._usd_per_h(candidate, gpus)
        return ClusterResult(candidate, gpus, judged.meets, judged.is_undecided, len(summaries), usd_per_h, numbers)

    def _check_service_times(self, ranked: Sequence[Ranked]) -> None:
        """Set for each ranked cluster the GPUs that suffice if its service takes longer by its error."""
        by_candidate = {one.result.candidate: one for one in ranked}

        def miss(tried: list[tuple[Candidate, int]]) -> list[bool]:
            loads = [
                (
                    (candidate, 1.0, 1 + by_candidate[candidate].error),
                    by_candidate[candidate].result.gpus + more * candidate.step,
                )
                for candidate, more in tried
            ]
            return [not meets for meets in self._meet(loads)]

        ends = bisect(
            {
                candidate: (-1, (one.most_gpus - one.result.gpus) // candidate.step + 1)
                for candidate, one in by_candidate.items()
            },
            lambda low, high: None if high - low < 2 else 0 if low < 0 else (low + high) // 2,  # mostly none is needed
            miss,
        )
        for candidate, one in by_candidate.items():
            gpus = one.result.gpus + ends[candidate][1] * candidate.step
            one.gpus_if_slower = candidate.devices(gpus) if gpus <= one.most_gpus else None

    def _meet(self, clusters: Sequence[tuple[Load, int]]) -> list[bool]:
        """Return for each candidate under a load, with its number of GPUs, True if it meets the targets."""
        replications = {load: Replications() for load, _ in clusters}
        seeds = min(CHECK_SEEDS, self._spec.replications)
        steps = {load: replications[load].judge(gpus, seeds) for load, gpus in clusters}
        run_searches(steps, self._measure)
        return [replications[load].meets is True for load, _ in clusters]

    def _measure(self, trials: list[tuple[Load, Trial]]) -> list[Outcome]:
        runs = [
            Run(candidate, trial.gpus, self._spec.seed + trial.replication, load, service)
            for (candidate, load, service), trial in trials
        ]
        summaries = self._runs.measure(runs)
        passes = {run: self._passes(run, summaries[run]) for run in runs}
        longer = {
            run: run._replace(repeats=count)
            for run, count in passes.items()
            if 1 < count <= MAX_PASSES and run.candidate.can_repeat
        }
        measured = self._runs.measure(list(longer.values()))
        summaries |= {run: measured[long] for run, long in longer.items()}
        self.runs += len(runs) + len(longer)
        return [self._outcome(run, summaries[run], passes[run] > 1 and run not in longer) for run in runs]

    def _outcome(self, run: Run, summary: Summary | str, is_saturated: bool) -> Outcome:
        """Return the outcome of a run; one that is too near saturation for its length counts as overloaded."""
        if isinstance(summary, str):
            self.errors.setdefault(run.candidate, []).append(summary)
            return Outcome((math.inf,) * len(self._spec.targets), False, run.gpus + 1.0, 1.0)
        if run.load == run.service == 1.0:
            self.summaries.setdefault((run.candidate, run.gpus), []).append(summary)
        latency_s, queue_s = number_at(summary, "latency_s", "mean"), number_at(summary, "queue_s", "mean")
        devices = run.candidate.devices(run.gpus)
        busy = gpus_kept_busy(summary, devices)
        return Outcome(
            tuple(target.ratio(summary) for target in self._spec.targets),
            is_overloaded(summary) or is_saturated,
            busy - run.candidate.devices(0),
            1.0 if not latency_s or queue_s is None else queue_s / latency_s,
            busy <= LIGHT * devices,
        )

    def _passes(self, run: Run, summary: Summary | str) -> int:
        """Return how often the requests of a run must come for its queue to build up; 1 where once is enough.

        A queue forgets its start after some 1 / (1 - load)^2 requests (Whitt, "Planning queueing simulations",
        Management Science 35, 1989), and a run needs `RELAXATIONS` times as many. Times that are not drawn are a log's
        own, and are replayed as they were.
        """
        if isinstance(summary, str) or self._spec.replications == 1 or is_overloaded(summary):
            return 1
        devices = run.candidate.devices(run.gpus)
        idle = 1 - gpus_kept_busy(summary, devices) / devices
        if idle <= 0:
            return MAX_PASSES + 1
        return math.ceil(RELAXATIONS / idle**2 / int(summary["requests"]["arrived"]))

    def _usd_per_h(self, candidate: Candidate, gpus: int) -> float | None:
        """Return the US$ of an hour; of rented GPUs, those of the runs. None if the price of a part is not known."""
        usd_per_h = candidate.usd_per_h(gpus)
        if not candidate.rents or usd_per_h is None:
            return usd_per_h
        hours = [
            60
            * (number_at(summary, "cost_usd", "per_image") or 0.0)
            * (number_at(summary, "images_per_request") or 1.0)
            * (number_at(summary, "throughput_rpm") or 0.0)
            for summary in self.summaries[candidate, gpus]
        ]
        return sum(hours) / len(hours)

    def _rule_out(self, candidate: Candidate) -> Unranked | None:
        """Return why a search can stop: it cannot run, or enough others are cheaper than its lower bound.

        Candidates without a price are compared among themselves, by their number of GPUs.
        """
        errors, best = self.errors.get(candidate, []), self._best(candidate)
        if len(set(errors)) < len(errors) and len(errors) >= 4 and best is None:
            return Unranked(candidate, "refused", errors[-1])
        smallest, rank = self.searches[candidate].low, self._spec.rank
        if candidate.is_baseline:
            return None
        usd_per_h, cluster = candidate.usd_per_h(smallest), candidate.cluster(smallest)
        others = [
            (self._usd_per_h(other, search.met), other.devices(search.met))
            for other, search in self.searches.items()
            if other is not candidate
            and other.work == candidate.work
            and search.met is not None
            and not self._below_floor(other, search.met)
        ]
        if usd_per_h is None:
            counts = sorted(devices for usd, devices in others if usd is None)
            if len(counts) < rank or candidate.devices(smallest) <= counts[rank - 1]:
                return None
            reason = f"{cluster}, the smallest that is not ruled out, is more than the ranked clusters without a price"
            return Unranked(candidate, "dropped", reason, None, best)
        costs = sorted(usd for usd, _ in others if usd is not None)
        bound = 0.0 if candidate.rents else usd_per_h
        if len(costs) < rank or bound <= costs[rank - 1]:
            return None
        reason = f"{cluster}, the smallest that is not ruled out, costs more than the clusters that are ranked"
        return Unranked(candidate, "dropped", reason, bound, best)

    def _below_floor(self, candidate: Candidate, gpus: int) -> str:
        """Return why the quality of a cluster is not enough; empty if it is."""
        floor = self._spec.min_quality
        if floor is None:
            return ""
        quality = self.result(candidate, gpus).numbers["quality"]
        if quality is None:
            return "its quality is not known"
        return "" if quality >= floor else f"its quality of {quality:.3f} is below {floor:g}"

    def _explain(self, candidate: Candidate) -> Unranked:
        """Return why no cluster of a candidate in range meets the targets."""
        best = self._best(candidate)
        if best is None and candidate not in self.errors:
            reason = f"it takes {candidate.step} GPUs at least, and --max-gpus is {self._spec.max_gpus}"
            return Unranked(candidate, "refused", reason)
        if best is None:
            return Unranked(candidate, "refused", self.errors[candidate][-1])
        summaries = self.summaries[candidate, best.gpus]
        reason = _binds(self._spec.targets, summaries, best, is_floor=self.searches[candidate].is_floor)
        return Unranked(candidate, "infeasible", reason, None, best)

    def _best(self, candidate: Candidate) -> ClusterResult | None:
        sizes = [gpus for of, gpus in self.summaries if of is candidate]
        return self.result(candidate, max(sizes)) if sizes else None


def _binds(targets: Sequence[Target], summaries: Sequence[Summary], best: ClusterResult, *, is_floor: bool) -> str:
    """Return what binds the largest cluster that ran, which misses the targets."""
    summary, cluster = summaries[0], best.cluster
    for target in targets:
        if target.value(summary) is None:
            return f"{target.text} cannot be met: {target.key} is null, since it does not apply or nothing was measured"
    if reason := _service_binds(targets, summary, cluster):
        return reason
    for target in targets:
        if target.misses(summary):
            reason = f"{target.key} is {number(target.value(summary), 3)} on {cluster}, which misses {target.text}"
            return reason + ("; hardly a request waits, so more GPUs do not help" if is_floor else "")
    if is_floor:
        p95_s = number(best.numbers["p95_s"], 3)
        return (
            f"the service itself binds: on {cluster} hardly a request waits, and p95 is {p95_s} s; "
            "more GPUs do not help"
        )
    is_full = gpus_kept_busy(summary, best.devices) >= best.devices  # of a run too short for a verdict
    if is_full or any(map(is_overloaded, summaries)):
        return f"capacity binds: {cluster}, the most that were asked for, serve less than is offered"
    return f"waiting binds: {cluster}, the most that were asked for, miss the target"


def _service_binds(targets: Sequence[Target], summary: Summary, cluster: str) -> str:
    """Return that the mean service exceeds a latency target that a run misses; empty if it does not."""
    latency_s, queue_s = (number_at(summary, group, "mean") for group in ("latency_s", "queue_s"))
    for target in targets:
        within_s = target.within_s(summary)
        if within_s is None or latency_s is None or queue_s is None:
            continue
        if latency_s - queue_s > within_s and target.ratio(summary) > 1:
            return (  # a request may be for several images
                f"the service itself binds: a request takes {number(latency_s - queue_s, 3)} s on {cluster} without a "
                f"wait, and {target.text} leaves {number(within_s, 3)} s; more GPUs do not help"
            )
    return ""


def makes_videos(summary: Summary) -> bool:
    """Return True if a model of a run makes more than one frame."""
    return any((row.get("frames") or 1) > 1 for row in summary["models"])


def gpus_kept_busy(summary: Summary, gpus: int) -> float:
    """Return the GPUs that the work of a run would keep busy all the time: busy GPUs times offered over served rate.

    In overload, and in a short run, images are still made after the last arrival. Both rates then differ.
    """
    busy, served_rpm = number_at(summary, "gpu", "busy_fraction"), number_at(summary, "throughput_rpm")
    offered_rpm = number_at(summary, "load", "offered_rpm")
    if busy is None or not served_rpm or offered_rpm is None:
        return gpus + 1.0
    return gpus * busy * offered_rpm / served_rpm


def pareto_front(clusters: Sequence[ClusterResult], key: str = "p95_s") -> list[ClusterResult]:
    """Return the clusters, the cheapest first, of which no other is both cheaper and lower in the number ``key``.

    Clusters without a price are compared by their GPUs if none has a price, and else left out.
    """
    front, lowest = [], math.inf
    has_prices = any(result.usd_per_h is not None for result in clusters)
    for result in sorted(clusters, key=_order):
        value = result.numbers[key]
        if value is not None and value < lowest and (result.usd_per_h is not None) == has_prices:
            front.append(result)
            lowest = value
    return front


def _order(result: ClusterResult) -> tuple[bool, float, float, str]:
    """Return the key of the ranking: by price, then those without one by their number of GPUs."""
    p95_s, usd_per_h = result.numbers["p95_s"], result.usd_per_h
    cost = result.devices if usd_per_h is None else usd_per_h
    return usd_per_h is None, cost, math.inf if p95_s is None else p95_s, result.candidate.name


def _saving(result: ClusterResult, baselines: Sequence[ClusterResult]) -> Saving:
    """Return what a cluster saves beside the baselines of its work, the cheapest first."""
    baseline_usd_per_h, usd_per_h = baselines[0].usd_per_h, result.usd_per_h
    kinds = result.candidate.gpus
    devices = min((one.devices for one in baselines if one.candidate.gpus == kinds), default=None)
    return Saving(
        None if baseline_usd_per_h is None or usd_per_h is None else baseline_usd_per_h - usd_per_h,
        None if devices is None else devices - result.devices,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
