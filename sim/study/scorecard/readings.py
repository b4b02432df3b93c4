"""Other readings of the paper: what NIRVANA's Table 3 becomes under each, beside the one that is the default."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.study.scorecard.finished import Runs, Unmeasured
from sim.study.scorecard.measures import hits, per_size, saving

CAPACITIES = (1_500, 15_000, 150_000)
"""Items of the caches of Table 3 that evict."""

DEFAULT = "default: uses fade, f from 1, misses alone are stored"

READINGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (DEFAULT, "nirvana-table3", ("fifo", "lru", "lfu", "lcbfu")),
    ("uses never fade", "nirvana-table3-readings", ("lfu-plain", "lcbfu-plain")),
    ("uses never fade, f from 0 as the artifact counts", "nirvana-table3-readings", ("lcbfu-artifact",)),
    ("every prompt is stored", "nirvana-table3-cache-all", ("fifo", "lru", "lfu", "lcbfu")),
)
"""In words, the experiment, and the policies of it."""

EXPERIMENTS = tuple(dict.fromkeys(experiment for _, experiment, _ in READINGS))

ARGUMENT = (
    "The paper prints neither how the counts of LFU and LCBFU forget nor what f starts from; its text stores a "
    "prompt that matched nothing (5.4). Counts that never fade fill a small cache with what was popular once, and "
    "with f from 0 what was never used is always the next to go, so that K plays no part. With dynamic ageing "
    "(LFUDA: the key is the worth plus the key of the last victim at the time of the use) LFU came out a little "
    "above LRU on a log of the service, both well above FIFO, and LCBFU saved the most, as printed. With every "
    "prompt stored LRU gains nothing over FIFO on real prompts, and far more than the 8 % printed would start at "
    "K = 25, as a quarter of the prompts repeat exactly. The default was chosen after rows like these had been "
    "seen; it is one for all rows and has no parameter."
)
"""Why the default is what it is."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One policy under one reading, at the caches of `CAPACITIES`.

    Attributes:
        reading: in words.
        policy: the eviction.
        hit_rate, saving: by capacity; None if it was not run.
        reason: why it was not.
    """

    reading: str
    policy: str
    hit_rate: list[float] | None
    saving: list[float] | None
    reason: str | None = None


def measure(runs: Runs) -> list[Reading]:
    """Every policy under every reading, from the runs of `EXPERIMENTS`."""
    return [
        _measured(words, policy, runs.of([experiment]))
        for words, experiment, policies in READINGS
        for policy in policies
    ]


def _measured(words: str, policy: str, runs: Runs) -> Reading:
    try:
        found = [_rounded(per_size(of, policy, CAPACITIES)(runs)) for of in (hits, saving)]
    except Unmeasured as absent:
        return Reading(words, policy, None, None, str(absent))
    return Reading(words, policy, *found)


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{each:.6g}") for each in values]
