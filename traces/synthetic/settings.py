"""What a request asks for beside its prompt: size, steps, images and base model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from traces.synthetic.distributions import Indices, choices, inherited_from, numbered_names, split_weights
from traces.table.validation import check_number


def inherited(previous: Indices, change: float, rng: np.random.Generator) -> Indices:
    """The row whose settings each row has, (n,): its session's row before it, or with chance `change` its own.

    Args:
        previous: (n,) the session's row before this one, -1 if none.
    """
    return inherited_from((previous < 0) | (rng.random(len(previous)) < change), previous)


def numbers(rows: Sequence[Sequence[Any]], what: str, width: int, source: Indices, rng: np.random.Generator) -> Indices:
    """Draw `width` numbers for each row of `source` by the weights of the setting `what`, (n, width)."""
    values, weights = split_weights(rows, what, width)
    return np.asarray(values[choices(weights, len(source), rng)[source]], np.int64)


def models(shares: Sequence[float], source: Indices, rng: np.random.Generator) -> pa.Array:
    """Names of base models, (n,), the most popular first in order; nulls if there are no shares."""
    if not shares:
        return pa.nulls(len(source), pa.string())
    return numbered_names("model", choices(np.array(shares, np.float64), len(source), rng)[source], len(shares))


def check_shares(shares: Sequence[float], what: str) -> None:
    """Check weights, one a thing. Raises TraceError unless they are positive finite numbers (or there are none)."""
    for share in shares:
        check_number("synthetic trace", what, share, above=0.0, max_value=1e15)
