"""Sources of traces: one file for each, and one in `logs` for each published log."""

from typing import Protocol, runtime_checkable

import numpy as np

from mezzotint.traces.table.ingest import Reading, gather
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import check_ranges


@runtime_checkable
class Source(Protocol):
    """A source of a canonical trace."""

    def load(self, rng: np.random.Generator) -> Trace:
        """Return the trace, in memory.

        Args:
            rng: stream for values that the source draws. Source and stream determine the digest.

        Raises TraceError if the file of the source is missing or malformed.
        """
        ...


class Streamed(Source, Protocol):
    """A source that is read from a file, batch by batch.

    A subclass in this package is a source of `mezzotint trace import`, named after its module. Its arguments become
    options, and their lines in its docstring the help texts. Each has a path, a name of the trace in reports (the
    file's name if None), and limits on the bytes read.
    """

    def read(self, rng: np.random.Generator) -> Reading:
        """Open the source; `mezzotint.traces.table.ingest.store` of the reading gives the same trace as `load`.

        Raises TraceError if the file is missing, truncated or of another format, a column or cell is not valid, or no
        row is left. Most of these are raised while the reading's batches are read.
        """
        ...

    def load(self, rng: np.random.Generator) -> Trace:
        # the command line and the configuration check annotations; a caller in Python does not
        reading = self.read(rng)
        check_ranges(reading.where, self)
        check_ranges("limits", reading.limits)
        return gather(reading)
