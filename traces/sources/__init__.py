"""Where traces come from: one small file for each source."""

from typing import Protocol, runtime_checkable

import numpy as np

from traces.schema import Trace


@runtime_checkable
class Source(Protocol):
    """Anything that can produce a canonical trace."""

    def load(self, rng: np.random.Generator) -> Trace:
        """Produce the trace.

        Args:
            rng: the stream for whatever the source has to make up. The same source and stream give a
                trace with the same digest.

        Raises:
            TraceError: what the source reads is missing or malformed.
        """
        ...
