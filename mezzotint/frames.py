"""Traces from pandas frames and files, for runs and plans."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np

from mezzotint.arguments import as_path
from mezzotint.traces.formats.opening import frame_table
from mezzotint.traces.sources.table import Table, is_trace, options_elsewhere, say
from mezzotint.traces.table.ingest import store

if TYPE_CHECKING:
    import pandas as pd


def trace(source: "str | Path | pd.DataFrame", path: str | Path | None = None, **options: Any) -> Path:
    """Make a trace of a table of requests, for ``run(trace=...)`` and ``plan(trace=...)``.

    Prints what was taken, what was left out, and what was guessed, on standard error.

    Args:
        source: a pandas frame with a row a request, or a file: a trace, CSV, JSON lines, Parquet, Arrow.
        path: the Parquet file to write; None for one that goes when Python ends. A trace is used where it is.
        options: those of ``mezzotint trace import table``: ``columns={"prompt": "my_prompt"}``, ``leave_out=["x"]``,
            ``units={"latency": "ms"}``, ``dates="day-first"``, ``name="my log"``.

    Returns: the file of the trace.

    Raises TraceError if the table cannot be used; the message says where and what to do.
    """
    if isinstance(source, str | Path):
        where = Path(source).expanduser()
        if is_trace(where):
            return where.resolve()
    else:
        where = Path("frame")
    with options_elsewhere("mezzotint.trace has columns=, leave_out=, units=, dates= and more"):
        table = Table(path=where, **options)
        if isinstance(source, str | Path):
            reading = table.read(np.random.default_rng(0))
        else:
            reading = table.reading(frame_table(source), "pandas frame")
        target = Path(mkdtemp(dir=_kept().name)) / f"{reading.name}.parquet" if path is None else as_path("path", path)
        store(reading, target)
    say(reading.notes, where)
    return target.resolve()


def path_of(source: "str | Path | pd.DataFrame") -> Path:
    """Return the file that ``source`` names, or that the trace of a frame is written to. Raises as ``trace`` does."""
    return Path(source) if isinstance(source, str | Path) else trace(source)


@cache
def _kept() -> "TemporaryDirectory[str]":
    """Return the folder of the traces without a path, which goes when Python ends."""
    return TemporaryDirectory(prefix="mezzotint-traces-", ignore_cleanup_errors=True)
