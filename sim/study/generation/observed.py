"""What was asked for and how long it took, request by request."""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from sim.errors import ConfigError
from traces.table.trace import Trace

HELD_OUT = 5
"""One request in so many is kept out of a fit."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Requests of known size and steps, and the seconds that generating each took; (n,) each."""

    width: NDArray[np.int64]
    height: NDArray[np.int64]
    steps: NDArray[np.int64]
    seconds: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def pixels(self) -> NDArray[np.int64]:
        """Pixels per image, (n,)."""
        return self.width * self.height

    def __getitem__(self, rows: NDArray[np.bool_]) -> "Observed":
        return Observed(self.width[rows], self.height[rows], self.steps[rows], self.seconds[rows])


def observed(trace: Trace) -> tuple[Observed, Observed]:
    """The requests of ``trace`` that can be fitted, and the fifth that is held out, chosen by a hash of the name.

    Raises:
        ConfigError: no request of the trace has a size, steps and seconds, or none of a part.
    """
    width, height, steps = (trace.column(name) for name in ("width", "height", "steps"))
    seconds = trace.column("gen_s")
    known = (width > 0) & (height > 0) & (steps > 0) & (seconds > 0)
    names = trace.table.column("request_id").to_pylist()
    digests = (blake2b(name.encode(), digest_size=8).digest() for name in names)
    out = np.fromiter((int.from_bytes(each, "big") % HELD_OUT == 0 for each in digests), np.bool_, len(names))
    whole = Observed(width, height, steps, seconds)
    fitted, held_out = whole[known & ~out], whole[known & out]
    if not len(fitted) or not len(held_out):
        raise ConfigError(
            f"trace {trace.name}: {int(known.sum())} of {len(trace)} requests have a size, steps and seconds, too few "
            "to fit and to check; name a trace that tells what its service took (mezzotint trace import sd-beta)"
        )
    return fitted, held_out
