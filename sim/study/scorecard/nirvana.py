"""How the numbers of NIRVANA's evaluation are measured (its section 7; the experiments are in conf/experiment)."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sim.study.scorecard.finished import Finished, Runs, Unmeasured, mean
from sim.study.scorecard.measures import (
    Measured,
    Number,
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
"""Items of Table 3's caches; an entry is five of them."""

POLICIES = ("fifo", "lru", "lfu", "lcbfu")

LONG_PROMPT = 15
"""Words from which a prompt is long (Table 4)."""


def best_single(power: float) -> float:
    """What the best single K saves, in units of K_T / N, where h(K) = 1 - (K / K_T)^power (footnote 1).

    K = K_T (power + 1)^(-1/power) saves most: the linear fall 1/4, the quadratic one 2 / (3 sqrt(3)).
    """
    return float((power + 1) ** (-1 / power) * power / (power + 1))


def lcbfu_saves_most(runs: Runs) -> bool:
    """At 150k items LCBFU saves more than every other policy, and LRU has more hits than LCBFU."""
    saved = {policy: per_size(saving, policy, CAPACITIES[2:3])(runs)[0] for policy in POLICIES}
    hit = {policy: per_size(hits, policy, CAPACITIES[2:3])(runs)[0] for policy in ("lru", "lcbfu")}
    return all(saved["lcbfu"] > saved[policy] for policy in POLICIES[:-1]) and hit["lru"] > hit["lcbfu"]


def requests_at_a_hole(runs: Runs) -> float:
    """Requests whose best entry lacked the state they should have had, over all; of the caches that evicted."""
    shares = [
        run.number("cache", "holes") / run.number("requests", "arrived")
        for run in runs.where(eviction="lcbfu")
        if run.number("cache", "evictions") > 0
    ]
    if not shares:
        raise Unmeasured("no cache of Table 3 was full: nothing was evicted")
    return mean(shares)


def short_prompts_do_better(runs: Runs) -> bool:
    """Hits on short prompts are of more similar prompts than hits on long ones."""
    return all(
        similarity_of_hits(run, short=True) > similarity_of_hits(run, short=False)
        for run in runs.where(system="nirvana")
    )


