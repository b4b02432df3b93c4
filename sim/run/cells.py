"""Cells: a trace split over clusters of the same kind, each simulated as a run of its own (``cells.*``)."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mezzotint.files.document import parse_json
from mezzotint.settings.assumption import Assumption
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.traces.table.columns import COLUMNS, TEXT
from mezzotint.traces.table.trace import Trace

EXTRAS = "extras."
"""Beginning of a rule by a key of the column ``extras``, such as ``extras.region``."""

BY_HASH = ("request_id", "user_id")
"""Columns with so many values that a hash spreads them evenly. The values of others are dealt out in turn."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A trace split over ``count`` clusters; the run simulates cell ``number``.

    Args:
        by: the column whose value decides the cell: ``request_id`` or ``user_id`` by a hash, any other by its values in
            order of their requests, most first, dealt out in turn; ``extras.KEY`` is a key of the column extras.
    """

    count: int
    number: int
    by: str

    def rows(self, trace: Trace) -> NDArray[np.int64]:
        """Return the rows of ``trace`` in this cell, in order. A row without a value goes by its request_id.

        Raises ConfigError: there is no such column, or it has fewer values than there are cells.
        """
        values = self._values(trace)
        cell = self._hashed(values.dictionary) if self.by in BY_HASH else self._dealt(values)
        codes = np.asarray(values.indices.fill_null(-1))
        of_row = cell[codes] if len(cell) else np.zeros(len(trace), np.int64)
        if (missing := codes < 0).any():
            of_row = np.where(missing, self._hashed(trace.known.column("request_id").combine_chunks()), of_row)
        return np.flatnonzero(of_row == self.number)

    def assumption(self, rows: int, of: int) -> Assumption:
        """Return what the run says of its cell, which has ``rows`` rows of ``of``."""
        where = f"cell {self.number} of {self.count} by {self.by}, {rows:,} of {of:,} rows"
        return Assumption(
            "the trace is split over cells", where, "cells; queues and caches of other cells are not seen"
        )

    def _values(self, trace: Trace) -> pa.DictionaryArray:
        """Return the value of each row that decides its cell."""
        if not self.by.startswith(EXTRAS):
            if self.by not in COLUMNS or COLUMNS[self.by].kind != TEXT:
                texts = [name for name, column in COLUMNS.items() if column.kind == TEXT and name != "extras"]
                raise ConfigError(f"cells.by: found {self.by}; {suggest(self.by, [*texts, f'{EXTRAS}KEY'])}")
            return trace.encoded(self.by)
        key = self.by.removeprefix(EXTRAS)
        rows = (
            None if text is None else parse_json(text).get(key) for text in trace.known.column("extras").to_pylist()
        )
        return pa.array([None if value is None else str(value) for value in rows], TEXT).dictionary_encode()

    def _hashed(self, values: pa.Array) -> NDArray[np.int64]:
        """Return the cell of each value by a hash that is the same on every machine."""
        import pandas as pd  # slow to import, and only cells need it

        hashed = pd.util.hash_array(np.asarray(values.to_pylist(), object), categorize=False)
        return (hashed % np.uint64(self.count)).astype(np.int64)

    def _dealt(self, values: pa.DictionaryArray) -> NDArray[np.int64]:
        """Return the cell of each value: the values with most requests first, dealt out in turn."""
        counts = Counter(values.indices.drop_null().to_pylist())
        if len(counts) < self.count:
            found = f"{len(counts)} different values of {self.by} for cells.count={self.count}"
            raise ConfigError(f"cells: found {found}; lower it, or choose cells.by=request_id")
        names = values.dictionary.to_pylist()
        cell = np.zeros(len(names), np.int64)
        for place, code in enumerate(sorted(counts, key=lambda code: (-counts[code], names[code]))):
            cell[code] = place % self.count
        return cell
