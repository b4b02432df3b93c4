"""Interpret the columns of a table of requests: what each means, and its cells as a trace has them."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.cells import are_dates, as_text, integers, name_of, numbers, pointed, refusal, unit_of
from mezzotint.traces.formats.clock import WORDS, Clock, ClockName, read_clock
from mezzotint.traces.formats.headers import (
    DURATIONS,
    LINES,
    NAMES,
    NULLS,
    PARTS,
    RATES_REMEDY,
    SIZES,
    TIMES,
    UNIT_WORDS,
    Meaning,
    guess_meaning,
    is_failure,
    is_outcome,
    is_unsaid_ms,
    meaning,
    normalise,
    not_requests,
    scale,
    stated_seconds,
)  # fmt: skip
from mezzotint.traces.sources.reader import make_reading
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY, ROWS, Batch, Reading, order_times, own_clock, since_earliest
from mezzotint.traces.table.validation import LONGEST_S, Origin, excerpt

if TYPE_CHECKING:
    from mezzotint.traces.sources.table import Table

SAID = "read_as"
"""Key of the note with what was taken, what was left out and what was guessed, a sentence each."""

MAX_SECONDS = 100
"""Median of numbers without a unit from which a duration may be in another unit than seconds."""

READ_BY_GATEWAY = "whose keys `mezzotint trace import gateway` reads"
"""Said of objects in the cells of a table."""

DAY_ALONE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4}))\s*$")
"""A date without a time."""

AGREE_S = 1e-3
"""Two clocks of one table agree if no request is further apart on them."""

SQUARES = range(64, 4097, 64)
"""Numbers that are read as the side of a square image, pixels; others may be bytes, or the lines of a video (720)."""

SIZE = re.compile(r"\s*(\d{1,9})\s*(?:px)?\s*[xX×*]\s*(\d{1,9})\s*(?:px)?\s*")

SIDES = re.compile(r'[\[{]\s*(?:"width":\s*)?(\d{1,9})\s*,\s*(?:"height":\s*)?(\d{1,9})\s*[\]}]')
"""A size as a list or an object of JSON."""

FLAGS = ("true", "false", "yes", "no")
"""Words that say whether there is an add-on, and not which one."""

MODELS_OWN = ("auto", "default")
"""Sizes that leave the choice to the model."""

NO_SIZE = (0, 0)
"""What `sides_of` makes of a text that is no size."""

MIN_FRAMES = 16
"""Frames of the shortest clips of video models. A length of so many seconds may be one of frames."""

REQUEST_LIKE = set(SCHEMA.names) - {"arrival_s", "base_model", "images"} | {"size", "video_s"}
"""Meanings that rows of counts over time do not have."""


class Interpretation:
    """Meanings of the columns of one table.

    Attributes:
        names: meaning -> the file's name of its column.
        kinds: the file's name of a column -> its type.
        left_out: the file's name of a column -> why it is not in the trace.
        remarks: what was guessed or looks odd, a sentence each.
        numbers: (n,) numbers of the rows in the file.
    """

    def __init__(
        self, source: "Table", table: pa.Table, kind: str, numbers: npt.NDArray[np.int64] | None = None
    ) -> None:
        self.source, self.kind, self.where = source, kind, str(Path(source.path).expanduser())
        self.rows = table.num_rows
        self.numbers = np.arange(self.rows) if numbers is None else numbers
        # As pandas names a column without a name.
        self.header = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(table.column_names)]
        twice = next((name for name in self.header if self.header.count(name) > 1), None)
        if twice is not None:
            raise TraceError(f"{self.where}: found column {excerpt(repr(twice))} twice; rename one")
        self.left_out: dict[str, str] = {}
        self.remarks: list[str] = []
        self.names: dict[str, str] = {}
        self.meanings: dict[str, Meaning] = {}  # by the file's name
        self.cells = {
            name: cells
            for name, column in zip(self.header, table.columns, strict=True)
            if (cells := as_text(column)) is not None
        }
        self.kinds = dict(zip(self.header, table.schema.types, strict=True))
        for name, kind in self.kinds.items():
            if name not in self.cells:
                why = READ_BY_GATEWAY if pa.types.is_struct(kind) else "no single values"
                self.left_out[name] = f"holds {kind}, {why}"

    def reading(self) -> Reading:
        """Interpret the columns, and return the reading."""
        self._assign()
        self._ask()
        self._empty()
        origin = Origin(self.where, self.names, self.numbers)
        columns = self._columns(origin)
        clock = self._clock(origin)
        if clock is not None and "slo_s" in columns:
            self._refuse_instants(columns["slo_s"], clock)
        times = order_times(self.rows, 0) if clock is None else clock.times
        times = pa.chunked_array([times]) if isinstance(times, pa.Array) else times
        relative = clock is None or clock.relative
        if clock is not None:
            self.remarks.extend(clock.remarks)
            if self.rows > 1 and np.ptp(clock.seconds) == 0:
                self.remarks.append(f"{self.names['arrival_s']}: all {self.rows:,} requests arrive at one instant")
        for name in self.header:
            if name not in self.left_out and name not in self.names.values():
                self.left_out[name] = self._unused(name)
        self._forget_latencies_of_failures(columns)
        notes = {"file": Path(self.where).name, "columns": dict(self.names)}
        notes |= {"columns_left_out": self.left_out} if self.left_out else {}
        notes |= {"arrival_s": ORDER_ONLY} if clock is None else {"arrival_written": clock.written}
        notes[SAID] = self._said(clock)

        def batches() -> Iterator[Batch]:
            for start in range(0, self.rows, ROWS):
                part = {name: column.slice(start, ROWS) for name, column in columns.items()}
                here = Origin(self.where, self.names, self.numbers[start : start + ROWS])
                yield Batch(part, times.slice(start, ROWS), here, relative=relative)

        settle = own_clock if relative else since_earliest
        return make_reading(self.source, f"table of requests, {Path(self.where).name}", batches(), notes, settle)

    def _assign(self) -> None:
        """Find the meaning of each column: as mapped, else by its usual name."""
        self._check_choices()
        candidates: dict[str, list[str]] = {}
        for column in self.cells:
            means = self._meaning(column)
            if column in self.source.leave_out:
                self.left_out[column] = "as told"
            elif means is not None and self._is_row_number(column, means.name):
                self.left_out[column] = "the number of the row"
            elif means is not None:
                if means.name in DURATIONS and (stated := stated_seconds(self.cells[column])) is not None:
                    self.cells[column], means = stated, Meaning(means.name, "s")
                self.meanings[column] = means
                candidates.setdefault(means.name, []).append(column)
        self._join_times(candidates.get("arrival_s", []))
        lengths = [
            column
            for column in candidates.get("latency_s", [])
            if normalise(column).startswith("duration") and column not in self.source.columns.values()
        ]
        if lengths and "fps" in candidates and "video_s" not in candidates and self._is_length(lengths[0], candidates):
            # beside frames per second, the duration is the video's
            column = lengths[0]
            self.meanings[column] = Meaning("video_s", self.meanings[column].unit)
            candidates["latency_s"].remove(column)
            candidates["video_s"] = [column]
        for name, columns in candidates.items():
            if not columns:
                continue
            columns.sort(key=lambda column: self._rank(name, column))
            if name == "prompt" and len(columns) > 1 and self._rank(name, columns[0]) > 1:
                raise TraceError(
                    f"{self.where}: found the columns {excerpt(', '.join(columns))}, each of which may be {name};"
                    f" choose one, as in {_map(name, columns[0])}, or --map {name}= for none"
                )
            self.names[name] = columns[0]
            for column in columns[1:]:
                self.left_out[column] = f"{name} is read from {columns[0]}; {_map(name, column)} takes it"
        self._refuse_intervals()
        if not self.names:
            raise TraceError(
                f"{self.where}: found the columns {excerpt(', '.join(self.header))}, none of which is a column of a"
                " trace; map some, as in --map prompt=COLUMN"
                + ("" if len(self.header) > 1 else ", or name the character between them with --delimiter")
            )

    def _is_length(self, column: str, candidates: dict[str, list[str]]) -> bool:
        """Return True if a duration is that of a video: no frames are there, or they last as long."""
        if "frames" not in candidates:
            return True
        names = (column, candidates["frames"][0], candidates["fps"][0])
        length, frames, fps = (pd.to_numeric(pd.Series(self.cells[name].to_pylist()), "coerce") for name in names)
        length /= scale(self.meanings[column].unit)
        return bool(((frames / fps - length).abs() <= 0.1 * length).all())

    def _join_times(self, columns: list[str]) -> None:
        """Put a column of dates before one of times of day, as in a table with both."""
        cells = {column: next((cell for cell in self.cells[column].to_pylist() if cell), "") for column in columns}
        days = [column for column, cell in cells.items() if are_dates(self.cells[column]) and ":" not in cell]
        days = days or [column for column in self.cells if self._are_days(column)]
        clocks = [column for column, cell in cells.items() if re.fullmatch(r"\s*\d{1,2}:\d{2}.*", cell)]
        if len(days) == len(clocks) == 1:
            day, clock = days[0], clocks[0]
            self.cells[clock] = pc.binary_join_element_wise(self.cells[day], self.cells[clock], " ")
            self.left_out[day] = f"the days of {clock}, which has the times of day"
            if day in columns:
                del self.meanings[day]
                columns.remove(day)

    def _are_days(self, column: str) -> bool:
        """Return True if a column of no known name has dates without a time."""
        is_free = column not in self.meanings and column not in self.left_out
        known = [cell for cell in self.cells[column].to_pylist() if cell] if is_free else []
        return bool(known) and all(map(DAY_ALONE.match, known))

    def _empty(self) -> None:
        """Make words for no value null, in columns of numbers and lists."""
        for name, column in self.names.items():
            if name not in PARTS and pa.types.is_string(SCHEMA.field(name).type):
                continue
            cells = self.cells[column]
            lower = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
            bad = pc.is_in(lower, pa.array(sorted(NULLS))).fill_null(False)
            if count := pc.sum(bad).as_py():
                words = ", ".join(sorted(set(cells.filter(bad).to_pylist())))
                self.remarks.append(f"{column}: {excerpt(words, 60)} in {count:,} rows stands for no value")
                self.cells[column] = pc.if_else(bad, pa.scalar(None, pa.string()), cells)

    def _forget_latencies_of_failures(self, columns: dict[str, Any]) -> None:
        """Keep the requests that failed by a column of outcomes, as load, and not their latencies, as a gateway's."""
        for column in self.cells:
            if column not in self.left_out or column in self.source.leave_out or not is_outcome(column):
                continue
            failed = pa.array([is_failure(column, cell) for cell in self.cells[column].to_pylist()])
            if count := pc.sum(failed).as_py():
                for name in columns.keys() & {"latency_s", "gen_s"}:
                    columns[name] = pc.if_else(failed, pa.scalar(None, pa.float64()), columns[name])
                self.remarks.append(
                    f"{column}: {count:,} of {self.rows:,} requests failed by their {column}, and are kept without"
                    f" their latency (`mezzotint trace import table --leave-out {_quoted(column)}` keeps it);"
                    " `mezzotint trace import gateway` leaves out those refused"
                )

    def _check_choices(self) -> None:
        """Raise TraceError for a choice of the user that names no meaning or no column, or a column twice."""
        mapped: dict[str, str] = {}
        for name, column in self.source.columns.items():
            if name not in (*SCHEMA.names, *PARTS):
                raise TraceError(
                    f"{self.where}: cannot map {column!r} to {name!r}, expected a column of a trace:"
                    f" {', '.join((*SCHEMA.names, *PARTS))}"
                )
            if column and mapped.setdefault(column, name) != name:
                raise TraceError(
                    f"{self.where}: column {column!r} is mapped to {mapped[column]} and {name}; choose one"
                )
        for column in (*mapped, *self.source.leave_out, *self.source.units):
            if column not in self.header:
                raise TraceError(
                    f"{self.where}: column {column!r} is missing, found {excerpt(', '.join(self.header))}; check the"
                    " file or the map"
                )
        for column, unit in self.source.units.items():
            if (own := unit_of(self.kinds[column]) or unit) != unit:
                raise TraceError(
                    f"{self.where}: --unit {_quoted(f'{column}={unit}')}: the column holds durations in {WORDS[own]};"
                    " leave the option out"
                )

    def _meaning(self, column: str) -> Meaning | None:
        """Return the meaning of a column, as mapped or by its usual name, and its unit, as told or by its name."""
        by_name = meaning(column)
        mapped = next((name for name, source in self.source.columns.items() if source == column), None)
        if mapped is not None:
            unit = by_name.unit if by_name else UNIT_WORDS.get(normalise(column).rpartition("_")[2])
            by_name = Meaning(mapped, unit)
        elif self._is_unnamed(column) and "arrival_s" not in self.source.columns and are_dates(self.cells[column]):
            return Meaning("arrival_s", None)  # an index of times, as pandas writes it
        elif by_name is None or by_name.name in self.source.columns:
            return None
        return Meaning(by_name.name, unit_of(self.kinds[column]) or self.source.units.get(column) or by_name.unit)

    def _rank(self, name: str, column: str) -> int:
        """Return the place of a column among those that may have a meaning, the first being the likeliest."""
        plain = normalise(column)
        if column in self.source.columns.values() or plain == name:
            return -1
        base = plain if plain in NAMES[name] else plain.rpartition("_")[0]
        return NAMES[name].index(base) if base in NAMES[name] else len(NAMES[name])

    def _is_unique(self, column: str) -> bool:
        cells = self.cells[column]
        return not cells.null_count and pc.count_distinct(cells).as_py() == self.rows

    @staticmethod
    def _is_unnamed(column: str) -> bool:
        """Return True for a name that writers of tables give the labels of the rows."""
        return normalise(column) in ("_", "index") or re.fullmatch(r"unnamed_\d+", normalise(column)) is not None

    def _is_row_number(self, column: str, name: str) -> bool:
        """Return True if a column of images or steps by its name, n or step, counts the rows."""
        is_index = (name, normalise(column)) in (("images", "n"), ("steps", "step"))
        if not is_index or self.rows < 3 or column in self.source.columns.values():
            return False
        cells = self.cells[column].to_pylist()
        return cells in ([str(row) for row in range(self.rows)], [str(row + 1) for row in range(self.rows)])

    def _refuse_intervals(self) -> None:
        """Refuse a table whose rows are counts, rates, statistics or metrics."""
        asked = [name for name in self.header if name not in self.source.leave_out]
        found = not_requests(asked, self.names.keys())
        others = [name for name in self.cells if name not in self.names.values() and name not in self.left_out]
        if found is None and "arrival_s" in self.names and not REQUEST_LIKE & self.names.keys():
            others += [self.names["images"]] if "images" in self.names else []
            if others and self._is_regular() and all(_are_numbers(self.cells[other]) for other in others):
                without = (
                    "--map images=" if others == [self.names.get("images")] else f"--leave-out {_quoted(others[0])}"
                )
                found = (
                    f"numbers ({excerpt(', '.join(others), 60)}) at equal intervals, expected a row a request;"
                    f" {RATES_REMEDY}; if the rows are requests, say {without}"
                )
        if found is not None:
            raise TraceError(f"{self.where}: found {found}")

    def _is_regular(self) -> bool:
        """Return True if the times of five rows or more are equally far apart."""
        if self.rows < 5:
            return False
        try:
            clock = self._clock(Origin(self.where, self.names))
        except TraceError:
            return False
        steps = np.diff(clock.seconds) if clock else np.zeros(0)
        return bool(len(steps) and steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-6))

    def _ask(self) -> None:
        """Refuse a column that looks like one that is missing; note one that looks like one that is there."""
        for column, cells in self.cells.items():
            name = None if column in self.meanings or column in self.left_out else guess_meaning(column)
            if name is None or name in self.source.columns or not _suits(cells, name):
                continue
            has_frames = name in ("width", "height") and "size" in self.names
            if name in self.names or has_frames:
                self.left_out[column] = self._twin(column) or (
                    f"looks like {name}, which is read from {self.names.get(name, self.names.get('size'))}"
                )
                continue
            raise TraceError(
                f"{self.where}: column {excerpt(column)} looks like {name}, which no other column is; say"
                f" {_map(name, column)}, or --leave-out {_quoted(column)}"
            )

    def _columns(self, origin: Origin) -> dict[str, Any]:
        """Return the columns of the trace, (n,) each, without arrivals."""
        columns: dict[str, Any] = {}
        for name, column in list(self.names.items()):
            cells = self.cells[column]
            if name in ("arrival_s", *PARTS):
                continue
            if name == "request_id" and self._rank(name, column) >= 0 and not self._is_unique(column):
                del self.names[name]
                self.left_out[column] = f"its names of requests are not unique; {_map(name, column)} insists"
                continue
            columns[name] = self._converted(name, column, cells, origin)
        self._sizes(columns, origin)
        self._frames(columns, origin)
        return columns

    def _converted(self, name: str, column: str, cells: pa.ChunkedArray, origin: Origin) -> Any:
        kind = SCHEMA.field(name).type
        if name == "base_model":
            texts = [_named(cell) for cell in cells.to_pylist()]
            return pa.chunked_array([pa.array(texts, pa.string())])
        if pa.types.is_string(kind):
            return cells
        if pa.types.is_list(kind):
            is_flag = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(cells)), pa.array(FLAGS))
            if pc.all(pc.or_(is_flag, pc.is_null(cells))).as_py() and cells.null_count < len(cells):
                expected = f"their names ({_map(name, '')} goes without the column)"
                raise refusal(
                    origin, pc.index(is_flag, True).as_py(), name, repr(cells.drop_null()[0].as_py()), expected
                )
            if pc.any(pc.match_substring(cells, "{")).as_py():
                self.remarks.append(f"{column}: of objects the names are taken")
            return pa.array([_listed(cell, self.source.list_separator) for cell in cells.to_pylist()], kind)
        if name == "input_images" and not _are_numbers(cells):
            self.remarks.append(f"{column} names input images, which are counted")
            return pa.array([None if x is None else _count(x) for x in cells.to_pylist()], kind)
        if name == "seed":
            random = pc.equal(pc.utf8_trim_whitespace(cells), "-1").fill_null(False)
            if count := pc.sum(random).as_py():
                self.remarks.append(f"{column}: -1 in {count:,} rows stands for a random seed, and is null")
                cells = pc.if_else(random, pa.scalar(None, pa.string()), cells)
        if name == "slo_s" and _are_times(pointed(cells, origin, name), scale(self.meanings[column].unit), origin):
            raise self._found_instants(cells.drop_null()[0].as_py())
        if pa.types.is_integer(kind):
            return integers(pointed(cells, origin, name), origin, name, kind if name == "seed" else None)
        values = numbers(pointed(cells, origin, name), origin, name)
        return self._in_seconds(name, column, values) if name in TIMES else values

    def _refuse_instants(self, slo_s: pa.ChunkedArray, clock: Clock) -> None:
        """Raise TraceError for deadlines on the clock of the arrivals, unless the column is mapped.

        Instants rise with the arrivals, so that their distances from the arrivals vary less than they do. Of seconds
        from an arrival the opposite holds.
        """
        deadlines, arrivals = slo_s.to_numpy(), np.asarray(clock.seconds)
        known = ~np.isnan(deadlines)
        deadlines, after_s = deadlines[known], (deadlines - arrivals)[known]
        is_free = self._rank("slo_s", self.names["slo_s"]) >= 0 and len(deadlines) > 2
        if is_free and (after_s >= 0).all() and np.std(after_s) < np.std(deadlines) / 2:
            raise self._found_instants(f"{deadlines[-1]:g}, {after_s[-1]:g} s after the arrival of its request")

    def _found_instants(self, example: object) -> TraceError:
        column = self.names["slo_s"]
        return TraceError(
            f"{self.where}: column {excerpt(column)}: found times such as {example}, expected the seconds from a"
            f" request's arrival; write those, or say --map slo_s= for none ({_map('slo_s', column)} takes it as it is)"
        )

    def _in_seconds(self, name: str, column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return durations in seconds. Raises TraceError if their unit is not stated and may be milliseconds."""
        unit = self.meanings[column].unit
        if unit is None:
            known = values.drop_null().to_numpy()
            middle = np.median(known) if len(known) else 0.0
            if middle >= MAX_SECONDS:
                likely = [unit for unit in ("ns", "us", "ms", "s") if 0.1 <= middle / scale(unit) <= 86_400] or ["s"]
                raise TraceError(
                    f"{self.where}: column {excerpt(column)}: found numbers about {middle:g}, which may be of any unit;"
                    f" say --unit {_quoted(column)}={', or '.join(likely)}"
                )
            self.remarks.append(f"{column} states no unit and is read as seconds")
        return values if scale(unit) == 1.0 else pc.divide(values, scale(unit))

    def _sizes(self, columns: dict[str, Any], origin: Origin) -> None:
        """Make width and height of a size."""
        column = self.names.get("size")
        if column is None:
            return
        distinct = self.cells[column].combine_chunks().dictionary_encode()
        sides = [sides_of(text) for text in distinct.dictionary.to_pylist()]
        known = pa.scalar(False)
        if {"width", "height"} <= columns.keys():
            known = pc.or_(pc.is_valid(columns["width"]), pc.is_valid(columns["height"]))
        is_none = pa.array([side == NO_SIZE for side in sides], pa.bool_()).take(distinct.indices)
        if (index := pc.index(pc.and_not(is_none, known), pa.scalar(True)).as_py()) >= 0:
            found = self.cells[column][index].as_py()
            raise refusal(origin, index, "size", repr(found), size_expected(found))
        if names := sorted({text.strip() for text in distinct.dictionary.to_pylist()} & SIZES.keys()):
            shown = ", ".join(f"{name} as {'x'.join(map(str, SIZES[name]))}" for name in names)
            self.remarks.append(f"{column}: {shown}, as fal names sizes")
        made = {}
        for position, name in enumerate(("width", "height")):
            pixels = pa.array([None if side is None else side[position] for side in sides], pa.int64())
            made[name] = pa.chunked_array([pixels.take(distinct.indices)])
        if made.keys() <= columns.keys():
            fills = pc.and_(pc.invert(known), pc.is_valid(made["width"]))
            same = all(pc.all(pc.equal(made[name], columns[name])).as_py() is not False for name in made)
            why = "the same as width and height" if same else "differs from width and height, which are taken"
            if count := pc.sum(fills).as_py():
                self.remarks.append(f"{column}: read in {count:,} rows without width and height; elsewhere {why}")
                columns |= {name: pc.if_else(fills, made[name], columns[name]) for name in made}
            else:
                del self.names["size"]
                self.left_out[column] = why
            return
        for name in made:
            if name in columns:
                self.left_out[self.names.pop(name)] = f"{name} is read from {column}"
        columns |= made

    def _frames(self, columns: dict[str, Any], origin: Origin) -> None:
        """Make the frames of a video of its seconds and frames per second.

        A video model makes 4 k + 1 frames: the product is rounded down to a multiple of 4, and one is added.
        """
        seconds, fps = self.names.get("video_s"), self.names.get("fps")
        missing = "frames" in columns and columns["frames"].null_count > 0 and fps is not None
        if seconds is None or ("frames" in columns and not missing):
            for name in ("video_s", "fps"):
                if name in self.names:
                    reason = "frames are there" if "frames" in columns else "without seconds of a video"
                    self.left_out[self.names.pop(name)] = reason
            return
        if fps is None:
            raise TraceError(
                f"{self.where}: column {excerpt(seconds)}: found seconds of a video without frames per second; add a"
                f" column fps, or say --leave-out {_quoted(seconds)}, or what else it is, as in"
                f" {_map('latency_s', seconds)}"
            )
        where = Origin(self.where, {"video_s": seconds, "fps": fps}, origin.rows)
        length, rate = (
            numbers(pointed(self.cells[column], where, name), where, name)
            for name, column in (("video_s", seconds), ("fps", fps))
        )
        lacks = pc.and_(pc.is_valid(length), pc.is_null(rate))
        if missing:
            lacks = pc.and_(lacks, pc.is_null(columns["frames"]))
        if (index := pc.index(lacks, pa.scalar(True)).as_py()) >= 0:
            raise TraceError(
                f"{origin.cell(index, 'fps')}: found null beside {excerpt(seconds)}, expected frames per second; fix or"
                " drop the row, or go without the frames of all, --map video_s="
            )
        length = pc.divide(length, scale(self.meanings[seconds].unit))
        longest = pc.max(length).as_py() or 0.0
        is_told = "video_s" in self.source.columns or self.meanings[seconds].unit is not None
        if longest >= MIN_FRAMES and seconds.lower().endswith("length") and not is_told:
            raise TraceError(
                f"{self.where}: column {excerpt(seconds)}: found numbers to {longest:g}, which may be frames or"
                f" seconds; say {_map('frames', seconds)}, or {_map('video_s', seconds)}"
            )
        # rounded first, so that 0.1 s at 30 frames a second are 3 frames and not 2.9999999999999996
        product = pc.round(pc.multiply(length, rate), 6)
        made = pc.add(pc.multiply(pc.floor(pc.divide(product, 4.0)), 4.0), 1.0)
        columns["frames"] = pc.coalesce(columns["frames"].cast(pa.float64()), made) if missing else made

    def _clock(self, origin: Origin) -> Clock | None:
        """Return the arrivals, None without a column of them; another clock of the table is compared."""
        column = self.names.get("arrival_s")
        if column is None:
            return None
        clock = self._read_clock(column, origin, self.source.arrival)
        for other, of in self.meanings.items():
            if of.name != "arrival_s" or other == column:
                continue
            reason = f"another clock; the arrivals are {column} ({_map('arrival_s', other)} takes it)"
            try:
                second = self._read_clock(other, Origin(self.where, {"arrival_s": other}), "auto")
                apart = clock.seconds - second.seconds
                apart = np.abs(apart - apart[~np.isnan(apart)][0])
                max_apart_s = float(np.nanmax(apart))
                row = int(np.nanargmax(apart))
                differs = f"differs by up to {max_apart_s:,.6g} s (row {row}, from the first row)"
                agree = "agrees" if max_apart_s <= AGREE_S else differs
                self.left_out[other] = f"{reason}; it {agree}"
            except (TraceError, IndexError, ValueError):
                self.left_out[other] = f"{reason}; it is no clock throughout"
        return clock

    def _read_clock(self, column: str, origin: Origin, name: ClockName) -> Clock:
        cells = self.cells[column]
        if not are_dates(cells):
            cells = pointed(cells, origin, "arrival_s")
        unit = self.meanings[column].unit
        if normalise(column).endswith("request_time") and unit is None and _are_durations(cells, origin):
            raise TraceError(
                f"{self.where}: column {excerpt(column)}: found numbers such as {cells[0].as_py()}, which in nginx's"
                " logs are the seconds that a request took, and no times; read such a log with `mezzotint trace import"
                f" access-log FILE`, or say {_map('latency_s', column)}; if they are arrivals, say --unit"
                f" {_quoted(f'{column}=s')}"
            )
        has_date = "date" in normalise(column)
        if is_unsaid_ms(self.header) and unit is None and name == "auto" and _are_durations(cells, origin):
            raise TraceError(
                f"{self.where}: column {excerpt(column)}: found numbers without a unit in a table like those of AIPerf"
                f" or Mooncake, which count milliseconds; say --unit {_quoted(column)}=ms, or s"
            )
        clock = read_clock(cells, origin, name=name, unit=unit, dates=self.source.dates, has_date=has_date)
        if not clock.relative and self.kinds[column] in (pa.float16(), pa.float32()):
            raise TraceError(
                f"{self.where}: column {excerpt(column)}: found 32-bit floats of times since 1970, which are rounded to"
                " minutes; write them as float64 or as whole numbers"
            )
        return clock

    def _unused(self, name: str) -> str:
        """Return why a column without a meaning is not in the trace."""
        cells = self.cells[name]
        if self.rows > 1:
            if pc.count_distinct(cells, mode="all").as_py() == 1:
                return f"constant, {excerpt(repr(cells[0].as_py()), 30)}"
            if twin := self._twin(name):
                return twin
            if self._is_unnamed(name) and _are_numbers(cells):
                return "the number of the row"
            if pc.any(pc.starts_with(cells, "{")).as_py():
                return f"objects, {READ_BY_GATEWAY}"
        return "unknown name"

    def _twin(self, name: str) -> str:
        """Return which column of the trace has the same cells, in words; empty if there is none."""
        cells = self.cells[name]
        return next((f"a duplicate of {other}" for other in self.names.values() if self.cells[other].equals(cells)), "")

    def _said(self, clock: Clock | None) -> list[str]:
        """Return what was taken and as what, what was left out and why, and what was guessed: a sentence each."""
        taken = []
        for name, column in self.names.items():
            unit = clock.written if name == "arrival_s" and clock else ""
            if name in TIMES[1:]:
                unit = WORDS[self.meanings[column].unit or "s"]
            target = {"size": "width and height", "video_s": "frames", "fps": "frames"}.get(name, name)
            taken.append((column if column == target else f"{column} as {target}") + f" ({unit})" * bool(unit))
        lines = [f"{self.kind}, {self.rows:,} rows", f"taken: {'; '.join(taken)}"]
        if self.left_out:
            lines.append("left out: " + "; ".join(f"{name} ({why})" for name, why in self.left_out.items()))
        return [excerpt(line, 2000) for line in (*lines, *self.remarks)]


def sides_of(text: str) -> tuple[int, int] | None:
    """Return width and height, None if the model chooses them, `NO_SIZE` for a text that is no size."""
    if text.strip().lower() in MODELS_OWN:
        return None
    if match := SIZE.fullmatch(text) or SIDES.fullmatch(text):
        return int(match[1]), int(match[2])
    if text.strip().lower() in SIZES:
        return SIZES[text.strip().lower()][0], SIZES[text.strip().lower()][1]
    side = re.fullmatch(r"\s*(\d{1,9})\s*(?:px)?\s*", text)
    return (int(side[1]), int(side[1])) if side and int(side[1]) in SQUARES else NO_SIZE


def size_expected(text: str) -> str:
    """Return what is expected in place of a text that is no size."""
    word = text.strip().lower()
    example = f"{LINES[word]} if that is what {text.strip()} stands for here" if word in LINES else "1024x768"
    return f"WIDTHxHEIGHT in pixels, such as {example} (--map size= goes without the column)"


def _count(cell: str) -> int:
    """Return the number of images that a cell names; of a yes or no, 1 or 0."""
    said = {"true": 1, "yes": 1, "false": 0, "no": 0}.get(cell.strip().lower())
    return len(_listed(cell, ";") or []) if said is None else said


def _named(cell: str | None) -> str | None:
    """Return the name of a model, which may be a JSON object with a name."""
    try:
        item = json.loads(cell) if cell and cell.startswith("{") else cell
    except ValueError:
        item = cell
    return name_of(item) or cell


def _map(name: str, column: str) -> str:
    """Return the option that takes a column as ``name``, as a shell reads it."""
    return f"--map {_quoted(f'{name}={column}')}"


def _quoted(word: str) -> str:
    """Return a word as a shell reads it, for a message."""
    return excerpt(shlex.quote(word))


def _are_numbers(cells: pa.ChunkedArray) -> bool:
    """Return True if every cell that is not null is a number."""
    good = pc.match_substring_regex(cells, r"^\s*[+-]?(\d+([.,]\d*)?|\.\d+)([eE][+-]?\d+)?\s*$")
    return bool(pc.all(good.fill_null(True)).as_py()) and cells.null_count < len(cells)


def _are_durations(cells: pa.ChunkedArray, origin: Origin) -> bool:
    """Return True if the cells are numbers too small for seconds since 1970."""
    return _are_numbers(cells) and (pc.max(numbers(cells, origin, "arrival_s")).as_py() or 0.0) < LONGEST_S


def _are_times(cells: pa.ChunkedArray, per_second: float, origin: Origin) -> bool:
    """Return True if the cells are dates, or numbers that may count from 1970."""
    if not _are_numbers(cells):
        return are_dates(cells)
    return bool((pc.max(numbers(cells, origin, "slo_s")).as_py() or 0.0) / per_second > LONGEST_S)


def _suits(cells: pa.ChunkedArray, name: str) -> bool:
    """Return True if cells may be what the column's name looks like: text, numbers, or times."""
    if cells.null_count == len(cells):
        return False
    if name == "arrival_s":
        return _are_numbers(cells) or are_dates(cells)
    if name in PARTS:
        return name == "size" or _are_numbers(cells)
    kind = SCHEMA.field(name).type
    if pa.types.is_list(kind):
        return True
    return not _are_numbers(cells) if pa.types.is_string(kind) else _are_numbers(cells)


def _listed(cell: str | None, separator: str) -> list[str] | None:
    """Return the names in a cell: a list or an object of JSON or Python, or words with separators between them."""
    if cell is None:
        return None
    for parse in (json.loads, ast.literal_eval) if cell.lstrip()[:1] in ("[", "{") else ():
        try:
            items = parse(cell.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        items = items if isinstance(items, list) else [items]
        return [name_of(item) or json.dumps(item, default=str) for item in items if item is not None]
    return [part.strip() for part in cell.split(separator) if part.strip()]
