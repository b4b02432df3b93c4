"""A trace on disk, or a table of requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from mezzotint.settings.ranges import Count
from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.clock import DateOrder
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.table import Table, is_trace, options_elsewhere, say
from mezzotint.traces.table.trace import Trace, read
from mezzotint.traces.table.validation import check_ranges


@dataclass(slots=True, kw_only=True)
class File:
    """A Parquet file written by `mezzotint trace`, or a table of requests as `mezzotint trace import table` reads it.

    What was taken of a table is printed on standard error.

    Args:
        path: the file; a leading ~ is the home folder.
        requests: number of first rows to take; None, or more than there are, is all.
        map: of a table, a column of a trace -> the file's name of that column, or nothing for none.
        leave_out: of a table, columns that are not wanted.
        units: of a table, the unit of a column of times: ns, us, ms, s, min, h or d.
        dates: of a table, what comes first in dates such as 3/11/2026, if no row tells.
    """

    path: str | Path
    requests: Count | None = None
    map: Mapping[str, str] = field(default_factory=dict)
    leave_out: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    dates: DateOrder | None = None

    def load(self, rng: np.random.Generator) -> Trace:
        """Read and verify the file; nothing is random.

        Raises TraceError as `mezzotint.traces.table.trace.read`, or as `Table` for a table, or if columns are mapped
        in a trace.
        """
        check_ranges(str(self.path), self)
        path = Path(self.path).expanduser()
        if is_trace(path):
            if self.map or self.leave_out or self.units or self.dates:
                raise TraceError(
                    f"{path}: is a trace, whose columns are known; leave out trace.map, leave_out, units and dates"
                )
            trace = read(path)
        else:
            columns = {name: column or "" for name, column in self.map.items()}
            with options_elsewhere(
                "a run has trace.map, leave_out, units and dates, or make a trace with it first, and name that"
            ):
                trace = Table(
                    path=path,
                    columns=columns,
                    leave_out=list(self.leave_out),
                    units=dict(self.units),
                    dates=self.dates,
                ).load(rng)
            _say_once(path, trace.digest, tuple(trace.notes[SAID]))
        return trace if self.requests is None else trace.head(self.requests)


def read_any(path: Path | str) -> Trace:
    """Return the trace of a file, or the one made of a table of requests. Raises as `File.load`."""
    return File(path=path).load(np.random.default_rng(0))


@cache
def _say_once(path: Path, _: str, lines: tuple[str, ...]) -> None:
    """Print what was taken of a table, once for all runs of a sweep in this process."""
    say({SAID: lines}, path)
