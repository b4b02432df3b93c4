"""Several base models on one fleet: the GPUs that held each model, the sources of swaps, and latencies by model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.metrics.spread import ratio, spread
from mezzotint.sim.metrics.usage_log import SWAPS, UsageLog

RESIDENT = -1
"""Code of a request whose model was resident on its GPU; others have the index of their swap in SWAPS."""


@dataclass(slots=True)
class FleetLog:
    """Record of the models that GPUs held, and of the swaps that requests waited for.

    Args:
        rows: number of served requests.
        first: trace row of the first of them.
        base_models: model -> the base models of the trace that it serves, the most popular first.

    Attributes:
        swap: of each request, the code of the load of its model that it waited for, (rows,).
    """

    rows: int
    first: int
    base_models: Mapping[str, Sequence[str]]
    swap: NDArray[np.int8] = field(init=False)
    _since_s: dict[tuple[int, str], float] = field(init=False, default_factory=dict, repr=False)
    _held: list[tuple[str, float, float]] = field(init=False, default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.swap = np.full(self.rows, RESIDENT, np.int8)

    def note_swap(self, row: int, kind: str) -> None:
        """Note that the request of trace row ``row`` waits for a load of ``kind``; an activation is none."""
        if kind in SWAPS and row >= self.first:
            self.swap[row - self.first] = list(SWAPS).index(kind)

    def note_resident(self, worker: int, model: str, is_resident: bool, now_s: float) -> None:
        """Note that ``model`` came to the GPU of ``worker``, or left it."""
        if is_resident:
            self._since_s.setdefault((worker, model), now_s)
        elif (since_s := self._since_s.pop((worker, model), None)) is not None:
            self._held.append((model, since_s, now_s))

    def resident_s(self, start_s: float, end_s: float) -> dict[str, float]:
        """Return the GPU-seconds in [start_s, end_s] in which each model was resident, by its name."""
        held = [*self._held, *((model, from_s, end_s) for (_, model), from_s in self._since_s.items())]
        found: dict[str, float] = {}
        for model, from_s, until_s in held:
            inside_s = min(until_s, end_s) - max(from_s, start_s)
            if inside_s > 0:
                found[model] = found.get(model, 0.0) + inside_s
        return found


def fleet_summary(
    log: FleetLog,
    usage_log: UsageLog,
    window_s: tuple[float, float],
    gpu_counts: Sequence[int],
    swap: NDArray[np.int8],
    served_by: NDArray[np.bool_],
    model_code: Mapping[str, int],
    model: NDArray[Any],
    latency_s: NDArray[np.float64],
) -> dict[str, Any]:
    """Return the key ``fleet`` of a summary (docs/reference/summary.md).

    Args:
        window_s: begin and end of the measured window.
        gpu_counts: GPUs of each worker, by number.
        swap: codes of the measured requests, as in FleetLog.
        served_by: True for each that a GPU completed.
        model_code: code of each model in ``model``.
        model, latency_s: of the measured requests.
    """
    start_s, end_s = window_s
    spans = usage_log.spans()
    inside_s = np.clip(spans["until_s"], start_s, end_s) - np.clip(spans["from_s"], start_s, end_s)
    gpu_s = inside_s * np.asarray(gpu_counts)[spans["worker"]]
    busy_s, begins = float(gpu_s.sum()), (spans["from_s"] >= start_s) & (spans["from_s"] <= end_s)
    swaps: dict[str, dict[str, Any]] = {}
    for kind, source in SWAPS.items():
        of_kind = spans["kind"] == usage_log.kinds.get(kind, -1)
        if kind in usage_log.kinds:
            seconds = float(gpu_s[of_kind].sum())
            swaps[source] = {
                "count": int((of_kind & begins).sum()),
                "gpu_s": seconds,
                "busy_share": ratio(seconds, busy_s),
            }
    resident_s, models = log.resident_s(start_s, end_s), {}
    for name, base_models in log.base_models.items():
        on = served_by & (model == model_code[name])
        spent = spans["model"] == usage_log.models.get(name, -1)
        models[name] = {
            "base_models": list(base_models),
            "completed": int(on.sum()),
            "hit_rate": float((swap[on] == RESIDENT).mean()) if on.any() else None,
            "replicas": ratio(resident_s.get(name, 0.0), end_s - start_s),
            "gpu_s": float(gpu_s[spent].sum()),
            "latency_s": spread(latency_s[on]),
        }
    hits = swap[served_by] == RESIDENT
    return {
        "models": models,
        "hit_rate": float(hits.mean()) if len(hits) else None,
        "swaps": swaps,
        "swap_busy_share": ratio(sum(of["gpu_s"] for of in swaps.values()), busy_s),
    }
