"""Measures of SwiftDiffusion's evaluation (section 6, Katz's logs) that no formula states."""

from mezzotint.sim.papers.addons import curves, measured_loads
from mezzotint.sim.papers.runs import Runs

BASELINES = ("diffusers", "nirvana-10", "nirvana-20")
"""The paper's own baselines (6.1)."""

CALIBRATED = ((0, 0), (1, 0), (0, 1), (3, 0))
"""ControlNets and LoRAs of the settings that the H800 profile and the systems' factors were fitted to."""

SLOW = ("katz", 1, 2)
"""The setting (system, ControlNets, LoRAs) that was logged on a day of slow storage."""


def gpus_held(system: str, nets: int) -> int:
    """Return the GPUs that a request with ``nets`` ControlNets holds."""
    if system == "distrifusion-add-ons":
        return (2, 4, 8, 8)[nets]
    return {"swiftdiffusion": 1 + nets, "katz": 2 + 2 * nets}.get(system, 1)


def per_gpu_rpm(runs: Runs, system: str, nets: int, loras: int) -> float:
    """Return images per minute of GPU time, one request at a time; LoRAs are unloaded between requests (4.2)."""
    latency_s = runs.where(system=system, controlnets=nets, loras=loras).mean("latency_s", "mean")
    return 60.0 / (latency_s * gpus_held(system, nets))


def over_baselines(runs: Runs, nets: int, loras: int, baselines: tuple[str, ...] = BASELINES) -> float:
    """Return the throughput per GPU over that of the best baseline."""
    return per_gpu_rpm(runs, "swiftdiffusion", nets, loras) / max(
        per_gpu_rpm(runs, system, nets, loras) for system in baselines
    )


def over_slowest_baseline(runs: Runs, nets: int, loras: int) -> float:
    """Return the largest ratio of the throughput per GPU to a baseline's."""
    return max(over_baselines(runs, nets, loras, (system,)) for system in BASELINES)


def gustafson(serial: float, parallel: float, processors: int) -> float:
    """Return the speedup by Gustafson's law, for a parallel part that uses all ``processors``."""
    return serial + parallel * processors


def loading_share(runs: Runs) -> float:
    """Return the seconds of loading add-ons over those from start to image, of all requests."""
    (run,) = runs
    table = run.requests("load_s", "start_s", "finish_s")
    load_s, start_s, finish_s = (table[name].to_numpy() for name in ("load_s", "start_s", "finish_s"))
    return float(load_s.sum() / (finish_s - start_s).sum())


def cache_loads() -> list[float]:
    """Return the loads per request of an LRU cache on each node at the measured sizes, with nothing fitted to them."""
    sizes = measured_loads()["sizes"]
    return [curve.at(size) for curve in curves(sizes, share=0.25) for size in sizes]
