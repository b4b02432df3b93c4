"""A trace on disk, or a table of requests."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from mezzotint.settings.ranges import Count
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.table import Table, is_trace, say
from mezzotint.traces.table.trace import Trace, read
from mezzotint.traces.table.validation import check_ranges


@dataclass(slots=True, kw_only=True)
class File:
    """A Parquet file written by `mezzotint trace`, or a table of requests as `mezzotint trace import table` reads it.

    What was taken of a table is printed on standard error.

    Args:
        path: the file; a leading ~ is the home folder.
        requests: number of first rows to take; None, or more than there are, is all.
    """

    path: str | Path
    requests: Count | None = None

    def load(self, rng: np.random.Generator) -> Trace:
        """Read and verify the file; nothing is random.

        Raises TraceError as `mezzotint.traces.table.trace.read`, or as `Table` for a table.
        """
        check_ranges(str(self.path), self)
        path = Path(self.path).expanduser()
        if is_trace(path):
            trace = read(path)
        else:
            trace = Table(path=path).load(rng)
            _say_once(path, trace.digest, tuple(trace.notes[SAID]))
        return trace if self.requests is None else trace.head(self.requests)


@cache
def _say_once(path: Path, _: str, lines: tuple[str, ...]) -> None:
    """Print what was taken of a table, once for all runs of a sweep in this process."""
    say({SAID: lines}, path)
