"""Vectors from files: memory-mapped, checked, and scaled to length 1."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from mezzotint.traces.error import TraceError

Floats = NDArray[np.float32]

BLOCK = 4096
"""Rows of a mapped file that are in memory at a time."""


def by_length(prompts: Sequence[str], batch: int, progress: bool) -> Iterator[tuple[list[int], list[str]]]:
    """Yield places and texts of the prompts that are not empty, ``batch`` at a time, by length to pad little."""
    filled = [index for index, prompt in enumerate(prompts) if prompt.strip()]
    filled.sort(key=lambda index: len(prompts[index]))
    for start in tqdm(range(0, len(filled), batch), "encode", disable=not progress, unit="batch"):
        rows = filled[start : start + batch]
        yield rows, [prompts[row] for row in rows]


def map_vectors(path: Path) -> NDArray[Any]:
    """Return the array in an ``.npy`` file, (n, d) real numbers, memory-mapped; the numbers are not checked.

    Raises TraceError if the file is missing, damaged, or holds something else.
    """
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise TraceError(f"{path}: cannot be read ({error}); expected an .npy file of (rows, d) numbers") from error
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "fiu" or 0 in found.shape:
        what = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else "an archive of several arrays"
        raise TraceError(f"{path}: found {what}, expected one array of real numbers, (rows, d); write it again")
    return np.asarray(found)


def unit(rows: NDArray[Any], first: int, path: Path) -> Floats:
    """Return ``rows``, (k, d) real numbers, as float32 rows of length 1; rows of zeros stay zeros.

    Args:
        rows: scaled in double precision.
        first, path: number of the first row and its file, for messages.

    Raises TraceError if a number is not finite, or too large to square.
    """
    exact = rows.astype(np.float64)
    squares = np.einsum("ij,ij->i", exact, exact)
    if not np.isfinite(squares).all():
        at = f"{path}: row {first + int(np.isfinite(squares).argmin())}"
        raise TraceError(
            f"{at}: found a vector with a number that is not finite, or is too large; correct or drop the row"
        )
    length = np.sqrt(squares)
    length[length == 0] = 1.0
    return np.asarray(exact / length[:, None], np.float32)
