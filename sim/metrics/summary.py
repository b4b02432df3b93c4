"""The summary of a run: summary.json, schema 1. docs/reference/summary.md defines every key.

All rates and times are over the measured window: from the first arrival after the warm-up to the last end.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mezzotint.backends.base import size_text
from mezzotint.settings.assumption import EXTRAPOLATED, UNMEASURED, UNREAD, Assumption
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import reference
from mezzotint.sim.core.plan import DECLARED, LOOKUPS, MISSING
from mezzotint.sim.core.request import COMPLETED, DISCARDED, FAILED
from mezzotint.sim.core.slo import OWN, Limit, is_late
from mezzotint.sim.core.tenant import LIMIT_REASONS, NO_USER
from mezzotint.sim.metrics.attempts import AttemptLog
from mezzotint.sim.metrics.clients import requests, sessions
from mezzotint.sim.metrics.cost import PaidService, cost, gpu_price
from mezzotint.sim.metrics.fleet import FleetLog, fleet_summary
from mezzotint.sim.metrics.load import load
from mezzotint.sim.metrics.quality import QualityEstimate, above_one
from mezzotint.sim.metrics.recorder import COMPILATIONS, LOADS, STARTS, STEP_SHARE, TRAININGS, WASTED, RunRecord
from mezzotint.sim.metrics.request_columns import IMAGE, IMAGES, ROWS, RequestColumns
from mezzotint.sim.metrics.spread import median_and_p90, ratio, spread
from mezzotint.sim.metrics.tenants import tenants
from mezzotint.sim.metrics.usage_log import GpuUsage, UsageLog
from mezzotint.sim.metrics.warmup import MIN_PERIODS, Warmup
from mezzotint.sim.protocols import Run
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace

SCHEMA = 1

STALLED_S = 0.1
"""A request that waits longer for its LoRAs counts as stalled."""

MAX_SIZES = 5
"""Sizes that a summary names; it counts the others."""

PREDICTOR_KEYS = (
    *("precision", "recall", "predicted_misses", "wasted_searches", "wasted_search_s", "retrainings", "retrain_s"),
)
"""Keys of ``cache.predictor``."""

Reals = NDArray[np.float64]


def summarise(
    run: Run,
    record: RunRecord,
    trace: Trace,
    source_ages_s: Reals,
    users: pa.DictionaryArray,
    columns: Mapping[str, Any],
    *,
    seed: int,
    simulate_s: float,
    cpu_s: float,
    system: str,
    slo: Sequence[Limit],
    warmup: Warmup,
    periods_s: Mapping[str, float],
    services: Mapping[str, PaidService],
    alpha: float | None,
    judged: QualityEstimate | None,
    seen: Mapping[str, NDArray[np.float64]],
) -> dict[str, Any]:
    """Return the contents of summary.json for a finished run, as plain Python values; null if a key does not apply.

    Args:
        source_ages_s: as from ``source_age_trace_s``, (rows,).
        users: the user of each request of the trace, if any has one.
        columns: columns of the trace that decide the results, and the others.
        simulate_s, cpu_s: wall and processor time of the simulation.
        warmup: head of the run that is not measured.
        periods_s: seconds between the decisions of each controller, by its name.
        services: paid services beside the GPUs, by name.
        alpha: share of the full run's quality that the selector's thresholds keep; None without a selector.
        judged: estimated quality of simulated images; None if a live backend made them.
        seen: what clients saw, as of Client.seen; empty without a client.
    """
    view = MeasuredWindow(run, record, warmup.rows)
    cluster = run.cluster
    gpus, counts = cluster.gpus, Counter(cluster.gpu_kinds()[: cluster.gpus])
    usage = record.usage_log.inside(view.start_s, view.end_s, cluster.gpu_counts())
    size = next(iter(counts)).gpus_per_instance  # GPUs are off only in a cluster of one kind
    off_s = [record.usage_log.off_s(view.start_s, view.end_s, each) for each in (1, size)]
    gpu_s = gpus * view.span_s - off_s[0]
    by_kind = _by_kind(run, record, view, counts, usage, off_s[0])
    energies = [each["energy_j"] for each in by_kind.values()]
    energy_j = None if None in energies else sum(energies)
    for gpu in counts:
        if gpu.active_w is not None:
            of_kind = "" if len(counts) == 1 else f" ({gpu.name})"
            record.assume(f"GPU power{of_kind}, at work and idle [W]", [gpu.active_w, gpu.idle_w], gpu.source)
    completed, images = view.completions(), view.completions(of="images")
    offered = view.load(gpus, bool(seen) and bool((seen["sent_s"] > seen["due_s"]).any()))
    cost_usd = cost(record, counts, services, view.span_s, images, off_s[1])
    return {
        "schema": SCHEMA,
        "system": system,
        "seed": seed,
        "trace": {
            "name": trace.name,
            "source": trace.source,
            "requests": len(trace),
            "span_s": trace.span_s,
            "digest": trace.identity,
            "columns": dict(columns),
        },
        "work": view.work(),
        "models": models(run, view.requests_on),
        "assumptions": [asdict(assumption) for assumption in _assumptions(run, record)],
        "requests": {
            "arrived": len(view.outcome),
            "completed": int(view.completed.sum()),
            "discarded": int((view.outcome == DISCARDED).sum()),
            "failed": int((view.outcome == FAILED).sum()),
        },
        "throughput_rpm": ratio(60 * completed, view.span_s),
        "throughput_until_last_arrival_rpm": ratio(60 * view.completions(view.last_s), view.last_s - view.start_s),
        "load": offered,
        "state": view.state(warmup, periods_s),
        "latency_s": spread(view.latencies_s()),
        **view.split(),
        **({} if run.workload.sampling is None else {"images_per_request": ratio(images, completed)}),
        "queue_s": spread(view.queues_s()),
        **view.tenants(users, trace.release),
        "slo": view.limits(slo, offered["offered_rpm"]),
        "cache": view.cache() | {"source_age_trace_s": median_and_p90(source_ages_s[warmup.rows :])},
        "addons": view.addons(),
        "gpu": {
            "count": gpus,
            "busy_fraction": ratio(usage.busy_s, gpu_s),
            "seconds": gpu_s,
            "switches": usage.switches,
            "switch_s": usage.switch_s,
            "batch_mean": usage.batch_mean,
            "step_saving": view.step_saving(),
            **({} if len(by_kind) == 1 else {"by_kind": by_kind}),
        },
        **view.clients(seen, slo, counts),
        **({} if STARTS not in record.logs else {"server": view.server()}),
        **({} if record.attempts is None else view.attempts(record.attempts, record.usage_log, cluster.gpus_of)),
        **({} if record.fleet is None else {"fleet": view.fleet(record.fleet)}),
        "energy_j": {"per_image": None if energy_j is None else ratio(energy_j, images), "total": energy_j},
        "cost_usd": cost_usd,
        "quality": view.quality(run.backend.quality_basis, alpha) if judged is None else judged.summary(view.images),
        "wall": {
            "simulate_s": simulate_s,
            "cpu_s": cpu_s,
            "requests_per_cpu_s": ratio(run.workload.rows, cpu_s),
        },
    }


def models(run: Run, requests_on: Callable[[str], int]) -> list[dict[str, Any]]:
    """Describe each model that a GPU held, and the reference model, by role and kind of GPU; the reference model first.

    Width, height and steps are null if requests bring their own. Values that the backend does not state are null.

    Args:
        requests_on: counts the measured requests that a model completed.
    """
    kinds = run.cluster.kinds
    held = {(next(iter(kinds)).name, reference(run.models).name), *run.cluster.models_held}
    described = []
    for role, model in run.models.items():
        for gpu, backend in kinds.items():
            if (gpu.name, model.name) in held:
                known, own = backend.provenance(model.name), model if run.workload.use_model_shape else None
                row: dict[str, Any] = {"role": role, "model": model.name, "gpu": gpu.name}
                row |= {name: getattr(own, name, None) for name in ("width", "height", "steps")}
                if own is not None and own.frames > 1:
                    row["frames"] = own.frames
                stated = ("precision", "basis", "service_error", "source", "software", "date")
                row |= {name: getattr(known, name) for name in stated}
                described.append(row | {"untimed": list(known.untimed), "requests": requests_on(model.name)})
    return described


def _assumptions(run: Run, record: RunRecord) -> list[Assumption]:
    """Return the run's assumptions, and those of the costs on each kind of GPU, each once."""
    first, *others = (backend.assumptions() for backend in run.cluster.kinds.values())
    found = [*record.assumptions, *first]
    for each in chain.from_iterable(others):
        if each not in found:
            found.append(each)
    return found


