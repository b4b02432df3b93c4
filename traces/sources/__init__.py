"""Where traces come from: one small file for each source."""

from typing import Protocol, runtime_checkable

import numpy as np

from traces.table.ingest import Reading, gather
from traces.table.trace import Trace


@runtime_checkable
class Source(Protocol):
    """Anything that can produce a canonical trace."""

    def load(self, rng: np.random.Generator) -> Trace:
        """Produce the trace, in memory.

        Args:
            rng: the stream for whatever the source has to make up. The same source and stream give a
                trace with the same digest.

        Raises:
            TraceError: what the source reads is missing or malformed.
        """
        ...


class Streamed(Source, Protocol):
    """A source that is read from a file, batch by batch.

    A class in this package that names it as its base is a source of `mezzotint trace import`: called after its module,
    with the arguments of the class as options and their lines in its docstring as help (see
    `traces.sources.command`). Nothing else has to know of it.
    """

    def read(self, rng: np.random.Generator) -> Reading:
        """Open the source; `traces.table.ingest.store` of the reading and `load` give one and the same trace.

        Args:
            rng: as for `load`.

        Raises:
            TraceError: the file is missing, cut short or of another format; a column or cell is not valid; nothing
                is left; most of it only when the reading's batches are read.
        """
        ...

    def load(self, rng: np.random.Generator) -> Trace:
        return gather(self.read(rng))
