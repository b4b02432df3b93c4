"""Values of a measure under every plausible form of a choice that the paper leaves open, such as a figure's rates."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.papers.scorecard.targets import Value

MIN_SHARE = 0.5
"""Share of the alternatives within tolerance from which the row is within tolerance."""


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """The values of one target under equally plausible choices.

    Attributes:
        values: one for each alternative, or one row for each if the target is a list; booleans of an ordering.
    """

    values: NDArray[np.float64] | NDArray[np.bool_]

    @property
    def is_ordering(self) -> bool:
        return self.values.dtype == np.bool_

    def typical(self) -> Value:
        """Return the median, of each number of a list on its own; of an ordering, True if at least half are true."""
        if self.is_ordering:
            return bool(self.values.mean() >= MIN_SHARE)
        return _plain(np.median(self.values, axis=0))

    def lowest(self) -> Value | None:
        """Return the smallest value, of each number of a list on its own; None of an ordering."""
        return None if self.is_ordering else _plain(self.values.min(axis=0))

    def highest(self) -> Value | None:
        """Return the largest value, of each number of a list on its own; None of an ordering."""
        return None if self.is_ordering else _plain(self.values.max(axis=0))


def _plain(value: NDArray[np.float64]) -> Value:
    plain: Value = value.tolist()
    return plain