def _by_kind(
    run: Run, record: RunRecord, view: "MeasuredWindow", counts: Mapping[Gpu, int], usage: GpuUsage, off_s: float
) -> dict[str, dict[str, Any]]:
    """Return count, seconds, busy fraction and joules of the GPUs of each kind.

    Args:
        usage: that of all GPUs.
        off_s: GPU-seconds in which rented GPUs were off, in a cluster of one kind.
    """
    found: dict[str, dict[str, Any]] = {}
    cluster = run.cluster
    for gpu, count in counts.items():
        if len(counts) > 1:
            own = [each == gpu for each in cluster.gpu_kinds()]
            usage = record.usage_log.inside(view.start_s, view.end_s, cluster.gpu_counts(), own)
        gpu_s = count * view.span_s - off_s
        joules, idle_w = usage.joules, gpu.idle_w
        found[gpu.name] = {
            "count": count,
            "busy_fraction": ratio(usage.busy_s, gpu_s),
            "seconds": gpu_s,
            "energy_j": None if joules is None or idle_w is None else joules + idle_w * (gpu_s - usage.busy_s),
        }
    return found


def cautions(summary: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Return value and source of each assumption of ``summary`` that the terminal warns of, by its name.

    A table was extrapolated, nobody measured what a request costs, or a part of a file is not read.
    """
    return {
        row["what"]: (row["value"], row["source"])
        for row in summary["assumptions"]
        if str(row["source"]).endswith((EXTRAPOLATED, UNMEASURED, UNREAD))
    }


class MeasuredWindow:
    """Requests after the warm-up, and the time from the first one's arrival to the last end."""

    def __init__(self, run: Run, record: RunRecord, warmup: int) -> None:
        self._run = run
        self._full = run.workload.standalone
        self._own_deadline_s = run.workload.own_deadline_s
        self._first = run.workload.preload + warmup
        self._record = record
        self._warmup = warmup
        columns = record.request_columns
        self._measured = columns.part(warmup, len(columns))
        self.outcome = self._measured["outcome"]
        self.completed = self.outcome == COMPLETED
        self.start_s = float(self.column("arrival_s")[0])
        self.last_s, self.end_s = (
            max(float(block[name].max()) for block in self._measured.blocks()) for name in ("arrival_s", "finish_s")
        )
        self.span_s = self.end_s - self.start_s
        self.latency_s = self._measured.computed(lambda block: block["finish_s"] - block["arrival_s"])

    @property
    def images(self) -> NDArray[np.bool_]:
        """The measured and completed requests, a mask over all rows of the run."""
        self._record.release()
        return np.concatenate([np.zeros(self._warmup, bool), self.completed])

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of the measured requests; what was read of others before need not be in memory."""
        self._record.release()
        return self._measured[name]

    def latencies_s(self) -> Reals:
        """Return the latencies of the completed requests, in memory of their own."""
        return self._completed(lambda block: block["finish_s"] - block["arrival_s"])

    def queues_s(self) -> Reals:
        """Return the seconds from the plan to the start of the completed requests, in memory of their own."""
        before_s = self._run.handling.before_s
        return self._completed(
            lambda block: np.maximum(block["start_s"] - block["arrival_s"] - (block["search_s"] + before_s), 0.0)
        )

    def _completed(self, value: Callable[[RequestColumns], Reals]) -> Reals:
        return self._measured.computed(lambda block: value(block)[block["outcome"] == COMPLETED])

    def requests_on(self, model: str) -> int:
        """Count the measured requests that ``model`` completed."""
        code = self._record.request_columns.model_code.get(model)
        return 0 if code is None else int(((self.column("model") == code) & self.completed).sum())

    def work(self) -> dict[str, Any] | None:
        """Return the sizes and steps that the measured requests ask for; None if those of their model are served.

        ``sizes`` has the share of each of the commonest sizes, MAX_SIZES at most.
        """
        if self._run.workload.use_model_shape:
            return None
        rows = slice(self._first, None)
        width, height, steps, frames = (
            np.asarray(getattr(self._run.workload, name))[rows] for name in ("width", "height", "steps", "frames")
        )
        sizes = Counter(zip(width.tolist(), height.tolist(), frames.tolist(), strict=True))
        return {
            "sizes": {size_text(*size): n / len(width) for size, n in sizes.most_common(MAX_SIZES)},
            "size_count": len(sizes),
            "steps": {"min": int(steps.min()), "max": int(steps.max())},
        }

    def attempts(self, attempts: AttemptLog, usage_log: UsageLog, gpus_of: Callable[[int], Sequence[int]]) -> Any:
        """Return the number of attempts, and the totals of stages or of a cascade, of the measured requests.

        Stages have their use and waits by component, too.

        Args:
            gpus_of: the GPUs of each worker or group, by number.
        """
        count = {"attempts": sum(row >= self._first for row in attempts.row)}
        totals = {group: self._totals(group) for group in ("stages", "cascade")}
        found: dict[str, Any] = {group: count | total for group, total in totals.items() if total}
        if "stages" in found:
            found["stages"]["components"] = self._components(attempts, usage_log, gpus_of)
        return found

    def _components(
        self, attempts: AttemptLog, usage_log: UsageLog, gpus_of: Callable[[int], Sequence[int]]
    ) -> dict[str, dict[str, Any]]:
        """Return the GPUs of each component, the seconds that it ran on them, their busy fraction, and its waits."""
        measured = np.asarray(attempts.row) >= self._first
        busy_s = usage_log.busy_s_by_gpu(self.start_s, self.end_s, gpus_of)
        parts = attempts.by_component(self._record.request_columns["arrival_s"], self._first - self._warmup, measured)
        return {
            name: {
                "gpus": len(part.gpus),
                "gpu_s": part.gpu_s,
                "busy_fraction": ratio(sum(busy_s.get(gpu, 0.0) for gpu in part.gpus), len(part.gpus) * self.span_s),
                "wait_s": part.wait_s,
            }
            | ({"batch_mean": ratio(part.request_s, part.gpu_s)} if part.joins else {})
            for name, part in parts.items()
        }

    def _totals(self, group: str) -> dict[str, Any]:
        """Return the sums of the declared columns whose totals are keys of ``group``."""
        declared = self._record.request_columns.declared
        totals = {name: column.total.rpartition(".") for name, column in declared.items()}
        return {key: self.column(name).sum().item() for name, (at, _, key) in totals.items() if key and at == group}

    def completions(self, until_s: float = math.inf, of: Literal["requests", "images"] = "requests") -> int:
        """Count the requests finished inside the window, up to ``until_s``, of the warm-up too; or their images.

        A warm-up request that ends at the very start of the window does not count: its image was made before.
        """
        columns, until_s, count = self._record.request_columns, min(until_s, self.end_s), 0
        for block in columns.blocks():
            finish_s, warmup = block["finish_s"], max(columns.first + self._warmup - block.first, 0)
            done = (block["outcome"] == COMPLETED) & (finish_s <= until_s)
            done[:warmup] &= finish_s[:warmup] > self.start_s
            count += int(block[IMAGES][done].sum()) if of == "images" and IMAGES in columns else int(done.sum())
        return count

    def split(self) -> dict[str, Any]:
        """Return number and latency of whole requests, up to their last image, where each image ran as a request."""
        columns = self._record.request_columns
        if IMAGE not in columns:
            return {}
        begins = np.flatnonzero(self.column(IMAGE) == 1)
        latency_s = np.maximum.reduceat(self.latency_s, begins)[np.logical_and.reduceat(self.completed, begins)]
        return {"split": {"completed": len(latency_s), "latency_s": spread(latency_s)}}

    def fleet(self, log: FleetLog) -> dict[str, Any]:
        """Return models, replicas and swaps of a fleet that serves several base models."""
        columns = self._record.request_columns
        return fleet_summary(
            log,
            self._record.usage_log,
            (self.start_s, self.end_s),
            self._run.cluster.gpu_counts(),
            log.swap[self._warmup :],
            self.completed & (self.column("model") != MISSING),
            columns.model_code,
            self.column("model"),
            self.latency_s,
        )

    def clients(
        self, seen: Mapping[str, NDArray[np.float64]], slo: Sequence[Limit], gpus: Mapping[Gpu, int]
    ) -> dict[str, Any]:
        """Return what clients saw, if there are any, and the price of what was spent on tries that they gave up."""
        if "stalls" in seen:
            return {"sessions": sessions(seen, self.start_s)}
        if not seen:
            return {}
        found = requests(seen, (self.start_s, self.end_s), slo)
        if WASTED in self._record.logs:
            _, gpu_s = self._record.logs[WASTED].inside(self.start_s, self.end_s)
            price = gpu_price(next(iter(gpus))) if len(gpus) == 1 else None
            found |= {
                "wasted_gpu_s": gpu_s, "wasted_usd": None if price is None else price.usd_per_gpu_h * gpu_s / 3600,
            }  # fmt: skip
        return {"client": found}

    def load(self, gpus: int, is_held_back: bool) -> dict[str, Any]:
        """Return the verdict on the load: offered, served, and whether requests pile up.

        Args:
            is_held_back: True if a client sent requests only as others ended.
        """
        run, counts = self._run, self._run.cluster.gpu_counts()
        return load(
            self._record.request_columns,
            self.start_s,
            lambda edges: self._record.usage_log.idle_s(edges, counts, gpus),
            gpus,
            is_closed=is_held_back or len(run.workload.schedule.times) < run.workload.rows,
        )

    def state(self, warmup: Warmup, periods_s: Mapping[str, float]) -> dict[str, Any]:
        """Return what state the run was measured in: its cache, its warm-up, and how often its controllers decided."""
        run, columns = self._run, self._record.request_columns
        looked_up = any(block["lookup"].any() for block in columns.blocks())
        stores = looked_up and not any((block["source"] == DECLARED).any() for block in columns.blocks())
        span_s = self.last_s - self.start_s
        counts = {name: span_s / period_s for name, period_s in periods_s.items()}
        few = [f"{name} decided {int(count)} times" for name, count in counts.items() if count < MIN_PERIODS]
        notes = [warmup.note or "", f"{' and '.join(few)} in the measured span" if few else ""]
        return {
            "cache_start": None if not stores else "preloaded" if run.workload.preload else "empty",
            **({} if run.server.begin == "warm" else {"servers": run.server.begin}),
            "preloaded": run.workload.preload,
            "warmup_s": self.start_s - float(columns["arrival_s"][0]),
            "warmup_rule": warmup.rule,
            "span_s": span_s,
            "periods": counts,
            "note": "; ".join(filter(None, notes)) or None,
        }

    def limits(self, slo: Sequence[Limit], offered_rpm: float | None) -> dict[str, dict[str, float | None]]:
        """Return the limit, the share of the requests over it and the goodput, by the limit's name.

        The limit is its mean if sizes differ. Requests with a deadline of their own have one entry more, with their
        number.

        Args:
            offered_rpm: requests offered a minute.
        """
        found: dict[str, dict[str, float | None]] = {}
        for limit in slo:
            total_s = self._full.total_s[self._first :]
            limit_s = limit.seconds(total_s if total_s.strides[0] else total_s[:1])
            if limit_s.ndim:  # one number where all requests are alike, which takes no memory
                limit_s = np.broadcast_to(limit_s, len(total_s))
            found[str(limit)] = self._over(limit_s, np.ones(len(self.outcome), bool), offered_rpm)
        if self._own_deadline_s is not None:
            limit_s = self._own_deadline_s[self._first :]
            has_own = ~np.isnan(limit_s)
            if has_own.any():
                found[OWN] = self._over(limit_s, has_own, offered_rpm) | {"requests": int(has_own.sum())}
        return found

    def _over(
        self, limit_s: NDArray[np.float64] | np.float64, counted: NDArray[np.bool_], offered_rpm: float | None
    ) -> dict[str, float | None]:
        """Return limit, share over it and goodput of the ``counted`` requests."""
        rate = float(self._late(limit_s)[counted].mean())
        self._record.release()
        mean_s = float(_selected(np.broadcast_to(limit_s, counted.shape), counted).mean() if limit_s.ndim else limit_s)
        goodput = None if offered_rpm is None else (1 - rate) * offered_rpm * float(counted.mean())
        return {"limit_s": mean_s, "violation_rate": rate, "goodput_rpm": goodput}

    def _late(self, limit_s: NDArray[np.float64] | np.float64) -> NDArray[np.bool_]:
        late: NDArray[np.bool_] = ~self.completed
        of_each = np.broadcast_to(limit_s, len(late))
        for start in range(0, len(late), ROWS):
            block = slice(start, start + ROWS)
            late[block] |= is_late(self.latency_s[block], of_each[block])
            self._record.release()
        return late

    def tenants(self, users: pa.DictionaryArray, release: Callable[[], None]) -> dict[str, Any]:
        """Return how the tenants fared, whose ``users`` are those of the whole trace; nothing if it has none.

        Args:
            release: lets the pages of a long trace go.
        """

        def release_both() -> None:
            self._record.release()
            release()

        indices = users.indices if not users.indices.null_count else users.indices.fill_null(NO_USER)
        codes = np.asarray(indices)[self._first :]
        if (codes == NO_USER).all():
            return {}
        over_limit = np.zeros(len(codes), bool)
        over_limit[
            [
                row - self._first
                for row, reason in self._record.request_columns.reasons.items()
                if reason in LIMIT_REASONS and row >= self._first
            ]
        ] = True
        found = tenants(
            codes,
            users.dictionary.to_pylist(),
            latency_s=self.latency_s,
            standalone_s=self._full.total_s[self._first :],
            gpu_s=self.column(self._step_gpu_s),
            completed=self.completed,
            over_limit=over_limit,
            release=release_both,
        )
        return {"tenants": found}

    @property
    def _step_gpu_s(self) -> str:
        """Column of the GPU seconds of each request's steps, its share of shared ones; NaN if it never started."""
        return STEP_SHARE if STEP_SHARE in self._record.request_columns else "denoise_s"

    def step_saving(self) -> float | None:
        """Return 1 - GPU step-seconds spent / those of every completed request in full on the large model."""
        if not self.completed.any():
            return None
        name = self._step_gpu_s
        spent_s = self._measured.computed(lambda block: np.where(np.isnan(block[name]), 0.0, block[name])).sum()
        self._record.release()
        return float(1 - spent_s / _selected(self._full.denoise_s[self._first :], self.completed).sum())

    def cache(self) -> dict[str, Any]:
        """Return the hits and what they saved; all null without a cache, whatever the system saves otherwise."""
        found: dict[str, Any] = dict.fromkeys(("lookups", "hits", "hit_rate", "hit_share_by_k", "compute_saving"))
        found |= dict.fromkeys(("holes", "evictions", "stale"))
        found["fallbacks"] = {"database": None, "store": None}
        found["source_age_s"] = {"p50": None, "p90": None}
        found["predictor"] = dict.fromkeys(PREDICTOR_KEYS)
        if not self._record.request_columns["lookup"].any():
            return found
        counted, by_k = np.zeros(len(LOOKUPS), np.int64), Counter[int]()
        for block in self._measured.blocks():
            counted += np.bincount(block["lookup"], minlength=len(LOOKUPS))
            ks, counts = np.unique(_hits(block, "k"), return_counts=True)
            by_k.update(dict(zip(ks.tolist(), counts.tolist(), strict=True)))
        results = dict(zip(LOOKUPS, counted.tolist(), strict=True))
        lookups, hits = sum(results.values()) - counted.item(0), results["hit"]
        found |= {
            "lookups": lookups,
            "hits": hits,
            "hit_rate": ratio(hits, lookups),
            "hit_share_by_k": {str(k): n / hits for k, n in sorted(by_k.items())},
            "compute_saving": self.step_saving(),
            **self._totals("cache"),
            "stale": results["stale"],
            "fallbacks": {"database": results["no database"], "store": results["no store"]},
            "predictor": self.predictor(results),
            "source_age_s": spread(self._measured.computed(_source_ages_s), ("p50", "p90")),
        }
        return found

    def predictor(self, results: Mapping[str, int]) -> dict[str, Any]:
        """Return the match predictor's accuracy and the searches without a match; ``results`` counts LOOKUPS."""
        found = dict.fromkeys(PREDICTOR_KEYS) | {"wasted_searches": results["miss"], **self._totals("cache.predictor")}
        predicted = results["predicted miss"] + results["forgone match"]
        if TRAININGS in self._record.logs:
            retrainings, retrain_s = self._record.logs[TRAININGS].inside(self.start_s, self.end_s)
            found |= {"retrainings": retrainings, "retrain_s": retrain_s}
        elif not predicted:
            return found
        matched = sum(results[each] for each in ("hit", "empty", "stale", "no store"))
        return found | {
            "precision": ratio(matched, matched + results["miss"]),
            "recall": ratio(matched, matched + results["forgone match"]),
            "predicted_misses": predicted,
        }

    def addons(self) -> dict[str, Any]:
        """Return add-on loads per arrived request, and the stalls of completed ones; null if add-ons are not served."""
        logs = self._record.logs
        if LOADS["lora"] not in logs:
            return {"loads_per_request": dict.fromkeys(LOADS), "stall_s": {"p95": None}, "stalled_share": None}
        loads = {kind: logs[name].inside(self.start_s, self.end_s)[0] for kind, name in LOADS.items()}
        columns = self._record.request_columns
        stall_s = (self.column("stall_s") if "stall_s" in columns else np.zeros(len(self.outcome)))[self.completed]
        return {
            "loads_per_request": {kind: ratio(count, len(self.outcome)) for kind, count in loads.items()},
            "stall_s": {"p95": float(np.percentile(stall_s, 95)) if len(stall_s) else None},
            "stalled_share": float((stall_s > STALLED_S).mean()) if len(stall_s) else None,
        }

    def server(self) -> dict[str, float]:
        """Return the starts of servers and the first requests of a shape, and their seconds."""
        logs = self._record.logs
        from_s = self.start_s if self._warmup else 0.0  # a cold begin is before the first arrival
        (starts, start_s), (compilations, compile_s) = (
            logs[name].inside(from_s, self.end_s) for name in (STARTS, COMPILATIONS)
        )
        return {"starts": starts, "start_s": start_s, "compilations": compilations, "compile_s": compile_s}

    def quality(self, basis: str | None, alpha: float | None) -> dict[str, Any]:
        """Return the mean of the measured quality factors, and the share of them below alpha."""
        factor = self.column("quality")
        factor = factor[~np.isnan(factor)]
        keys = ("factor_mean", "below_alpha_share", "score", "note", "basis", "reason", "published")
        unknown: dict[str, Any] = dict.fromkeys(keys)
        if basis is None or not len(factor):
            return unknown
        below = None if alpha is None else float((factor < alpha).mean())
        mean, score = float(factor.mean()), basis.partition(" against ")[0]
        stated = {"score": score, "note": above_one(mean, score), "basis": basis}
        return unknown | {"factor_mean": mean, "below_alpha_share": below, **stated}


def _hits(columns: RequestColumns, name: str) -> NDArray[Any]:
    """Return a column of the requests that started from an artifact."""
    values: NDArray[Any] = columns[name][columns["source"] != MISSING]
    return values


def _source_ages_s(columns: RequestColumns) -> Reals:
    ages_s: Reals = _hits(columns, "source_age_s")
    return ages_s[~np.isnan(ages_s)]


def _selected(values: Reals, rows: NDArray[np.bool_]) -> Reals:
    """Return ``values`` of these rows; of one value for all a view, which takes no memory."""
    return values[rows] if values.strides[0] else np.broadcast_to(values[:1], int(rows.sum()))


def source_age_trace_s(columns: RequestColumns, trace: Trace) -> NDArray[np.float64]:
    """Return the seconds in ``trace`` between each request and the one whose artifact it starts from, (rows,).

    They are the same at every arrival rate, unlike ``source_age_s`` (MoDM, A.1: 90 % within four hours). NaN if nothing
    was reused, or if the trace has an order and no times.
    """
    source = columns["source"]
    reused = source >= 0  # not DECLARED
    if trace.notes.get("arrival_s") == ORDER_ONLY or not reused.any():
        return np.broadcast_to(np.nan, len(columns))
    ages_s = columns.scratch.full(len(columns), np.nan, np.float64)
    arrival_s = trace.arrival_s
    ages_s[reused] = arrival_s[columns.first :][reused] - arrival_s[source[reused]]
    return ages_s
