"""Cache keys: what two requests must have in common, besides similar prompts, to share an artifact."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.workload import Workload

KeyPart = Literal[
    "size", "steps", "model", "loras", "controlnets", "seed", "guidance", "negative_prompt", "prompt", "tenant"
]
"""A part of a cache key: the shape or the steps that a request asks for, or a column of the trace."""

SHAPE = {"size": ("width", "height", "frames"), "steps": ("steps",)}
COLUMN = {"model": "base_model", "tenant": "user_id"}
"""Columns of the trace whose names differ from the part's."""


def key_codes(workload: Workload, key: Sequence[KeyPart]) -> NDArray[np.int64]:
    """Return a whole number for every trace row, (preload + rows,), from 0 on: equal for rows with equal keys.

    A row without a value, such as a seed, is equal to others without one only. With ``shapes=model`` all sizes and
    steps are equal.

    Raises:
        ConfigError: no request has a value of a part.
    """
    rows = workload.preload + workload.rows
    codes = np.zeros(rows, np.int64)
    for part in dict.fromkeys(key):
        for values in _values(workload, part):
            if rows and (values != values[0]).any():
                # Below 2^63: both factors are at most the number of rows.
                numbers = np.unique(values, return_inverse=True)[1]
                codes = np.unique(codes * rows + numbers, return_inverse=True)[1]
    return codes


def _values(workload: Workload, part: KeyPart) -> list[NDArray[np.int32]]:
    """Return the columns of whole numbers that ``part`` compares."""
    if part in SHAPE:
        if workload.use_model_shape:
            return []
        return [np.asarray(getattr(workload, name), np.int32) for name in SHAPE[part]]
    column = COLUMN.get(part, part)
    values = None if workload.column_codes is None else workload.column_codes(column)
    if values is None or (values < 0).all():
        raise ConfigError(
            f"cache.key: found {part}, and no request of the trace has a value in its column {column}; leave it out of "
            "the key, or import the trace with that column"
        )
    return [values]
