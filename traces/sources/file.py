"""A canonical trace on disk."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mezzotint.settings.ranges import Count
from mezzotint.traces.table.trace import Trace, read
from mezzotint.traces.table.validation import check_ranges


@dataclass(slots=True, kw_only=True)
class File:
    """A Parquet file written by `mezzotint trace import` or `mezzotint trace synth`.

    Args:
        path: the file; a leading ~ is the home folder.
        requests: number of first rows to take; None, or more than there are, is all.
    """

    path: str | Path
    requests: Count | None = None

    def load(self, rng: np.random.Generator) -> Trace:
        """Read and verify the file; nothing is random. Raises TraceError as `mezzotint.traces.table.trace.read`."""
        check_ranges(str(self.path), self)
        trace = read(Path(self.path).expanduser())
        return trace if self.requests is None else trace.head(self.requests)
