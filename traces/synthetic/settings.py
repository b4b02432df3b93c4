"""Settings of requests: size, steps, images and base model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mezzotint.traces.synthetic.distributions import Indices, choices, inherited_from, numbered_names, split_weights


def inherited(previous: Indices, change: float, rng: np.random.Generator) -> Indices:
    """Draw the row whose settings each row has, (n,): the row before in its session, or with chance `change` itself.

    Args:
        previous: (n,) the row before in the session, -1 if none.
    """
    return inherited_from((previous < 0) | (rng.random(len(previous)) < change), previous)


def numbers(
    rows: Sequence[Sequence[Any]], name: str, widths: Sequence[int], source: Indices, rng: np.random.Generator
) -> Indices:
    """Draw numbers for each row of `source` by the weights of the setting `name`: (n, width), one of `widths`."""
    values, weights = split_weights(rows, name, widths)
    return np.asarray(values[choices(weights, len(source), rng)[source]], np.int64)


def models(shares: Sequence[float], source: Indices, rng: np.random.Generator) -> pa.Array:
    """Draw names of base models, (n,), numbered from the most popular; nulls if there are no shares."""
    if not shares:
        return pa.nulls(len(source), pa.string())
    return numbered_names("model", choices(np.array(shares, np.float64), len(source), rng)[source], len(shares))
