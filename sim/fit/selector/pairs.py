"""Draw pairs of a query and a cached prompt whose similarities spread over the whole range."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.streams import PAIRS, stream
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.similarities import DECIMALS
from mezzotint.traces.table.trace import Trace

BLOCK = 2000
"""Consecutive requests that are compared with one another, so that sessions of similar prompts stay together."""

STRATA = 10


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and the earlier request whose artifact it starts from: trace rows, prompts, text similarity."""

    query: int
    cached: int
    similarity: float
    query_prompt: str
    cached_prompt: str


def choose(trace: Trace, embeddings: NDArray[np.float32], count: int, seed: int) -> list[Pair]:
    """Draw ``count`` pairs by similarity, evenly from ten strata of equal width from 0 to 1 until each is empty.

    If every query met its nearest cached prompt, as in serving (NIRVANA, Algorithm 2), most pairs would have one
    similarity. A query comes once; its partner is any earlier request. A longer draw begins with the pairs of a
    shorter one. Requests without a prompt are skipped.

    Args:
        embeddings: unit rows, (n, d) float32, one per request.

    Raises:
        TraceError: the trace has too few prompts.
    """
    prompts = [prompt or "" for prompt in trace.prompts().to_pylist()]
    rows = np.array([row for row, prompt in enumerate(prompts) if prompt.strip()], np.int64)
    rng = stream(seed, PAIRS)
    blocks = [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]
    pairs: list[Pair] = []
    for index in rng.permutation(len(blocks)):
        block = blocks[index]
        # half of a block at most, since the similar pairs of a block are soon used up
        max_pairs = len(block) // 2 if len(blocks) > 1 else len(block)
        for taken, (query, cached, similarity) in enumerate(_spread(block, embeddings[block], rng)):
            if taken == max_pairs or len(pairs) == count:
                break
            pairs.append(Pair(query, cached, similarity, prompts[query], prompts[cached]))
    if len(pairs) < count:
        raise TraceError(
            f"trace {trace.name}: its {len(rows)} prompts make {len(pairs)} pairs, expected {count}; take a longer "
            "trace or fewer --pairs"
        )
    return pairs


def _spread(
    rows: NDArray[np.int64], vectors: NDArray[np.float32], rng: np.random.Generator
) -> Iterator[tuple[int, int, float]]:
    """Yield (query, cached, similarity) of ``rows``, one from each stratum in turn, each query once."""
    later, earlier = np.tril_indices(len(rows), -1)
    # rounded like a search of the cache, so that ties are ties on every machine
    double = vectors.astype(np.float64)
    similarity = np.round((double @ double.T)[later, earlier], DECIMALS)
    order = rng.permutation(len(later))
    stratum = np.clip((similarity[order] * STRATA).astype(np.int64), 0, STRATA - 1)
    waiting = [iter(order[stratum == number].tolist()) for number in reversed(range(STRATA))]
    used: set[int] = set()
    while waiting:
        left = []
        for candidates in waiting:
            for pair in candidates:
                if int(later[pair]) not in used:
                    left.append(candidates)
                    used.add(int(later[pair]))
                    yield int(rows[later[pair]]), int(rows[earlier[pair]]), float(similarity[pair])
                    break
        waiting = left
