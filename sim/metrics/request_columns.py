"""Columns per request, one record each: the table of requests.parquet."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mezzotint.files.scratch import Scratch
from mezzotint.sim.core.culprit import caller
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.plan import LOOKUPS, MISSING, Plan
from mezzotint.sim.core.request import COMPLETED, OUTCOMES, Request
from mezzotint.sim.core.tenant import USER

REAL, WHOLE, CODE = "d", "i", "B"
"""float64, int32 and uint8, by the letters of struct and NumPy. NaN and -1 stand for null."""

PLANNED = {  # by the front end
    **dict.fromkeys(("search_s", "similarity", "source_age_s", "fetch_s"), REAL),
    **dict.fromkeys(("skipped", "k", "source"), WHOLE),
    "lookup": CODE,
}

ENDED = {  # of every request
    **dict.fromkeys(("arrival_s", "finish_s"), REAL),
    **dict.fromkeys(("width", "height", "steps"), WHOLE),
    "outcome": CODE,
}

SERVED = {
    **dict.fromkeys(("start_s", "load_s", "denoise_s", "decode_s", "energy_j"), REAL),
    **dict.fromkeys(("model", "worker", "steps_left"), WHOLE),
}
"""Written besides for completed requests. ``steps_left`` is in no table: the invariants check it."""

RECORD = np.dtype(list((PLANNED | ENDED | SERVED).items()), align=True)
SIZE = RECORD.itemsize
OFFSETS: dict[str, int] = {name: place[1] for name, place in (RECORD.fields or {}).items()}
OUTCOME_OFFSET = OFFSETS["outcome"]
ENDED_OFFSET = OFFSETS["arrival_s"]
write_record = Struct("@" + "".join((PLANNED | ENDED | SERVED).values())).pack_into
write_ended = Struct("@" + "".join((ENDED | SERVED).values())).pack_into

BLOCK = 4096
"""Records that fit into a processor's cache."""

ROWS = 1 << 17
"""Records that are looked at together once a run is over, so that what is computed of them takes little memory."""

GROUP = 1 << 17
"""Rows of a row group of requests.parquet, of which one is in memory at a time."""

UNSERVED = np.zeros(1, RECORD)
for _name in ("similarity", "source_age_s", "start_s"):
    UNSERVED[_name] = np.nan
for _name in ("source", "model", "worker"):
    UNSERVED[_name] = MISSING

COLUMNS = (
    *("request_id", "arrival_s", "start_s", "finish_s", "outcome", "reason", "model", "worker", "width", "height"),
    *("steps", "skipped", "similarity", "source_id", "source_age_s", "source_age_trace_s", "search_s", "fetch_s"),
    *("load_s", "stall_s", "denoise_s", "decode_s", "batch_mean", "quality_factor", "energy_j", "lookup"),
)
"""Columns of every requests.parquet. DERIVED ones are computed for the table, so no part may declare them."""

DERIVED = ("request_id", "reason", "source_id", "source_age_trace_s", "quality_factor", USER)

NULLS = {float: np.nan, int: MISSING, bool: False}
"""Null of a declared column, by type."""


IMAGES = "images"
"""Declared column: images of a request that makes several as one batch."""

IMAGE = "image"
"""Declared column: number of its image in a request that was split into one for each, from 1."""


CHUNK = "chunk"
"""Declared column: number of the chunk of a session of streaming video, from 1."""

TRY = "try"
"""Declared column: number of the try, from 1, where a client may send a request again."""


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """Column that one part declares and writes, by trace row.

    Attributes:
        values: (rows,) of the served requests, from the trace row ``first`` on.
        public: True if it is a column of requests.parquet.
        total: summary key of its sum; empty for none.
    """

    values: NDArray[Any]
    first: int
    public: bool
    total: str = ""
    _cells: memoryview = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A view of the memory: setting one number through NumPy takes several times as long.
        object.__setattr__(self, "_cells", memoryview(self.values))  # type: ignore[arg-type]

    def __setitem__(self, row: int, value: Any) -> None:
        if row >= self.first:  # rows that only fill a cache have no record
            self._cells[row - self.first] = value

    def __getitem__(self, row: int) -> Any:
        if row < self.first:
            raise SimulationError(f"trace row {row} only filled a cache: no record; records begin at row {self.first}")
        return self._cells[row - self.first]


