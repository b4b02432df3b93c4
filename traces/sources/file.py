"""A canonical trace that lies on disk."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traces.error import TraceError
from traces.table.trace import Trace, read


@dataclass(slots=True, kw_only=True)
class File:
    """A Parquet file written by `mezzotint trace import` or `mezzotint trace synth`.

    Args:
        path: the file; a leading ~ is the home folder.
        requests: rows of its head to take; None, or more than there are, is all of them.

    Raises:
        TraceError: ``requests`` is not 1 or more.
    """

    path: str | Path
    requests: int | None = None

    def __post_init__(self) -> None:
        if self.requests is not None and self.requests < 1:
            raise TraceError(f"trace.requests: found {self.requests}, expected 1 or more, or null for the whole file")

    def load(self, rng: np.random.Generator) -> Trace:
        """Read and verify the file; nothing is random. Raises TraceError as `traces.table.trace.read`."""
        whole = read(Path(self.path).expanduser())
        return whole if self.requests is None else whole.head(self.requests)
