"""Every row's earlier neighbours: found once for a trace and an encoder, remembered on disk, true for any cache.

A request can only start from an artifact of an earlier row. So the list of a row's earlier rows above the floor,
best first, answers every search that any run will make for it: the best artifact is the first of the list that is
in the cache then.
"""

import hashlib
import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from conf.atomic import atomic_folder
from traces.encoders import disk_cache
from traces.similarity.bound import SLACK, cheapest
from traces.similarity.spaces import DECIMALS, Space, similarity

UNIT = 10**DECIMALS
"""Similarities are kept as whole millionths."""

VERSION = 2
QUERIES, ARTIFACTS, PAIRS = 512, 16_384, 1024
"""Rows compared at a time, and pairs of them in full: blocks that stay in the processor's caches."""

BLOCK, HEAD = 4096, 16
"""Rows whose neighbours are read at a time, and how many of each; one of these is in most caches."""

READ_BYTES = 1 << 22
"""Bytes of a file that are checked at a time."""

FILES = ("ends", "rows", "units", "complete")


@dataclass(slots=True)
class Neighbours:
    """Lists of rows laid end to end: row i's are ``rows[ends[i - 1]:ends[i]]``.

    Attributes:
        ends: (n,) int64.
        rows: (m,) int32, by similarity, highest first, among equals the earliest row first.
        units: (m,) int32, similarity in millionths.
        complete: (n,) bool: whether all rows above the floor are there.
    """

    ends: NDArray[np.int64]
    rows: NDArray[np.int32]
    units: NDArray[np.int32]
    complete: NDArray[np.bool_]
    _heads: tuple[int, int, list[int], list[int], list[int], list[bool]] = field(
        init=False, default=(0, 0, [], [], [], []), repr=False
    )

    def head(self, row: int) -> tuple[list[int], list[int], range, bool]:
        """The most similar neighbours of ``row``, ``HEAD`` of them at most, and their similarities in millionths.

        Both are lists of a block of rows; the range says where in them is what belongs to ``row``, the last value
        whether there are no others.
        """
        start, stop, ends, rows, units, alone = self._heads
        if not start <= row < stop:
            start, stop = row, min(row + BLOCK, len(self.ends))
            first = np.concatenate(([self.ends[row - 1] if row else 0], self.ends[row : stop - 1]))
            known = self.ends[row:stop] - first
            count = np.minimum(known, HEAD)
            last = np.cumsum(count)
            places = np.arange(last[-1]) + np.repeat(first - last + count, count)
            ends, rows, units = [0, *last.tolist()], self.rows[places].tolist(), self.units[places].tolist()
            alone = (self.complete[row:stop] & (known <= HEAD)).tolist()
            self._heads = start, stop, ends, rows, units, alone
        at = row - start
        return rows, units, range(ends[at], ends[at + 1]), alone[at]

    def whole(self, row: int) -> tuple[list[int], list[int], bool]:
        """All neighbours of ``row`` that are known, their similarities, and whether there are no others."""
        its = slice(self.ends[row - 1] if row else 0, self.ends[row])
        return self.rows[its].tolist(), self.units[its].tolist(), bool(self.complete[row])


def remembered(space: Space, rows: int, floor: float, most: int, content: str | None) -> Neighbours:
    """The neighbours of every row, from disk where they are, else found and kept there.

    What is on disk is checked whenever it is opened (CRC-32; a GB takes 0.6 s). What was damaged is found
    again, and where nothing can be kept nothing is; both are said on standard error.

    Args:
        space, rows, floor, most: see ``find``.
        content: names the trace and the encoder; None finds them and keeps nothing.

    Raises:
        TraceError: $MEZZOTINT_CACHE_GIB is no number.
    """
    if content is None:
        return find(space, rows, floor, most)
    facts = {"version": VERSION, "content": content, "space": space.key, "floor": floor, "most": most, "rows": rows}
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
    folder = disk_cache.home() / "neighbours" / name
    if os.path.isdir(folder):
        known = _read(folder, facts)
        if known is not None:
            disk_cache.used(folder)
            return known
    disk_cache.most_bytes()  # a wrong setting is found before the work, not after it
    found = find(space, rows, floor, most, progress=True)
    if os.path.isdir(folder):  # another process was faster, or it is damaged and cannot be removed
        return found
    try:
        _keep(found, facts, folder)
    except disk_cache.Unwritable as error:
        disk_cache.tell(f"{error}; neighbours are found for this run alone")
    else:
        disk_cache.make_room(folder)
    return found


