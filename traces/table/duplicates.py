"""Find a name that occurs twice among more names than fit into memory."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

CANDIDATES = 100_000
"""Hashes looked into at once: bounds the memory when a large file repeats everything."""


class Repeat(NamedTuple):
    """A name and the first two rows that have it."""

    name: str
    first: int
    second: int


class Names:
    """Remembers names by 64-bit hashes; what they collide on is looked up in the names themselves.

    Args:
        path: a file for the hashes, 8 bytes each; None keeps them in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._held: list[Hashes] = []
        if path is not None:
            path.touch()

    def add(self, names: pa.ChunkedArray) -> None:
        """Remember (n,) names."""
        hashes = _hashes(names)
        if self._path is None:
            self._held.append(hashes)
            return
        with self._path.open("ab") as file:
            file.write(hashes.tobytes())

    def repeat(self, rows: Callable[[], Iterable[pa.Table]]) -> Repeat | None:
        """Two rows of one name, the second as early as possible among the first `CANDIDATES` suspects.

        Args:
            rows: gives all rows again, in any order, as tables with columns request_id and row.
        """
        suspects = np.unique(np.concatenate(list(self._twice()) or [np.empty(0, np.uint64)]))
        for start in range(0, len(suspects), CANDIDATES):
            found = _first_repeat(rows(), suspects[start : start + CANDIDATES])
            if found is not None:
                return found
        return None

    def _twice(self) -> Iterator[Hashes]:
        """Hashes that occur more than once."""
        if self._path is None:
            everything = np.concatenate(self._held) if self._held else np.empty(0, np.uint64)
        elif self._path.stat().st_size:
            # sorted in place, in the file: the system pages it in and out
            everything = np.memmap(self._path, np.uint64, mode="r+")
        else:
            return
        everything.sort()
        for start in range(0, len(everything), 1 << 20):
            block = np.asarray(everything[start : start + (1 << 20) + 1])
            yield block[1:][block[1:] == block[:-1]]


def _hashes(names: pa.ChunkedArray) -> Hashes:
    hashes: Hashes = pd.util.hash_array(np.array(names.to_pylist(), object), categorize=False)
    return hashes


def _first_repeat(tables: Iterable[pa.Table], suspects: Hashes) -> Repeat | None:
    seen: dict[str, list[int]] = {}
    for table in tables:
        names = table.column("request_id")
        at = np.flatnonzero(np.isin(_hashes(names), suspects))
        rows = table.column("row").to_numpy()[at].tolist()
        for name, row in zip(names.take(pa.array(at)).to_pylist(), rows, strict=True):
            seen[name] = sorted([*seen.get(name, []), row])[:2]
    pairs = [Repeat(name, *rows) for name, rows in seen.items() if len(rows) == 2]
    return min(pairs, key=lambda pair: pair.second, default=None)
