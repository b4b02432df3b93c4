"""An upper bound on inner products that costs a fraction of them, and never lies.

Vectors are turned so that most of their length falls on a few axes. The product of two vectors is that of their
coordinates on those axes plus that of the rest, and the rest is at most the product of the rests' lengths
(Cauchy and Schwarz). So the product of the short vectors (coordinates, length of the rest) is never below the
product itself, and whatever it keeps below a floor need not be looked at.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.similarity import Floats, Space

SLACK = np.float32(2e-5)
"""What rounding in single precision may take from a bound."""

SAMPLE = 4096
"""Rows that the axes are chosen by: every choice is right, a good one is fast."""


@dataclass(frozen=True, slots=True)
class Bound:
    """``axes`` (d, p) are orthonormal."""

    axes: Floats

    def short(self, vectors: Floats) -> Floats:
        """Short vectors, (n, p + 1), of ``vectors`` (n, d)."""
        on_axes = vectors @ self.axes
        rest = np.einsum("ij,ij->i", vectors, vectors) - np.einsum("ij,ij->i", on_axes, on_axes)
        return np.column_stack((on_axes, np.sqrt(np.maximum(rest, 0.0)))).astype(np.float32, copy=False)


def fit(space: Space, rows: int, axes: int = 128) -> Bound:
    """Axes that hold most of the length of the vectors of ``space``: the largest of their second moments.

    Raises:
        TypeError: the space gives vectors that are not float32; a search in double precision takes many times
            as long, and nobody would notice.
    """
    sample = np.unique(np.linspace(0, rows - 1, min(rows, SAMPLE)).astype(np.int64))
    vectors = np.concatenate([space.artifacts(sample), *(space.queries(row, row + 1) for row in sample[:512])])
    for what, given in (("query", space.queries(0, 1)), ("artifact", space.artifacts(sample[:1]))):
        if given.dtype != np.float32:
            raise TypeError(f"{what} vectors: found {given.dtype}, expected float32")
    moments: NDArray[np.float64] = vectors.T.astype(np.float64) @ vectors
    turned = np.linalg.eigh(moments)[1][:, ::-1]
    return Bound(np.ascontiguousarray(turned[:, :axes], np.float32))