def find(space: Space, rows: int, floor: float, most: int, progress: bool = False) -> Neighbours:
    """Every row's earlier rows whose similarity is at least ``floor``, the ``most`` most similar of them.

    Exact: bounds leave out what cannot reach the floor, the rest is compared in full (traces.similarity.bound).

    Args:
        space: bound to a trace of ``rows`` rows.
        progress: show a bar, where standard error is a terminal.
    """
    bound = cheapest(space, rows, floor)
    short = np.concatenate(
        [bound.short(space.artifacts(np.arange(at, min(at + ARTIFACTS, rows)))) for at in range(0, rows, ARTIFACTS)]
    )
    counts = np.zeros(rows, np.int64)
    complete = np.ones(rows, np.bool_)
    lists: list[NDArray[np.int32]] = []
    units: list[NDArray[np.int32]] = []
    with tqdm(total=rows, desc="find neighbours", unit="row", disable=None if progress else True) as bar:
        for start in range(0, rows, QUERIES):
            stop = min(start + QUERIES, rows)
            at, neighbour, unit = _block(space, short, bound.short(space.queries(start, stop)), start, stop, floor)
            order = np.lexsort((neighbour, -unit, at))
            at, neighbour, unit = at[order], neighbour[order], unit[order]
            found = np.bincount(at, minlength=stop - start)
            rank = np.arange(len(at)) - np.repeat(np.cumsum(found) - found, found)
            complete[start:stop] = found <= most
            counts[start:stop] = np.minimum(found, most)
            lists.append(neighbour[rank < most].astype(np.int32))
            units.append(unit[rank < most].astype(np.int32))
            bar.update(stop - start)
    return Neighbours(np.cumsum(counts), np.concatenate(lists), np.concatenate(units), complete)


def _block(
    space: Space, short: NDArray[np.float32], queries: NDArray[np.float32], start: int, stop: int, floor: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For queries start..stop-1: (query - start, earlier row, millionths) of all pairs at or above the floor."""
    full = space.queries(start, stop)
    least = np.float32(floor) - SLACK
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    for low in range(0, stop, ARTIFACTS):
        high = min(low + ARTIFACTS, stop)
        at, neighbour = np.divmod(np.flatnonzero((queries @ short[low:high].T).ravel() >= least), high - low)
        neighbour = neighbour + low
        earlier = neighbour < at + start
        at, neighbour = at[earlier], neighbour[earlier]
        for part in range(0, len(at), PAIRS):
            some = slice(part, part + PAIRS)
            exact = similarity(full[at[some]], space.artifacts(neighbour[some]))
            reach = exact >= floor
            found.append((at[some][reach], neighbour[some][reach], np.rint(exact[reach] * UNIT).astype(np.int64)))
    if not found:
        return (np.empty(0, np.int64),) * 3
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _keep(found: Neighbours, facts: dict[str, object], folder: Path) -> None:
    disk_cache.make_folder(folder.parent)
    with atomic_folder(folder, disk_cache.Unwritable, "free the disk or set MEZZOTINT_CACHE") as part:
        for name in FILES:
            np.save(part / f"{name}.npy", getattr(found, name))
        sums = {name: _sum(part / f"{name}.npy") for name in FILES}
        text = json.dumps({**facts, "crc32": sums}, indent=2) + "\n"
        (part / "facts.json").write_text(text, encoding="utf-8")


def _read(folder: Path, facts: dict[str, object]) -> Neighbours | None:
    """What ``_keep`` wrote; None, and the folder is removed, if it is not as it was written."""
    try:
        written = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        if written == {**facts, "crc32": {name: _sum(folder / f"{name}.npy") for name in FILES}}:
            return Neighbours(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in FILES))
        found = "was damaged"
    except (OSError, ValueError, RecursionError) as error:
        found = f"cannot be read ({error})"
    disk_cache.tell(f"{folder}: {found}; the neighbours are found again")
    disk_cache.remove(folder)
    return None


def _sum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            total = zlib.crc32(data, total)
    return total