def similarity_of_hits(run: Finished, *, short: bool) -> float:
    """Mean similarity of the hits on prompts under `LONG_PROMPT` words, or on longer ones.

    Raises:
        Unmeasured: there is no such hit.
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
    """Mean seconds of a search, over the requests that made one."""
    means = []
    for run in runs.where(system="nirvana"):
        took_s = run.requests("search_s")["search_s"].to_numpy()
        means.append(float(took_s[took_s > 0].mean()))
    return mean(means)


def predictor(quality: str) -> Number:
    """Precision or recall of the match predictor."""
    return lambda runs: runs.where(system="nirvana").mean("cache", "predictor", quality)


_STEP = "C = 8.59 s: backends/profiles/a10g_nirvana-large.yaml (7.1)"
_TRAFFIC = "similarity: conf/scale; traffic: the column's trace"
_REUSE = f"thresholds: conf/selector/nirvana.yaml (Fig. 10); {_TRAFFIC}"
_TIMES = f"{_STEP}; l_s (4.1) and l_r (not published; its source is beside it): conf/door/nirvana.yaml; {_REUSE}"
_GPT_CACHE = f"{_STEP}; conf/door/gpt-cache.yaml; {_TRAFFIC}"
_PREDICTOR = "nu, the share that retrains and the threshold: conf/predictor (6, 7.7)"
_FITS = "has fixed conf/scale/ngram.yaml, together with the other rows of role fit"

_TABLE2 = ("nirvana-table2",)
_GPT_CACHE_ALONE = ("nirvana-table2-gpt-cache",)
_TABLE3 = ("nirvana-table3",)


def _table3(policy: str) -> dict[str, Measured]:
    fixed_by = _FITS if policy == "fifo" else _REUSE
    capacities = CAPACITIES if policy == "fifo" else CAPACITIES[:-1]
    return {
        f"N07-{policy}": Measured(_TABLE3, per_size(hits, policy, capacities), fixed_by),
        f"N08-{policy}": Measured(_TABLE3, per_size(saving, policy, capacities), fixed_by),
    }


def _largest(of: Callable[[Finished], float]) -> Measured:
    """A number of the policies that reuse counts for, at 1.5M items."""
    policies = [per_size(of, policy, CAPACITIES[-1:]) for policy in POLICIES[1:]]
    return Measured(_TABLE3, lambda runs: [policy(runs)[0] for policy in policies], _REUSE)


MEASURES: Mapping[str, Measured] = {
    "N01a": Measured(_TABLE2, latency_s("vanilla"), _STEP),
    "N01b": Measured(_TABLE2, latency_s("nirvana"), _TIMES),
    "N01c": Measured(_GPT_CACHE_ALONE, latency_s("gpt-cache"), _GPT_CACHE),
    "N02a": Measured(_TABLE2, over_median("nirvana", "p90"), _TIMES),
    "N02b": Measured(_TABLE2, over_median("nirvana", "p95"), _TIMES),
    "N02c": Measured(_TABLE2, over_median("nirvana", "p99"), _TIMES),
    "N02d": Measured(_GPT_CACHE_ALONE, over_median("gpt-cache", "p90"), _GPT_CACHE),
    "N02e": Measured(_TABLE2, over_median("vanilla", "p99"), _STEP),
    "N03a": Measured(_TABLE2, compute_saving("nirvana"), _REUSE),
    "N03b": Measured(_TABLE2, reduction("nirvana", "vanilla", "latency_s", "mean"), _TIMES),
    "N03c": Measured(
        ("nirvana-figure13",),
        reduction("nirvana", "vanilla", "cost_usd", "per_image"),
        f"prices: conf/cluster/a10g.yaml and conf/system/nirvana.yaml (7.2); {_TIMES}",
    ),
    "N04a": Measured(("nirvana-figure15",), hit_rate("nirvana"), _FITS, "hits over all requests, predicted misses too"),
    "N04b": Measured(("nirvana-figure15",), served_at("nirvana", 25), _FITS),
    "N05": Measured(("nirvana-figure12",), ratio("nirvana", "vanilla", "throughput_rpm"), _TIMES),
    "N09": Measured(
        _TABLE3, requests_at_a_hole, _REUSE, "the paper names no cache size: mean over those of Table 3 that evict"
    ),
    "N10a": Measured(_TABLE2, predictor("precision"), f"{_PREDICTOR}; {_REUSE}"),
    "N10b": Measured(_TABLE2, predictor("recall"), f"{_PREDICTOR}; {_REUSE}"),
    "N12a": Measured(
        ("nirvana-table5-bert",),
        lambda runs: [mean([hits(run) for run in runs]), mean([saving(run) for run in runs])],
        "scale: conf/scale/minilm.yaml, fitted to rows of role fit; thresholds: conf/selector/nirvana.yaml (Fig. 10)",
        "all-MiniLM-L6-v2 stands for BERT, which the paper does not name further",
        real_prompts=True,
    ),
    "N12b": Measured(
        ("nirvana-table5",),
        lambda runs: [hit_rate("nirvana-clip-image")(runs), compute_saving("nirvana-clip-image")(runs)],
        "thresholds: conf/selector/modm.yaml; images modelled from text: conf/space/image.yaml",
    ),
    "N16": Measured(
        _TABLE2,
        short_prompts_do_better,
        _REUSE,
        "no image is made: mean similarity of hits by length of the prompt",
    ),
    "N17": Measured(_TABLE2, latency_s("small-model"), "backends/profiles/a10g_nirvana-small.yaml (7.1)"),
    "N18": Measured(_TABLE2, search_latency, "conf/door/nirvana.yaml (4.1)"),
    "N19a": Measured((), lambda _: best_single(1), "nothing: a closed form"),
    "N19b": Measured((), lambda _: best_single(2), "nothing: a closed form"),
    **_table3("fifo"),
    **_table3("lru"),
    **_table3("lfu"),
    **_table3("lcbfu"),
    "N07-most": _largest(hits),
    "N08-most": _largest(saving),
    "N08-order": Measured(_TABLE3, lcbfu_saves_most, _REUSE),
}
"""Target id -> how it is measured; a target that is not here is not simulated yet."""
