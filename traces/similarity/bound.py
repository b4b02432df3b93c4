"""An upper bound on inner products that costs a fraction of them, and never lies.

Vectors are turned so that most of their length falls on a few axes. The product of the short vectors (coordinates on
those axes, length of the rest) is never below that of the vectors (Cauchy and Schwarz).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.similarity.similarities import Floats, SimilaritySource

SLACK = np.float32(2e-5)
"""What rounding in single precision may take from a bound."""

SAMPLE = 4096
"""Rows that the axes are chosen by: every choice is right, a good one is fast."""

QUERIES = 512
"""Rows of the sample that are taken as queries too."""

FULL = 40_000
"""Axes that can be multiplied, block by block, while one pair of vectors is fetched and compared in full."""


@dataclass(frozen=True, slots=True)
class Bound:
    """``axes`` (d, p) are orthonormal."""

    axes: Floats

    def short(self, vectors: Floats) -> Floats:
        """Short vectors, (n, p + 1), of ``vectors`` (n, d)."""
        on_axes = vectors @ self.axes
        rest = np.einsum("ij,ij->i", vectors, vectors) - np.einsum("ij,ij->i", on_axes, on_axes)
        return np.column_stack((on_axes, np.sqrt(np.maximum(rest, 0.0)))).astype(np.float32, copy=False)


def fit(source: SimilaritySource, rows: int, axes: int) -> Bound:
    """The ``axes`` axes that hold most of the length of the vectors of ``source``: of the largest second moments.

    Raises:
        TypeError: the space gives vectors that are not float32; a search in double precision takes many times
            as long, and nobody would notice.
    """
    return Bound(np.ascontiguousarray(_turned(source, _sample(rows))[:, :axes]))


def cheapest(source: SimilaritySource, rows: int, floor: float, nearest: bool = False) -> Bound:
    """The bound with as many axes as make a search cheapest: few keep too many pairs, more cost more for each.

    It is tried on a sample, what it costs counted in axes. Whatever is chosen, the same is found.

    Args:
        source: bound to a trace of ``rows`` rows.
        floor: products below it are not looked for.
        nearest: nor are those below the best of a query.
    """
    sample = _sample(rows)
    turned = _turned(source, sample)
    asked = sample[:: max(1, len(sample) // QUERIES)]
    queries = np.concatenate([source.queries(row, row + 1) for row in asked]) @ turned
    artifacts = source.artifacts(sample) @ turned
    products = queries @ artifacts.T
    products[asked[:, None] <= sample] = -np.inf
    threshold = np.maximum(products.max(axis=1, keepdims=True), floor) if nearest else np.float32(floor)
    step = max(1, turned.shape[1] // 16)
    costs = {
        axes: axes + FULL * float(np.mean(_bounds(queries, artifacts, axes) >= threshold - SLACK))
        for axes in range(step, turned.shape[1] + 1, step)
    }
    axes = min(costs, key=lambda axes: costs[axes])
    return Bound(np.ascontiguousarray(turned[:, :axes]))


def _sample(rows: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, rows - 1, min(rows, SAMPLE)).astype(np.int64))


def _turned(source: SimilaritySource, sample: NDArray[np.int64]) -> Floats:
    """Orthonormal axes (d, d), those first on which the vectors of the rows in ``sample`` are longest."""
    for what, given in (("query", source.queries(0, 1)), ("artifact", source.artifacts(sample[:1]))):
        if given.dtype != np.float32:
            raise TypeError(f"{what} vectors: found {given.dtype}, expected float32")
    vectors = np.concatenate([source.artifacts(sample), *(source.queries(row, row + 1) for row in sample[:QUERIES])])
    moments: NDArray[np.float64] = vectors.T.astype(np.float64) @ vectors
    return np.ascontiguousarray(np.linalg.eigh(moments)[1][:, ::-1], np.float32)


def _bounds(queries: Floats, artifacts: Floats, axes: int) -> Floats:
    """The bounds of vectors that are turned already, were the first ``axes`` of their axes taken."""
    rests = (np.linalg.norm(vectors[:, axes:], axis=1) for vectors in (queries, artifacts))
    bounds: Floats = queries[:, :axes] @ artifacts[:, :axes].T + np.multiply.outer(*rests)
    return bounds
