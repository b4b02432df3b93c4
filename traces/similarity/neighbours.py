"""Every row's earlier neighbours: found once per trace and encoder, cached on disk, valid for any artifact cache.

The best artifact for a row is its first neighbour, best first, that is in the artifact cache.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from mezzotint.traces.encoders.disk_cache import asked_before, compute_once
from mezzotint.traces.similarity.bound import SLACK, Bound, cheapest
from mezzotint.traces.similarity.similarities import DECIMALS, Floats, SimilaritySource, similarity

Indices = NDArray[np.int64]

UNIT = 10**DECIMALS
"""Similarities are stored as whole millionths."""

KIND, VERSION = "neighbours", 2
QUERIES, ARTIFACTS, PAIRS = 512, 16_384, 1024
"""Rows compared at a time, and pairs compared in full: blocks that fit into the processor's caches."""

BLOCK, HEAD = 4096, 16
"""Rows whose neighbours are read at a time, and neighbours of each: usually one of them is in the cache."""

BAR = "{desc}: {percentage:3.0f} %|{bar}| {elapsed}, {remaining} left"

FILES = {"ends": (np.int64, ()), "rows": (np.int32, ()), "units": (np.int32, ()), "complete": (np.bool_, ())}


Heads = tuple[int, int, list[int], list[int], list[int], list[bool]]
"""The most similar neighbours, at most `HEAD`, of each row of a block, as Python's numbers.

The first row of the block and the one after its last; where the neighbours of each row begin, (rows + 1); the
neighbours, end to end, and their similarities in millionths; and True for each row that has no further neighbours.
"""


@dataclass(slots=True)
class Neighbours:
    """Neighbour lists of all rows, end to end: those of row i are ``rows[ends[i - 1]:ends[i]]``.

    Attributes:
        ends: (n,) int64.
        rows: (m,) int32, by similarity, highest first, ties by row, earliest first.
        units: (m,) int32, similarity in millionths.
        complete: (n,) bool, True if the list has all rows above the floor.
    """

    ends: NDArray[np.int64]
    rows: NDArray[np.int32]
    units: NDArray[np.int32]
    complete: NDArray[np.bool_]
    heads: Heads = field(init=False, default=(0, 0, [], [], [], []), repr=False)
    """Those of the last block; ``load_heads`` replaces them."""

    def load_heads(self, row: int) -> Heads:
        """Return the heads of a block of rows from ``row`` on."""
        start, stop = row, min(row + BLOCK, len(self.ends))
        # first, last: for each row of the block, where its list begins in ``self.rows`` and ends in the heads' own
        # lists.
        first = np.concatenate(([self.ends[row - 1] if row else 0], self.ends[row : stop - 1]))
        known = self.ends[row:stop] - first
        count = np.minimum(known, HEAD)
        last = np.cumsum(count)
        # places: positions in ``self.rows``, the first ``count`` of each row end to end.
        places = np.arange(last[-1]) + np.repeat(first - last + count, count)
        # A list longer than the head has further neighbours, however complete it is.
        complete = self.complete[row:stop] & (known <= HEAD)
        self.heads = (
            start, stop, [0, *last.tolist()], self.rows[places].tolist(), self.units[places].tolist(),
            complete.tolist(),
        )  # fmt: skip
        return self.heads

    def first(self, row: int, count: int) -> tuple[list[int], list[int], bool]:
        """Return the first ``count`` neighbours of ``row``, their similarities, and True if there are no others."""
        start, stop = self.ends[row - 1] if row else 0, self.ends[row]
        own = slice(start, min(start + count, stop))
        return self.rows[own].tolist(), self.units[own].tolist(), bool(self.complete[row]) and stop - start <= count


