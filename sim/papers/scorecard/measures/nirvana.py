"""Measures of NIRVANA's evaluation (section 7; experiments: conf/experiment)."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured, mean
from mezzotint.sim.papers.scorecard.measures.formulas import (
    Measure,
    Number,
    Numbers,
    compute_saving,
    hit_rate,
    hits,
    latency_s,
    over_median,
    per_size,
    ratio,
    reduction,
    saving,
    served_at,
)

CAPACITIES = (1_500, 15_000, 150_000, 1_500_000)
"""Items of Table 3's caches; a prompt has five."""

POLICIES = ("fifo", "lru", "lfu", "lcbfu")

LONG_PROMPT = 15
"""Lowest number of words of a long prompt (Table 4)."""


def best_single(power: float) -> float:
    """Return the saving of the best single K, in units of K_T / N, for h(K) = 1 - (K / K_T)^power (footnote 1).

    K = K_T (power + 1)^(-1/power) saves most: 1/4 for power 1, 2 / (3 sqrt(3)) for power 2.
    """
    return float((power + 1) ** (-1 / power) * power / (power + 1))


def has_lcbfu_highest_saving(runs: Runs) -> bool:
    """Return True if at 150k items LCBFU saves more than all other policies, and LRU has more hits than LCBFU."""
    saved = {policy: per_size(saving, policy, CAPACITIES[2:3])(runs)[0] for policy in POLICIES}
    hit = {policy: per_size(hits, policy, CAPACITIES[2:3])(runs)[0] for policy in ("lru", "lcbfu")}
    return all(saved["lcbfu"] > saved[policy] for policy in POLICIES[:-1]) and hit["lru"] > hit["lcbfu"]


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


def search_latency(runs: Runs) -> float:
    """Return the mean seconds of a search, over the requests that searched."""
    means = []
    for run in runs.where(system="nirvana"):
        search_s = run.requests("search_s")["search_s"].to_numpy()
        means.append(float(search_s[search_s > 0].mean()))
    return mean(means)


def predictor_quality(quality: str) -> Number:
    """Measure precision or recall of the match predictor."""
    return lambda runs: runs.where(system="nirvana").mean("cache", "predictor", quality)


def largest(of: Callable[[Finished], float]) -> Numbers:
    """Measure a number of LRU, LFU and LCBFU at 1.5M items."""
    return lambda runs: [per_size(of, policy, CAPACITIES[-1:])(runs)[0] for policy in POLICIES[1:]]


MEASURES: Mapping[str, Measure] = {
    "N01a": latency_s("vanilla"),
    "N01b": latency_s("nirvana"),
    "N01c": latency_s("gpt-cache"),
    "N02a": over_median("nirvana", "p90"),
    "N02b": over_median("nirvana", "p95"),
    "N02c": over_median("nirvana", "p99"),
    "N02d": over_median("gpt-cache", "p90"),
    "N02e": over_median("vanilla", "p99"),
    "N03a": compute_saving("nirvana"),
    "N03b": reduction("nirvana", "vanilla", "latency_s", "mean"),
    "N03c": reduction("nirvana", "vanilla", "cost_usd", "per_image"),
    "N04a": hit_rate("nirvana"),
    "N04b": served_at("nirvana", 25),
    "N05": ratio("nirvana", "vanilla", "throughput_rpm"),
    "N09": requests_at_a_hole,
    "N10a": predictor_quality("precision"),
    "N10b": predictor_quality("recall"),
    "N12a": lambda runs: [mean([hits(run) for run in runs]), mean([saving(run) for run in runs])],
    "N12b": lambda runs: [hit_rate("nirvana-clip-image")(runs), compute_saving("nirvana-clip-image")(runs)],
    "N17": latency_s("small-model"),
    "N18": search_latency,
    "N19a": lambda _: best_single(1),
    "N19b": lambda _: best_single(2),
    **{
        f"{row}-{policy}": per_size(of, policy, CAPACITIES if policy == "fifo" else CAPACITIES[:-1])
        for row, of in (("N07", hits), ("N08", saving))
        for policy in POLICIES
    },
    "N07-most": largest(hits),
    "N08-most": largest(saving),
    "N08-order": has_lcbfu_highest_saving,
}
"""Measures by target id; conf/data/scorecard-measures.yaml has the experiments of each."""
