"""NIRVANA's Table 3 under alternative interpretations of the paper, and under the default one."""

from dataclasses import dataclass

from mezzotint.sim.papers.runs import Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.formulas import hits, per_size, saving

CAPACITIES = (1_500, 15_000, 150_000)
"""Items of Table 3's caches that evict."""

DEFAULT = "default: uses fade, f from 1, misses alone are stored"

READINGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (DEFAULT, "nirvana-table3", ("fifo", "lru", "lfu", "lcbfu")),
    ("uses never fade", "nirvana-table3-readings", ("lfu-plain", "lcbfu-plain")),
    ("uses never fade, f from 0 as the artifact counts", "nirvana-table3-readings", ("lcbfu-artifact",)),
    ("every prompt is stored", "nirvana-table3-cache-all", ("fifo", "lru", "lfu", "lcbfu")),
)
"""Each interpretation in words, with its experiment and the eviction policies in it."""

EXPERIMENTS = tuple(dict.fromkeys(experiment for _, experiment, _ in READINGS))


@dataclass(frozen=True, slots=True)
class Interpretation:
    """One eviction policy under one interpretation, at `CAPACITIES`; None, with a reason, if not run."""

    reading: str
    policy: str
    hit_rate: list[float] | None
    saving: list[float] | None
    reason: str | None = None


def measure(runs: Runs) -> list[Interpretation]:
    """Measure every policy under every interpretation, from the runs of `EXPERIMENTS`."""
    return [
        _measured(words, policy, runs.of([experiment]))
        for words, experiment, policies in READINGS
        for policy in policies
    ]


def _measured(words: str, policy: str, runs: Runs) -> Interpretation:
    try:
        found, saved = (
            [float(f"{each:.6g}") for each in per_size(of, policy, CAPACITIES)(runs)] for of in (hits, saving)
        )
    except Unmeasured as error:
        return Interpretation(words, policy, None, None, str(error))
    return Interpretation(words, policy, found, saved)
