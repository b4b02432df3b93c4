"""NIRVANA's Table 3 under alternative interpretations of the paper, and under the default one."""

from dataclasses import dataclass

from mezzotint.sim.papers.runs import Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.formulas import Formula
from mezzotint.sim.papers.scorecard.measures.nirvana import CAPACITIES
from mezzotint.sim.papers.scorecard.verdict import round_value

READINGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("default: uses fade, f from 1, misses alone are stored", "nirvana-table3", ("fifo", "lru", "lfu", "lcbfu")),
    ("uses never fade", "nirvana-table3-readings", ("lfu-plain", "lcbfu-plain")),
    ("uses never fade, f from 0 as the artifact counts", "nirvana-table3-readings", ("lcbfu-artifact",)),
    ("every prompt is stored", "nirvana-table3-cache-all", ("fifo", "lru", "lfu", "lcbfu")),
)
"""Each interpretation in words, with its experiment and the eviction policies in it."""

EXPERIMENTS = tuple(dict.fromkeys(experiment for _, experiment, _ in READINGS))

SIZES = CAPACITIES[:-1]
"""Items of Table 3's caches that evict."""


@dataclass(frozen=True, slots=True)
class Interpretation:
    """One eviction policy under one interpretation, at `SIZES`; None, with a reason, if not run."""

    reading: str
    policy: str
    hit_rate: list[float] | None
    saving: list[float] | None
    reason: str | None = None


def interpret(runs: Runs) -> list[Interpretation]:
    """Measure every policy under every interpretation, from the runs of `EXPERIMENTS`."""
    return [
        _interpret(reading, policy, runs.of([experiment]))
        for reading, experiment, policies in READINGS
        for policy in policies
    ]


def _interpret(reading: str, policy: str, runs: Runs) -> Interpretation:
    def at_sizes(value: str, per: str | None = None) -> list[float]:
        formula = Formula(value=value, per=per, of={"eviction": policy}, by={"capacity": [*SIZES]})
        rounded: list[float] = round_value(formula(runs))
        return rounded

    try:
        hit_rate, saving = at_sizes("cache.hits", "requests.arrived"), at_sizes("cache.compute_saving")
    except Unmeasured as error:
        return Interpretation(reading, policy, None, None, str(error))
    return Interpretation(reading, policy, hit_rate, saving)
