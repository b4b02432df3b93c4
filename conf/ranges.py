"""Numbers with their ranges, to annotate what a configuration sets.

Whoever builds a part from a configuration enforces them. The bounds at the far ends are outside what anybody serves,
and near enough that sums over a run keep their precision.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le

MOST = 10**9

Count = Annotated[int, Ge(1), Le(MOST)]
"""How many, where none makes no sense."""

Number = Annotated[float, Ge(-1e9), Le(1e9)]
"""Any number that sums and products of many keep their precision with: a similarity, a threshold."""

Positive = Annotated[float, Gt(0), Le(1e15)]
"""A factor, or so much of something a second."""

Steps = Annotated[int, Ge(1), Le(10_000)]
"""Denoising steps."""

Seconds = Annotated[float, Ge(0), Le(1e9)]
"""A length of simulated time, at most some thirty years."""

SomeSeconds = Annotated[float, Ge(1e-9), Le(1e9)]
"""A length of simulated time that is not nothing."""

Seed = Annotated[int, Ge(0), Le(2**64 - 1)]
"""What a random generator elsewhere was seeded with: a word of 64 bits."""

Amount = Annotated[float, Ge(0), Le(1e9)]
"""So many watts, or dollars an hour."""

Share = Annotated[float, Ge(0), Le(1)]
"""A part of a whole."""

SomeShare = Annotated[float, Gt(0), Le(1)]
"""A part of a whole that is not nothing."""