def cached_neighbours(
    source: SimilaritySource, rows: int, floor: float, max_neighbours: int, content: str | None
) -> Neighbours:
    """Return every row's earlier rows with a similarity of at least ``floor``, the ``max_neighbours`` most similar.

    The search is exact: pairs whose bound is below the floor are dropped, the others compared in full. Equal artifacts
    (repeated prompts) are compared once, and so are equal queries of a block.

    Args:
        content: names the trace and the encoder in the disk cache; None caches nothing.
    """
    if content is None:
        blocks = _blocks(source, rows, floor, max_neighbours, np.empty(0, np.int64), progress=False)
        return Neighbours(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    facts = _facts(source, rows, floor, max_neighbours, content)
    return Neighbours(
        **compute_once(
            KIND, facts, rows, FILES, lambda done: _blocks(source, rows, floor, max_neighbours, done["ends"])
        )
    )


def asked_for_neighbours(
    source: SimilaritySource, rows: int, floor: float, max_neighbours: int, content: str | None
) -> float:
    """Return how often this was called before for these neighbours; infinity if they are known, or cannot be kept."""
    if content is None:
        return np.inf
    return asked_before(KIND, _facts(source, rows, floor, max_neighbours, content))


def _facts(source: SimilaritySource, rows: int, floor: float, max_neighbours: int, content: str) -> dict[str, object]:
    facts = {"version": VERSION, "content": content, "space": source.key, "floor": floor, "rows": rows}
    return {**facts, "most": max_neighbours}


def _blocks(
    source: SimilaritySource, rows: int, floor: float, max_neighbours: int, done: Indices, progress: bool = True
) -> Iterator[tuple[Indices, NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]]:
    """Yield the neighbours of the rows after the first ``len(done)``, block by block; ``done`` are the ends so far.

    ``progress`` shows a bar with the time left if standard error is a terminal.
    """
    bound = cheapest(source, rows, floor)
    groups = _grouped(source.artifacts(part) for part in _cut(np.arange(rows)))
    short = np.concatenate([bound.short(source.artifacts(part)) for part in _cut(groups.first)])
    # begin counts rows, end neighbours: the search resumes after both
    # (test_neighbours_are_computed_once_and_an_interrupted_search_resumes).
    begin, end = len(done), int(done[-1]) if len(done) else 0
    off = None if progress else True
    with tqdm(total=rows * rows, initial=begin**2, desc="find neighbours", bar_format=BAR, disable=off) as bar:
        for start in range(begin, rows, QUERIES):
            stop = min(start + QUERIES, rows)
            at, neighbour, unit = _sorted(*_block(source, bound, groups, short, start, stop, floor), rows)
            found = np.bincount(at, minlength=stop - start)
            # rank: place in the row's own list, since pairs are sorted by row.
            rank = np.arange(len(at)) - np.repeat(np.cumsum(found) - found, found)
            ends = end + np.cumsum(np.minimum(found, max_neighbours))
            end = int(ends[-1])
            yield (
                ends,
                neighbour[rank < max_neighbours].astype(np.int32),
                unit[rank < max_neighbours].astype(np.int32),
                # Of a list that is cut, neighbours are unknown from there on; equal counts cut nothing.
                found <= max_neighbours,
            )
            bar.update(stop**2 - start**2)  # a row is compared with all before it


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows (n) in groups (k) of equal vectors, groups in the order of their first rows.

    Attributes:
        number: (n,) the group of each row.
        first: (k,) the first row of each group.
        rows: (n,) the rows by group, in order.
        start: (k,) the place in ``rows`` where each group begins.
    """

    number: Indices
    first: Indices
    rows: Indices
    start: Indices


def _grouped(parts: Iterable[Floats]) -> _Groups:
    """Group the rows of ``parts``, one after another, by their vectors."""
    numbers: dict[bytes, int] = {}
    # By bytes: equal vectors have equal similarities to the bit, close ones do not.
    hashes = (hashlib.blake2b(row, digest_size=16).digest() for part in parts for row in np.ascontiguousarray(part))
    number = np.array([numbers.setdefault(each, len(numbers)) for each in hashes], np.int64)
    # Stable, so that the rows of a group ascend: _block takes those before a row as a prefix.
    rows = np.argsort(number, kind="stable")
    size = np.bincount(number)
    start = np.cumsum(size) - size
    return _Groups(number, rows[start], rows, start)


def _block(
    source: SimilaritySource, bound: Bound, groups: _Groups, short: Floats, start: int, stop: int, floor: float
) -> tuple[Indices, Indices, Indices]:
    """Return (query - start, earlier row, millionths) of all pairs at or above the floor, queries start..stop-1."""
    full = source.queries(start, stop)
    # Four index spaces follow. at: row of the block less ``start``. query: number of a distinct vector of the block.
    # group: number of a group of equal artifacts. neighbour, first: rows of the trace.
    distinct = _grouped([full])
    # last: for each query, the last row of the block that asks it.
    last = np.zeros(len(distinct.first), np.int64)
    np.maximum.at(last, distinct.number, np.arange(start, stop))
    # Groups come in the order of their first rows: those from the last row of the block on have no earlier row.
    query, group = _candidates(
        bound.short(full[distinct.first]), short[: np.searchsorted(groups.first, stop - 1)], floor
    )
    # Before the costly comparison: a group of which no row is earlier than any row of the query.
    earlier = groups.first[group] < last[query]
    query, group = query[earlier], group[earlier]
    exact = _similarities(source, full[distinct.first], query, groups.first[group])
    # The bound lets pairs below the floor pass; the similarity itself decides.
    reach = exact >= floor
    query, group, unit = query[reach], group[reach], np.rint(exact[reach] * UNIT).astype(np.int64)
    # expand distinct queries to their rows, then groups of artifacts to theirs
    # pair: position among the pairs of a query and a group that are left, which are sorted by query.
    count = np.bincount(query, minlength=len(last))
    at, pair = _spread((np.cumsum(count) - count)[distinct.number], count[distinct.number])
    group, unit = group[pair], unit[pair]
    # known: rows of each group before ``stop``, the first ones of its rows.
    known = np.bincount(groups.number[:stop], minlength=len(groups.first))
    # pair: position among the pairs of a row of the block and a group; place: position in ``groups.rows``.
    pair, place = _spread(groups.start[group], known[group])
    at, neighbour = at[pair], groups.rows[place]
    # Again, by row: of equal queries the earlier ones have fewer earlier rows, and no row is its own neighbour
    # (test_neighbours_match_a_comparison_of_all_pairs).
    earlier = neighbour < at + start
    return at[earlier], neighbour[earlier], unit[pair][earlier]


def _candidates(queries: Floats, artifacts: Floats, floor: float) -> tuple[Indices, Indices]:
    """Return the pairs of short vectors whose bound reaches the floor, by query."""
    # A bound may round to below the product that it bounds (test_every_search_matches_brute_force).
    lowest = np.float32(floor) - SLACK
    found = [(np.empty(0, np.int64),) * 2]
    for low in range(0, len(artifacts), ARTIFACTS):
        some = artifacts[low : low + ARTIFACTS]
        query, group = np.divmod(np.flatnonzero((queries @ some.T).ravel() >= lowest), len(some))
        found.append((query, group + low))
    query, group = (np.concatenate(column) for column in zip(*found, strict=True))
    # Artifacts came part by part; all that follows takes the pairs of a query as one run.
    order = np.argsort(query, kind="stable")
    return query[order], group[order]


def _similarities(source: SimilaritySource, queries: Floats, query: Indices, row: Indices) -> NDArray[np.float64]:
    """Return `similarity` of pairs of a query and an artifact, by query: the same numbers by a faster product.

    Summing in another order changes a product by less than 1e-12. Products that close to a rounding boundary are
    computed again in the order of `similarity`.
    """
    products = np.empty(len(query))
    ends = np.cumsum(np.bincount(query, minlength=len(queries))).tolist()
    begin = 0
    for one, end in zip(queries.astype(np.float64), ends, strict=True):
        for at in range(begin, end, PAIRS):
            some = slice(at, min(at + PAIRS, end))
            np.matmul(source.artifacts(row[some]).astype(np.float64), one, out=products[some])
        begin = end
    # 1e-12 of a product is 1e-12 * UNIT of a unit.
    halves = np.flatnonzero(np.abs(products * UNIT % 1.0 - 0.5) < 1e-12 * UNIT)
    exact = np.round(products, DECIMALS)
    exact[halves] = similarity(queries[query[halves]], source.artifacts(row[halves]))
    return exact


def _sorted(at: Indices, neighbour: Indices, unit: Indices, rows: int) -> tuple[Indices, Indices, Indices]:
    """Sort by query, then by similarity, highest first, then by row: as one number each, of less than 2^63."""
    # At most QUERIES rows x 2 * UNIT + 1 similarities x rows: below 2^63 for traces of up to 9 billion rows.
    top = unit.max(initial=0)
    span = int(top - unit.min(initial=0)) + 1
    key = np.sort((at * span + (top - unit)) * rows + neighbour)
    rest, neighbour = np.divmod(key, rows)
    at, below = np.divmod(rest, span)
    return at, neighbour, top - below


def _spread(start: Indices, count: Indices) -> tuple[Indices, Indices]:
    """Return, for ranges of ``count`` places from ``start`` on, the range of each place, and the place."""
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) + (start - (np.cumsum(count) - count))[which]


def _cut(rows: Indices) -> list[Indices]:
    return np.split(rows, range(ARTIFACTS, len(rows), ARTIFACTS))
