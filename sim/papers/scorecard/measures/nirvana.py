"""Measures of NIRVANA's evaluation (section 7) that no formula states."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured, mean

CAPACITIES = (1_500, 15_000, 150_000, 1_500_000)
"""Items of Table 3's caches; a prompt has five."""

LONG_PROMPT = 15
"""Lowest number of words of a long prompt (Table 4)."""


def best_single(power: float) -> float:
    """Return the saving of the best single K, in units of K_T / N, for h(K) = 1 - (K / K_T)^power (footnote 1).

    K = K_T (power + 1)^(-1/power) saves most: 1/4 for power 1, 2 / (3 sqrt(3)) for power 2.
    """
    return float((power + 1) ** (-1 / power) * power / (power + 1))


def served_at(runs: Runs, system: str, k: str) -> float:
    """Return the share of all requests that skipped ``k`` steps."""

    def share(run: Finished) -> float:
        is_used = k in (run.summary["cache"]["hit_share_by_k"] or {})
        hit_rate = run.number("cache", "hits") / run.number("requests", "arrived")
        return hit_rate * run.number("cache", "hit_share_by_k", k) if is_used else 0.0

    return mean([share(run) for run in runs.where(system=system)])


def requests_at_a_hole(runs: Runs) -> float:
    """Return the share of requests whose best match lacked the needed step, over the caches that evicted."""
    shares = [
        run.number("cache", "holes") / run.number("requests", "arrived")
        for run in runs.where(eviction="lcbfu")
        if run.number("cache", "evictions") > 0
    ]
    if not shares:
        raise Unmeasured("no cache of Table 3 was full: nothing was evicted")
    return mean(shares)


def similarity_of_hits(run: Finished, *, short: bool) -> float:
    """Return the mean similarity of hits on prompts under `LONG_PROMPT` words (``short``), or on longer ones.

    Raises Unmeasured: there is no such hit.
    """
    prompts = run.trace().prompts()[run.config["preload"] :]
    words = pc.list_value_length(pc.split_pattern_regex(pc.utf8_trim_whitespace(prompts), r"\s+"))
    table = run.requests("similarity", "source_id").append_column("words", pa.chunked_array(words))
    length = pc.field("words") < LONG_PROMPT if short else pc.field("words") >= LONG_PROMPT
    similar = table.filter(length & pc.field("source_id").is_valid())["similarity"]
    if not len(similar):
        raise Unmeasured("one of the two kinds of prompts has no hit")
    return float(np.mean(similar.to_numpy()))


def search_s(runs: Runs) -> float:
    """Return the mean seconds of a search, over the requests that searched."""
    seconds = [run.requests("search_s")["search_s"].to_numpy() for run in runs.where(system="nirvana")]
    return mean([float(of_run[of_run > 0].mean()) for of_run in seconds])
