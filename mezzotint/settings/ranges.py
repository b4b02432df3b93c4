"""Annotated number types with ranges, for the settings of a configuration.

mezzotint.sim.run.config.build enforces them. The bounds exceed any realistic setting, and keep sums over a run precise.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le

MOST = 10**9

Count = Annotated[int, Ge(1), Le(MOST)]
"""A positive count."""

Number = Annotated[float, Ge(-1e9), Le(1e9)]
"""Any number, such as a similarity or a threshold, bounded so that sums and products stay precise."""

Positive = Annotated[float, Gt(0), Le(1e15)]
"""A factor, or a rate per second."""

Steps = Annotated[int, Ge(1), Le(10_000)]
"""Denoising steps."""

Seconds = Annotated[float, Ge(0), Le(1e9)]
"""A duration in simulated time, at most thirty years."""

SomeSeconds = Annotated[float, Ge(1e-9), Le(1e9)]
"""A positive duration in simulated time."""

Joules = Annotated[float, Ge(0), Le(1e15)]
"""Energy."""

Bytes = Annotated[int, Ge(0), Le(10**18)]
"""Bytes in memory."""

Bandwidth = Annotated[float, Ge(0), Le(1e15)]
"""Bytes per second; 0 where moving bytes takes no time."""

Rate = Annotated[float, Ge(0), Le(1e9)]
"""Requests a minute, or GPUs that a load needs."""

Seed = Annotated[int, Ge(0), Le(2**64 - 1)]
"""Seed of an external random generator, 64 bits."""

Amount = Annotated[float, Ge(0), Le(1e9)]
"""Watts, or dollars an hour."""

Share = Annotated[float, Ge(0), Le(1)]
"""A fraction."""

SomeShare = Annotated[float, Gt(0), Le(1)]
"""A positive fraction."""

Factor = Annotated[float, Ge(1), Le(1e6)]
"""A factor of growth, 1 or more."""

Tries = Annotated[int, Ge(0), Le(20)]
"""Further tries of a request."""
