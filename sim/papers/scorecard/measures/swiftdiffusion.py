"""Measures of SwiftDiffusion's evaluation (section 6, Katz's logs; experiments: conf/experiment)."""

from collections.abc import Mapping

from mezzotint.sim.papers.addons import curves, measured_loads
from mezzotint.sim.papers.runs import Runs
from mezzotint.sim.papers.scorecard.measures.formulas import Measure, ratio

BASELINES = ("diffusers", "nirvana-10", "nirvana-20")
"""The paper's own baselines (6.1)."""

SETTINGS = tuple((nets, loras) for nets in range(4) for loras in range(3))
"""ControlNets and LoRAs of Figure 11."""

CALIBRATED = ((0, 0), (1, 0), (0, 1), (3, 0))
"""ControlNets and LoRAs of the settings that the H800 profile and the systems' factors were fitted to."""

PREDICTED = (
    ("diffusers", 3, 2), ("distrifusion-add-ons", 1, 2), ("distrifusion-add-ons", 3, 2), ("katz", 1, 2), ("katz", 3, 2),
    ("nirvana-10", 3, 2), ("nirvana-20", 3, 2),
)  # fmt: skip
"""K1: system, ControlNets and LoRAs of each logged setting that nothing was calibrated on."""

SLOW = ("katz", 1, 2)
"""The setting that was logged on a day of slow storage."""


def latency_s(runs: Runs, system: str, nets: int, loras: int) -> float:
    """Return the mean end-to-end latency [s] of a setting, one request at a time."""
    return runs.where(system=system, controlnets=nets, loras=loras).mean("latency_s", "mean")


def gpus_held(system: str, nets: int) -> int:
    """Return the GPUs that a request with ``nets`` ControlNets holds."""
    if system == "distrifusion-add-ons":
        return (2, 4, 8, 8)[nets]
    return {"swiftdiffusion": 1 + nets, "katz": 2 + 2 * nets}.get(system, 1)


def per_gpu_rpm(runs: Runs, system: str, nets: int, loras: int) -> float:
    """Return images per minute of GPU time, one request at a time; LoRAs are unloaded between requests (4.2)."""
    return 60.0 / (latency_s(runs, system, nets, loras) * gpus_held(system, nets))


def over_best_baseline(runs: Runs) -> float:
    """Return the throughput per GPU at 1C/2L over that of the best baseline."""
    return per_gpu_rpm(runs, "swiftdiffusion", 1, 2) / max(per_gpu_rpm(runs, system, 1, 2) for system in BASELINES)


def gustafson(serial: float, parallel: float, processors: int) -> float:
    """Return the speedup by Gustafson's law, for a parallel part that uses all ``processors``."""
    return serial + parallel * processors


def lora_overhead_s(runs: Runs) -> float:
    """Return the seconds that two LoRAs add to the latency."""
    none, two = (runs.where(system="swiftdiffusion", loras=n).mean("latency_s", "mean") for n in (0, 2))
    return two - none


def lora_speedup(runs: Runs) -> float:
    """Return the largest speedup over diffusers of one and two LoRAs without ControlNets, both with plain kernels."""
    ours = runs.of(_FIGURE16).where(system="swiftdiffusion")
    theirs = runs.of(_PRINTED_LORAS)
    return max(
        latency_s(theirs, "diffusers", 0, loras) / ours.where(loras=loras).mean("latency_s", "mean") for loras in (1, 2)
    )


def patched_after(runs: Runs) -> float:
    """Return the mean number of steps before a LoRA is merged."""
    (run,) = runs
    return float(run.requests("patch_step")["patch_step"].drop_null().to_numpy().mean())


def loading_share(runs: Runs) -> float:
    """Return the seconds of loading add-ons over those from start to image, of all requests."""
    (run,) = runs
    table = run.requests("load_s", "start_s", "finish_s")
    load_s, start_s, finish_s = (table[name].to_numpy() for name in ("load_s", "start_s", "finish_s"))
    return float(load_s.sum() / (finish_s - start_s).sum())


def predicted_s(runs: Runs) -> list[float]:
    """Return the mean latencies [s] of the logged settings that nothing was fitted to."""
    (slow,) = runs.of(_SLOW)
    return [slow.number("latency_s", "mean") if at == SLOW else latency_s(runs.of(_FIGURE11), *at) for at in PREDICTED]


def cache_loads() -> list[float]:
    """Return the loads per request of an LRU cache on each node at the measured sizes, with nothing fitted to them."""
    sizes = measured_loads()["sizes"]
    return [curve.at(size) for curve in curves(sizes, share=0.25) for size in sizes]


def stalls(runs: Runs) -> list[float]:
    """Return the share of requests that wait for LoRAs, and the 95th percentile of the wait [s]."""
    (run,) = runs
    return [run.number("addons", "stalled_share"), run.number("addons", "stall_s", "p95")]


_FIGURE11 = ("swiftdiffusion-figure11", "swiftdiffusion-figure11-baselines")
_FIGURE16 = ("swiftdiffusion-figure16-loras",)
_PRINTED_LORAS = ("swiftdiffusion-printed-loras",)
_SLOW = ("swiftdiffusion-slow-storage",)

FASTER = ratio("diffusers", "swiftdiffusion", "latency_s", "mean")

MEASURES: Mapping[str, Measure] = {
    "S2": lambda runs: max(FASTER(runs.where(controlnets=nets, loras=loras)) for nets, loras in SETTINGS),
    "S3": lambda runs: FASTER(runs.where(controlnets=0, loras=0)),
    "S4": lambda runs: latency_s(runs, "swiftdiffusion", 0, 0) - latency_s(runs, "nirvana-20", 0, 0),
    "S5": over_best_baseline,
    "S6": lambda runs: per_gpu_rpm(runs, "swiftdiffusion", 1, 0) / per_gpu_rpm(runs, "diffusers", 1, 0),
    "S7": lambda runs: FASTER(runs.where(controlnets=3)),
    "S8": lambda _: gustafson(0.55, 0.45, 4),
    "S13": patched_after,
    "S15": lora_overhead_s,
    "S16": lora_speedup,
    "S21": loading_share,
    "S25": lambda _: cache_loads(),
    "K1": predicted_s,
    "K4": stalls,
}
"""Measures by target id; conf/data/scorecard-measures.yaml has the experiments of each."""