class RequestColumns:
    """One record per request of the run, end to end in a buffer that NumPy reads as columns without a copy.

    Values that only some systems have are columns of their own, declared by the part that writes them.

    Args:
        rows: number of served requests.
        models: names of all models that may serve one.
        first: trace row of the first served request.
        scratch: where long columns are.

    Attributes:
        model_code: code of each model in the column ``model``.
        reasons: why a request was discarded or failed, by trace row.
        quality: quality factor of each image, if known.
    """

    def __init__(self, rows: int, models: Sequence[str], first: int = 0, scratch: Scratch | None = None) -> None:
        self.model_code = {name: code for code, name in enumerate(dict.fromkeys(models))}
        self.first = first
        self.scratch = Scratch() if scratch is None else scratch
        self._rows = rows
        self._buffer = self.scratch.buffer(rows, UNSERVED)
        self._records: NDArray[Any] = np.frombuffer(self._buffer, RECORD)
        self._columns: dict[str, NDArray[Any]] = {name: self._records[name] for name in OFFSETS}
        self.reasons: dict[int, str] = {}
        self._plain: Plan | None = None
        self.declared: dict[str, DeclaredColumn] = {}
        self.quality = self.declare("quality", public=False)

    def __len__(self) -> int:
        return self._rows

    def __contains__(self, name: str) -> bool:
        return name in OFFSETS or name in self.declared

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the column ``name``, (rows,), as a view."""
        return self.declared[name].values if name in self.declared else self._columns[name]

    def take(self, places: NDArray[np.int64], row_of: NDArray[np.int64]) -> Self:
        """Return the records at ``places``, in this order.

        Args:
            row_of: the row of each trace row now; MISSING of those that are left out.
        """
        taken = self._of(places, self.first)
        source = taken["source"]
        source[:] = np.where(source >= 0, row_of[np.maximum(source, 0)], source)
        taken.reasons = {int(row_of[row]): reason for row, reason in self.reasons.items()}
        return taken

    def _of(self, places: NDArray[np.int64] | slice, first: int) -> Self:
        """Return the records at ``places``, the first of them of the trace row ``first``."""
        part = copy(self)
        part.first = first
        part._columns = {name: column[places] for name, column in self._columns.items()}  # noqa: SLF001 - of this class
        part._rows = len(part["outcome"])  # noqa: SLF001 - of this class
        part.declared = {
            name: DeclaredColumn(column.values[places], first, column.public, column.total)
            for name, column in self.declared.items()
        }
        part.quality = part.declared["quality"]
        return part

    def make_contiguous(self) -> None:
        """Give each column memory of its own, which takes half the time to compute with; no request ends after it."""
        columns = {name: self.scratch.growing(len(self), column.dtype) for name, column in self._columns.items()}
        for start in range(0, len(self), BLOCK):  # so that each record comes from memory once, for all columns
            block = self._records[start : start + BLOCK]
            for name, column in columns.items():
                column.append(block[name])
            if not start % ROWS:
                self.scratch.release()
        self._columns = {name: column.array() for name, column in columns.items()}
        self._buffer, self._records = bytearray(), self._records[:0].copy()

    def read_only(self) -> "ReadColumns":
        """Return these columns for a class from outside the package, which may not change them."""
        made: Any = copy(self)
        made.__class__ = ReadColumns
        return made  # type: ignore[no-any-return]

    def part(self, start: int, stop: int) -> Self:
        """Return the requests ``start`` to ``stop`` - 1 of a run that is over."""
        return self._of(slice(start, stop), self.first + start)

    def blocks(self, min_rows: int = 0) -> Iterator[Self]:
        """Yield the requests of a run that is over, `ROWS` at a time, or ``min_rows`` if that is more."""
        step = max(ROWS, min_rows)
        for start in range(0, len(self), step):
            yield self.part(start, start + step)
            self.scratch.release()

    def write(self, name: str, values: NDArray[Any]) -> None:
        """Write ``values``, (rows,), into the column ``name``, block by block."""
        for block in self.blocks():
            start = block.first - self.first
            block[name][:] = values[start : start + len(block)]

    def computed(self, value: Callable[[Self], NDArray[Any]]) -> NDArray[Any]:
        """Return ``value`` of all requests, computed block by block; of a block it may have fewer numbers."""
        found = self.scratch.growing(len(self), np.float64)
        for block in self.blocks():
            found.append(value(block))
        return found.array()

    def _declared_or(self, name: str, default: float) -> NDArray[Any]:
        """Return the column ``name``, or ``default`` for all requests if no part declares it."""
        return self[name] if name in self else np.full(len(self), default)

    def declare(
        self,
        name: str,
        kind: type = float,
        *,
        default: float | int | bool | None = None,
        public: bool = True,
        total: str = "",
    ) -> DeclaredColumn:
        """Add a column of a part's own. Raises SimulationError if its name is taken or its type is none of NULLS."""
        if not isinstance(name, str) or name in self or name in DERIVED or kind not in NULLS:
            wrong = f"{caller()} declares the column {name!r} as {kind}"
            raise SimulationError(f"{wrong}: expected text as a name that is not taken, and float, int or bool")
        value = np.full(1, NULLS[kind] if default is None else default)
        values = self.scratch.full(len(self), value[0], value.dtype)
        self.declared[name] = DeclaredColumn(values, self.first, public, total)
        return self.declared[name]

    def end(self, request: Request, now_s: float, outcome: int, reason: str) -> None:
        """Write the record of ``request``, which ends now. Raises SimulationError if it ended before (invariant 3)."""
        at, buffer = (request.row - self.first) * SIZE, self._buffer
        # The outcome is in the record itself: no set of ended rows is kept (test_completed_request_ends_once).
        if buffer[at + OUTCOME_OFFSET]:
            before = OUTCOMES[buffer[at + OUTCOME_OFFSET]]
            twice = f"request in row {request.row} ended twice"
            raise SimulationError(f"{twice}: {caller()} ended it at {now_s} s, and before it was {before}")
        if outcome != COMPLETED:
            self._end_unserved(request, now_s, outcome, reason)
            return
        plan, model = request.plan, request.model
        code = MISSING if model is None else self.model_code[model]
        if (
            plan is self._plain and not request.skipped
        ):  # faster: the record says from the start that nothing but a model is planned
            write_ended(
                buffer, at + ENDED_OFFSET, request.arrival_s, now_s, request.width, request.height, request.steps,
                outcome, request.start_s, request.load_s, request.denoise_s, request.decode_s, request.energy_j, code,
                request.worker, request.steps_left,
            )  # fmt: skip
            return
        _, k, _, _, lookup, search_s, source, source_age_s, similarity, fetch_s, _, _, _ = plan
        # Remembered by identity; the next request usually has the very same plan.
        if not lookup and plan == Plan(model):
            self._plain = plan
        # In one call: value by value takes twice the time.
        write_record(
            buffer, at, search_s, similarity, source_age_s, fetch_s, request.skipped, k, source, lookup,
            request.arrival_s, now_s, request.width, request.height, request.steps, outcome, request.start_s,
            request.load_s, request.denoise_s, request.decode_s, request.energy_j, code, request.worker,
            request.steps_left,
        )  # fmt: skip

    def _end_unserved(self, request: Request, now_s: float, outcome: int, reason: str) -> None:
        """Write the record of a request that was discarded or failed, without the columns of SERVED."""
        row = request.row - self.first
        if reason:
            self.reasons[request.row] = reason
        for name in (*PLANNED, *ENDED):
            if name not in ("finish_s", "outcome"):
                self._records[name][row] = getattr(request.plan if name in Plan._fields else request, name)
        self._records["finish_s"][row] = now_s
        self._records["outcome"][row] = outcome

    def tables(
        self,
        request_ids: pa.ChunkedArray,
        source_age_trace_s: NDArray[np.float64],
        users: pa.DictionaryArray | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the table of requests.parquet by row groups, in the order of the trace; -1 and NaN become null.

        Args:
            request_ids: of the whole trace; a source may be a row at its head that only filled the cache.
            source_age_trace_s: as from ``mezzotint.sim.metrics.summary``, (rows,).
            users: of the whole trace; a column if there are any.
        """
        for start in range(0, max(len(self), 1), GROUP):
            self.scratch.release()  # what the summary read, and then the row group before
            part = self.part(start, start + GROUP)
            yield part._table(request_ids, source_age_trace_s[start : start + GROUP], users)  # noqa: SLF001 - of this class

    def _table(
        self, request_ids: pa.ChunkedArray, source_age_trace_s: NDArray[np.float64], users: pa.DictionaryArray | None
    ) -> pa.Table:
        last = self.first + len(self)
        reasons = [self.reasons.get(row) for row in range(self.first, last)] if self.reasons else None
        model, lookup = self["model"], self["lookup"].astype(np.int32)
        derived = {
            "request_id": request_ids.slice(self.first, len(self)).combine_chunks(),
            "outcome": _to_dictionary(self["outcome"].astype(np.int32), OUTCOMES),
            "reason": pa.nulls(len(self), pa.string()) if reasons is None else pa.array(reasons, pa.string()),
            "model": _to_dictionary(model, tuple(self.model_code)),
            "source_id": self._source_ids(request_ids),
            "source_age_trace_s": _plain(source_age_trace_s),
            "stall_s": _plain(self._declared_or("stall_s", 0.0)),
            "batch_mean": _plain(np.where(model == MISSING, np.nan, self._declared_or("batch_mean", 1.0))),
            "quality_factor": _plain(self["quality"]),
            "lookup": _to_dictionary(np.where(lookup == 0, MISSING, lookup), LOOKUPS),
        }
        if users is not None and len(users.dictionary):
            derived[USER] = users.slice(self.first, len(self))
        names = dict.fromkeys((*COLUMNS, *(name for name, column in self.declared.items() if column.public), *derived))
        return pa.table({name: derived[name] if name in derived else _plain(self[name]) for name in names})

    def _source_ids(self, request_ids: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        """Return the names of the requests whose artifacts these started from; null for DECLARED too."""
        source = np.maximum(self["source"], MISSING)
        known = source[source != MISSING]
        if not len(known):
            return pa.nulls(len(source), pa.string())
        begin = int(known.min())
        places = pa.array(source - begin, mask=source == MISSING)
        return request_ids.slice(begin, int(known.max()) + 1 - begin).take(places)


def _plain(values: NDArray[Any]) -> pa.Array:
    return pa.array(values, mask=values == MISSING if values.dtype.kind == "i" else None, from_pandas=True)


def _to_dictionary(codes: NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    indices = pa.array(codes, mask=codes == MISSING)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


class ReadColumns(RequestColumns):
    """Columns that cannot be written."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        view = super().__getitem__(name).view()
        view.setflags(write=False)
        return view
