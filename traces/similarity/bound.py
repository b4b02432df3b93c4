"""Cheap upper bounds on inner products.

Vectors are rotated so that most of their length falls on a few axes. A short vector holds the coordinates on those axes
and the length of the rest. The product of short vectors is never below that of the vectors (Cauchy and Schwarz).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint.traces.similarity.similarities import Floats, SimilaritySource

SLACK = np.float32(2e-5)
"""Largest error of a bound by rounding in single precision."""

SAMPLE = 4096
"""Rows that the axes are chosen by; the choice affects speed only."""

QUERIES = 512
"""Rows of the sample that are queries too."""

FULL = 40_000
"""Cost of comparing one pair of vectors in full, in axes multiplied block by block."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Upper bounds on inner products by ``axes``, (d, p), orthonormal."""

    axes: Floats

    def short(self, vectors: Floats) -> Floats:
        """Return the short vectors, (n, p + 1), of ``vectors`` (n, d)."""
        on_axes = vectors @ self.axes
        rest = np.einsum("ij,ij->i", vectors, vectors) - np.einsum("ij,ij->i", on_axes, on_axes)
        # The rest is a difference of sums, which may round to below zero.
        return np.column_stack((on_axes, np.sqrt(np.maximum(rest, 0.0)))).astype(np.float32, copy=False)


def fit(source: SimilaritySource, rows: int, axes: int) -> Bound:
    """Return the bound with the ``axes`` axes of the largest second moments of the vectors of ``source``.

    Raises:
        TypeError: the vectors of ``source`` are not float32; in double precision a search would be many times slower
            without notice.
    """
    return Bound(np.ascontiguousarray(_rotation(source, _sample(rows))[:, :axes]))


def cheapest(source: SimilaritySource, rows: int, floor: float, nearest: bool = False) -> Bound:
    """Return the bound whose number of axes makes a search cheapest, by its cost on a sample.

    With few axes too many pairs pass the bound; with many each bound costs more. The choice does not change results.

    Args:
        source: bound to a trace of ``rows`` rows.
        floor: products below it are not searched for.
        nearest: only the best product of a query is searched for.
    """
    sample = _sample(rows)
    rotation = _rotation(source, sample)
    rows_queried = sample[:: max(1, len(sample) // QUERIES)]
    queries = np.concatenate([source.queries(row, row + 1) for row in rows_queried]) @ rotation
    artifacts = source.artifacts(sample) @ rotation
    products = queries @ artifacts.T
    # A search compares a row with earlier ones alone.
    products[rows_queried[:, None] <= sample] = -np.inf
    threshold = np.maximum(products.max(axis=1, keepdims=True), floor) if nearest else np.float32(floor)
    step = max(1, rotation.shape[1] // 16)
    costs = {
        axes: axes + FULL * float(np.mean(_bounds(queries, artifacts, axes) >= threshold - SLACK))
        for axes in range(step, rotation.shape[1] + 1, step)
    }
    axes = min(costs, key=lambda axes: costs[axes])
    return Bound(np.ascontiguousarray(rotation[:, :axes]))


def _sample(rows: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, rows - 1, min(rows, SAMPLE)).astype(np.int64))


def _rotation(source: SimilaritySource, sample: NDArray[np.int64]) -> Floats:
    """Return orthonormal axes (d, d) by falling second moment of the vectors of the rows in ``sample``."""
    for what, given in (("query", source.queries(0, 1)), ("artifact", source.artifacts(sample[:1]))):
        if given.dtype != np.float32:
            raise TypeError(f"{what} vectors: found {given.dtype}, expected float32")
    vectors = np.concatenate([source.artifacts(sample), *(source.queries(row, row + 1) for row in sample[:QUERIES])])
    # In double precision, since the axes have to be orthonormal for the bound to hold.
    moments: NDArray[np.float64] = vectors.T.astype(np.float64) @ vectors
    # eigh sorts ascending; the axes of the largest moments come first.
    return np.ascontiguousarray(np.linalg.eigh(moments)[1][:, ::-1], np.float32)


def _bounds(queries: Floats, artifacts: Floats, axes: int) -> Floats:
    """Return the bounds of rotated vectors by the first ``axes`` axes."""
    rests = (np.linalg.norm(vectors[:, axes:], axis=1) for vectors in (queries, artifacts))
    bounds: Floats = queries[:, :axes] @ artifacts[:, :axes].T + np.multiply.outer(*rests)
    return bounds
