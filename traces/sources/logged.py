"""Logs of servers, load clients and image tools, a source for each file in `forms`, over the reader of tables.

A form names the reader of its records, and the fields of a record that have a meaning. The records become a table of
text, which `mezzotint.traces.sources.interpret` reads as any other.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import typer
import yaml

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.cells import name_of, numbers, pointed, refusal
from mezzotint.traces.formats.clock import PER_SECOND, read_clock
from mezzotint.traces.formats.headers import (
    ILL,
    NAMES,
    NULLS,
    PARTS,
    UNIT_WORDS,
    WELL,
    meaning,
    normalise,
    stated_seconds,
    status_text,
)
from mezzotint.traces.formats.logs import READERS
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.interpret import AGREE_S, NO_SIZE, SAID, sides_of
from mezzotint.traces.sources.table import Table, options_elsewhere
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import Reading
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import LONGEST_S, Origin, excerpt

FOLDER = resources.files("mezzotint.traces.sources") / "forms"

OF_LOGS = ("end_s", "status", "error", "method", "url", "messages")
"""Meanings of fields that are no column of a trace: the time of the answer, the outcome, the endpoint, a chat."""

OUTCOMES = ("status", "error", "method", "url")
"""Meanings that tell whether a record is a request that was served; none of them is kept."""

GENERATES = r"images|videos?\b|generat|txt2img|img2img|text2|t2[iv]|i2[iv]|predictions|/prompt$"
"""Regular expression for the paths of endpoints that make images or videos; it is searched in a path."""

DEPTH = 6
"""Levels of a nested record that are looked into."""

LONG = 2000
"""Characters of a value that is kept in the extras, at most: more is an image or a text of an answer."""

SHOWN = 30
"""Fields, or reasons, that are named; the rest is counted."""

PART = re.compile(r"partial|delta|chunk|progress|heartbeat")
"""Types of events that are parts of one answer."""

NO_ERROR: Sequence[Any] = ("", False, [], {}, "0", 0)
"""Values of a field of errors of a request that has none."""

REFUSED = re.compile(r"4(?!08|99)\d\d([.]0*)?( .*)?")
"""Statuses of requests that a server refused before any work; 408 and 499 are of clients that gave up waiting."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The declaration of a log's form.

    Attributes:
        title: the form in words.
        help, path: help texts of the command and of the argument PATH.
        records: key of `READERS`.
        columns: meaning (a column of a trace, a part of one, or one of `OF_LOGS`) -> fields, of which the first that a
            record has is taken. A field inside another has the names of both with a point between them.
        envelopes: fields around a whole record, as log shippers put there: their members are those of the record.
        usual: fields whose members go by their usual names, too, "" for the record itself; earlier ones count first.
        also: meaning -> further usual names.
        units: field -> unit of its times.
        extras: fields whose members without a meaning are kept in the extras.
        endpoints: whether only POST requests to endpoints that match `--paths` are taken.
        remarks: what a user has to know of the form's times, printed.
        options: further options, as name -> help text.
    """

    title: str
    help: str
    path: str
    records: str
    columns: Mapping[str, Sequence[str]]
    envelopes: Sequence[str] = ()
    usual: Sequence[str] = ()
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    extras: Sequence[str] = ()
    endpoints: bool = False
    remarks: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


class Logged:
    """A log of a form: the base of the classes in `SOURCES`."""

    FORM: ClassVar[Form]

    path: Any
    columns: dict[str, str]
    units: dict[str, str]
    drop_failed: bool
    keep_refused: bool
    name: str | None
    limits: Limits

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        for name in self.columns:
            if name not in (*SCHEMA.names, *PARTS, *OF_LOGS):
                known = ", ".join((*SCHEMA.names, *PARTS, *OF_LOGS))
                raise TraceError(f"{path}: --map {name}={self.columns[name]}: expected one of {known} before the =")
        for name, unit in self.units.items():
            if unit not in PER_SECOND:
                raise TraceError(f"{path}: --unit {name}={unit}: expected one of {', '.join(PER_SECOND)}")
        paths = getattr(self, "paths", None) or (GENERATES if self.FORM.endpoints else None)
        try:
            pattern = None if paths is None else re.compile(paths)
        except re.error as error:
            raise TraceError(f"{path}: --paths {paths!r}: {error}; give a regular expression") from None
        gathered = _Gathered(self.FORM, self, str(path), pattern)
        for row, record in READERS[self.FORM.records](path, self.limits, self):
            gathered.add(row, record)
        return gathered.reading()


class _Gathered:
    """The records of a log as columns of text.

    Attributes:
        rows: number of each request in the file; those of ``unserved`` failed.
        values: meaning -> a value for each request, None where there is none.
        fields: meaning -> the fields that its values are of, counted.
        second: requests with a second pass, as A1111's web UI has it (Hires).
    """

    def __init__(self, form: Form, choices: Logged, where: str, paths: re.Pattern[str] | None) -> None:
        self.form, self.choices, self.where, self.paths = form, choices, where, paths
        self.envelopes = {name.lower() for name in form.envelopes}
        self.rows: list[int] = []
        self.values: dict[str, list[Any]] = {}
        self.fields: dict[str, Counter[str]] = {}
        self.left_out: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.unserved: set[int] = set()
        self.second = 0
        self._places: dict[str, tuple[str, int] | None] = {}

    def add(self, row: int, record: Mapping[str, Any]) -> None:
        """Take a record, unless it is no request that reached a GPU, as far as its fields say."""
        chosen, extras = self._chosen(record)
        event = next((str(extras[name]) for name in ("type", "event") if name in extras), "")
        why = "parts of an answer in a stream" if PART.search(event) else self._unwanted(chosen)
        if why is not None:
            self.skipped[why if why in self.skipped or len(self.skipped) < SHOWN else "other endpoints"] += 1
            return
        if self._has_failed(chosen):
            self.unserved.add(row)
        if "messages" in chosen:
            _, path, chat = chosen.pop("messages")
            prompt, pictures = _of_chat(chat)
            for name, value in (("prompt", prompt), ("input_images", pictures or None)):
                if value is not None:
                    chosen.setdefault(name, (0, path, value))
        self._read_web_ui(chosen, extras)
        if extras:
            chosen["extras"] = 0, "extras", json.dumps(extras, ensure_ascii=False)
        for name, (_, path, value) in chosen.items():
            if name not in OUTCOMES:
                column = self.values.setdefault(name, [])
                column.extend([None] * (len(self.rows) - len(column)))
                column.append(self._text(name, value, row, path))
                self.fields.setdefault(name, Counter())[path] += 1
        self.rows.append(row)

    def _chosen(self, record: Mapping[str, Any]) -> tuple[dict[str, tuple[int, str, Any]], dict[str, Any]]:
        """Return meaning -> rank, field and value of the field that is taken, and the fields for the extras."""
        chosen: dict[str, tuple[int, str, Any]] = {}
        extras: dict[str, Any] = {}
        for path, value in _flat(record):
            place = self._place(path)
            status = status_text(path, value) if place is not None and place[0] == "status" else ""
            if place is None or status is None:
                leaf = path.rpartition(".")[2]
                if self._is_kept(self._bare(path).rpartition(".")[0]) and len(json.dumps(value, default=str)) <= LONG:
                    extras[leaf], self.kept[path] = value, self.kept[path] + 1
                else:
                    self.left_out[path] += 1
                continue
            name, rank = place
            value = status or value
            if name == "images" and _are_made(value):
                value = len(value)
            elif name == "images" and isinstance(value, list | str) and not _is_number(value):
                name = "input_images"
            if name in OUTCOMES:
                self.judged[path] += 1
            elif name in chosen:
                self.left_out[max((rank, path), chosen[name][:2])[1]] += 1
            is_ill = ILL.fullmatch(status) and self._bare(path) != "code" if name == "status" else value not in NO_ERROR
            if name in ("status", "error") and is_ill:
                rank -= 10_000  # of several outcomes, the one of a failure counts; a mere code may be of anything
            if name not in chosen or rank < chosen[name][0]:
                chosen[name] = rank, path, value
        return chosen, extras

    def _read_web_ui(self, chosen: dict[str, tuple[int, str, Any]], extras: dict[str, Any]) -> None:
        """Read what A1111's web UI means by its fields: batches of a request, and the strength of a second pass."""
        batches: Any = extras.get("n_iter")
        if _is_number(batches) and float(batches) > 0 and "images" not in self.choices.columns:
            rank, path, images = chosen.get("images", (0, "n_iter", 1))
            if _is_number(images):
                chosen["images"] = (
                    rank,
                    path if path == "n_iter" else f"{path} * n_iter",
                    int(float(images)) * int(float(batches)),
                )
                del extras["n_iter"]
                self.kept -= Counter([next(name for name in self.kept if name.rpartition(".")[2] == "n_iter")])
        url = str(chosen.get("url", ("", "", ""))[2])
        if "strength" in chosen and ("enable_hr" in extras or "txt2img" in url):  # without an image to start from
            _, path, strength = chosen.pop("strength")
            extras[path.rpartition(".")[2]], self.kept[path] = strength, self.kept[path] + 1
        self.second += str(extras.get("enable_hr")).lower() == "true"

    def _place(self, path: str) -> tuple[str, int] | None:
        """Return the meaning of a field, and its rank among the fields of that meaning, the first being taken."""
        if path not in self._places:
            self._places[path] = self._found(path)
        return self._places[path]

    def _found(self, path: str) -> tuple[str, int] | None:
        mapped = self.choices.columns
        for name, theirs in mapped.items():
            if theirs == path:
                return name, -1
        path = self._bare(path)
        for name, fields in self.form.columns.items():
            if path in fields and name not in mapped:
                return name, fields.index(path)
        parent, _, leaf = path.rpartition(".")
        depth = self._depth(parent)
        if depth is None:
            return None
        rank, plain = 1000 * (1 + depth), normalise(leaf)
        for name, names in self.form.also.items():
            if plain in names and name not in mapped:
                return name, rank + names.index(plain)
        by_name = meaning(leaf)
        if by_name is None or by_name.name in mapped:
            return None
        if plain == "duration" and parent not in ("", "metadata") and "video_s" not in mapped:
            return "video_s", rank  # of what is asked for
        usual = NAMES[by_name.name]
        base = plain if plain in usual else plain.rpartition("_")[0]
        return by_name.name, rank + 100 + (usual.index(base) if base in usual else 0)

    def _bare(self, path: str) -> str:
        """Return a field without the envelopes around its record."""
        first, _, inner = path.partition(".")
        return self._bare(inner) if inner and first.lower() in self.envelopes else path

    def _is_kept(self, parent: str) -> bool:
        return all(part in self.form.extras for part in parent.split("."))

    def _depth(self, parent: str) -> int | None:
        """Return the place of a field among those with usual members, of which nested ones come last; None if none."""
        usual = self.form.usual
        if parent in usual:
            return usual.index(parent)
        parts = parent.split(".")
        return len(usual) + len(parts) if all(part in usual for part in parts) else None

    def _unwanted(self, chosen: Mapping[str, tuple[int, str, Any]]) -> str | None:
        """Return why a record is skipped, None if it is not."""
        value = {name: found for name, (_, _, found) in chosen.items()}
        if not value.keys() & ({*SCHEMA.names, "end_s", "messages"} - {"extras"}):
            return "no field of a request"
        method, url = str(value.get("method") or "POST").upper(), value.get("url")
        if method not in ("POST", "PUT"):
            return f"{excerpt(method, 20)} requests"
        if self.paths is not None and url is not None and not self.paths.search(urlsplit(str(url)).path):
            return f"POST {excerpt(urlsplit(str(url)).path, 60)}, which --paths does not match"
        status = str(value.get("status", ""))
        if REFUSED.fullmatch(status) and not self.choices.keep_refused:
            return f"status {status}, refused before any work (--keep-refused keeps such requests)"
        if self.choices.drop_failed and _failed(value):
            return f"failed ({excerpt(status or 'error', 30)})"
        return None

    def _has_failed(self, chosen: Mapping[str, tuple[int, str, Any]]) -> bool:
        value = {name: found for name, (_, _, found) in chosen.items()}
        if _failed(value):
            self.failed[excerpt(str(value.get("status", "error")), 30)] += 1
            return True
        return False

    def _text(self, name: str, value: Any, row: int, path: str) -> str:
        """Return a value as text; of input images their number, of add-ons their names."""
        if name == "input_images" and not _is_number(value):
            return str(len(value) if isinstance(value, list) else int(bool(value)))
        if name in ("controlnets", "loras") and isinstance(value, list):
            names = [name_of(item) for item in value]
            return json.dumps([text for text in names if text is not None])
        if name == "size" and isinstance(value, list):
            return json.dumps(value)
        if name == "prompt" and isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str):
            return value
        if isinstance(value, datetime):  # of Parquet
            return value.isoformat()
        if isinstance(value, bool) or not isinstance(value, int | float):
            origin = Origin(self.where, {name: path}, np.array([row]))
            raise refusal(origin, 0, name, repr(value), "one text or number")
        return repr(value)

    def reading(self) -> Reading:
        """Return the reading of the requests. Raises TraceError if none is left."""
        if not self.rows:
            total = self.skipped.total()
            reasons = "; ".join(f"{count:,}: {why}" for why, count in self.skipped.most_common(3))
            raise TraceError(
                f"{self.where}: no requests are left of {total:,} records"
                + (f" ({reasons}); choose others with --paths or --map" if total else "; name another file")
            )
        for column in self.values.values():
            column.extend([None] * (len(self.rows) - len(column)))
        remarks = [*self.form.remarks]
        if self.failed:
            shown = ", ".join(f"{status}: {count:,}" for status, count in self.failed.most_common(5))
            remarks.append(
                f"{self.failed.total():,} failed requests ({shown}) are kept without their latency (--drop-failed)"
            )
        if self.second:
            remarks.append(f"the second pass of {self.second:,} requests (enable_hr) is not in their steps")
        self._drop(remarks)
        self._merge_sizes(remarks)
        headers = {name: counted.most_common(1)[0][0] for name, counted in self.fields.items()}
        headers = {
            name: path if list(headers.values()).count(path) == 1 else f"{path} ({name})"
            for name, path in headers.items()
        }
        units = {headers[name]: unit for name in headers if (unit := self._unit(name)) is not None}
        self._times(headers, units, remarks)
        for name in {"latency_s", "gen_s"} & self.values.keys():
            cells = zip(self.rows, self.values[name], strict=True)
            self.values[name] = [None if row in self.unserved else cell for row, cell in cells]
        table = pa.table({headers[name]: pa.array(column, pa.string()) for name, column in self.values.items()})
        source = Table(
            path=self.where,
            columns={name: headers[name] for name in self.values},
            units=units,
            name=self.choices.name,
            limits=self.choices.limits,
        )
        with options_elsewhere("a log has --map and --unit alone; write its fields without doubt", "--map", "--unit"):
            reading = source.reading(table, self.form.title, np.array(self.rows))
        reading.source = f"{self.form.title}, {Path(self.where).name}"
        return self._noted(reading, remarks)

    def _drop(self, remarks: list[str]) -> None:
        """Drop what cannot be used: names that are not unique, the length of a video without frames per second."""
        names = self.values.get("request_id")
        if names is not None and "request_id" not in self.choices.columns and len({*names} - {None}) < len(names):
            remarks.append(f"{self._forget('request_id')}: not every request has one of its own; they are numbered")
        if "video_s" in self.values and "fps" not in self.values and "frames" not in self.values:
            remarks.append(f"{self._forget('video_s')}: seconds of a video without frames per second give no frames")
        for option, path in (
            *(("map", path) for path in self.choices.columns.values()),
            *(("unit", path) for path in self.choices.units),
        ):
            if path and path not in self._places:
                raise TraceError(
                    f"{self.where}: --{option} names {path}, which no record has; check the name of the field"
                )

    def _merge_sizes(self, remarks: list[str]) -> None:
        """Fill widths and heights of requests that have a size in their place, where others have them."""
        if not {"size", "width", "height"} <= self.values.keys():
            return
        width, height = self.values["width"], self.values["height"]
        path = self.fields.pop("size").most_common(1)[0][0]
        odd: Counter[str] = Counter()
        for index, size in enumerate(self.values.pop("size")):
            if size is None:
                continue
            sides = sides_of(size)
            if width[index] is not None or height[index] is not None:
                self.left_out[path] += 1
            elif sides == NO_SIZE:
                odd[size] += 1
            elif sides is not None:
                width[index], height[index] = map(str, sides)
        if odd:
            remarks.append(f"{path}: no WIDTHxHEIGHT, so that these requests have no size: {_counted(odd)}")

    def _forget(self, name: str) -> str:
        self.values.pop(name)
        path = self.fields.pop(name).most_common(1)[0][0]
        self.left_out[path] += len(self.rows)
        return path

    def _unit(self, name: str) -> str | None:
        """Return the unit of a meaning's times, as chosen, declared or stated by the names of its fields.

        Raises TraceError if its fields have several.
        """
        units = set()
        for path in self.fields[name]:
            by_name = meaning(path.rpartition(".")[2])
            stated = by_name.unit if by_name else UNIT_WORDS.get(normalise(path).rpartition("_")[2])
            units.add(self.choices.units.get(path) or self.form.units.get(path) or stated)
        if len(units) > 1 and name in ("latency_s", "gen_s", "slo_s", "video_s"):
            raise TraceError(
                f"{self.where}: found {name} in the fields {excerpt(', '.join(self.fields[name]))}, of several units;"
                f" choose one with --map {name}=FIELD"
            )
        return units.pop()

    def _times(self, headers: dict[str, str], units: dict[str, str], remarks: list[str]) -> None:
        """Make arrivals of the times of answers, or latencies of both, where one of the two is missing."""
        ends = self.values.pop("end_s", None)
        if ends is None:
            return
        column, arrivals, latencies = headers.pop("end_s"), self.values.get("arrival_s"), self.values.get("latency_s")
        units.pop(column, None)
        end_s = self._seconds(column, ends)
        if not np.any(end_s % 1) and len(end_s) > 1 and arrivals is None:
            remarks.append(f"{column} has whole seconds: the arrivals are known to a second")
        if arrivals is not None:
            took_s = end_s - self._seconds(headers["arrival_s"], arrivals)
            if latencies is None:
                self._put("latency_s", f"{column} - {headers['arrival_s']}", took_s, headers, units)
            else:
                self.left_out[column] += len(self.rows) - ends.count(None)
                remarks.extend(self._apart(took_s, column, headers, units))
            return
        if latencies is None:
            remarks.append(
                f"{column} is when a request was answered, and no field says how long it took: its arrival is not known"
            )
            self._put("arrival_s", f"{column} (of the answer)", end_s, headers, units)
            return
        took_s = np.nan_to_num(self._latencies(headers, units))
        if None in latencies:
            remarks.append(f"{latencies.count(None):,} requests without {headers['latency_s']} arrive when answered")
        remarks.append(f"{column} is when a request was answered: it arrived {headers['latency_s']} before")
        self._put("arrival_s", f"{column} - {headers['latency_s']}", end_s - took_s, headers, units)

    def _latencies(self, headers: Mapping[str, str], units: Mapping[str, str]) -> Any:
        """Return the latencies in seconds, NaN where there is none."""
        origin = Origin(self.where, {"latency_s": headers["latency_s"]}, np.array(self.rows))
        texts = [None if (text or "-").strip().lower() in NULLS else text for text in self.values["latency_s"]]
        cells = pa.chunked_array([pa.array(texts, pa.string())])
        if (stated := stated_seconds(cells)) is not None:
            return np.asarray(numbers(stated, origin, "latency_s"))
        took_s = np.asarray(numbers(pointed(cells, origin, "latency_s"), origin, "latency_s"))
        return took_s / PER_SECOND[units.get(headers["latency_s"], "s")]

    def _apart(self, took_s: Any, column: str, headers: Mapping[str, str], units: Mapping[str, str]) -> Iterator[str]:
        """Yield a remark if the latencies are not the times from arrival to answer."""
        apart = np.abs(took_s - self._latencies(headers, units))
        if np.any(apart > AGREE_S):
            index = int(np.nanargmax(apart))
            yield (
                f"{headers['latency_s']}, which is taken as latency_s, differs from {column} - {headers['arrival_s']}"
                f" by up to {apart[index]:,.6g} s (row {self.rows[index]}); --map latency_s= takes the latter"
            )

    def _seconds(self, column: str, values: Sequence[str | None]) -> Any:
        origin = Origin(self.where, {"arrival_s": column}, np.array(self.rows))
        stated = self.choices.units.get(column) or self.form.units.get(column)
        return read_clock(pa.chunked_array([pa.array(values, pa.string())]), origin, unit=stated).seconds

    def _put(self, name: str, header: str, seconds: Any, headers: dict[str, str], units: dict[str, str]) -> None:
        """Put seconds in a column; of times since 1970 the microseconds, which a float64 of seconds would round."""
        header = f"{header} ({name})" if header in headers.values() else header
        since_1970 = name == "arrival_s" and np.nanmax(seconds) > LONGEST_S
        unit = "us" if since_1970 else "s"
        texts = (f"{value * 1e6:.0f}" if since_1970 else f"{value:.6f}" for value in seconds.tolist())
        headers[name], units[header] = header, unit
        self.values[name] = [None if text == "nan" else text for text in texts]
        if name == "arrival_s":  # the file is in the order of the answers
            order = np.argsort(seconds, kind="stable").tolist()
            self.rows = [self.rows[index] for index in order]
            self.values = {name: [column[index] for index in order] for name, column in self.values.items()}

    def _noted(self, reading: Reading, remarks: list[str]) -> Reading:
        """Add what was left out, kept and skipped to the notes of a reading."""
        said: list[str] = reading.notes[SAID]
        if self.kept:
            said.append("kept in the extras: " + _counted(self.kept))
        if self.judged:
            said.append("read for the outcome and the endpoint: " + _counted(self.judged))
        if self.left_out:
            reading.notes.setdefault("columns_left_out", {}).update(
                dict.fromkeys(self.left_out, "no column of a trace")
            )
            said.append("left out, having no column in a trace: " + _counted(self.left_out))
        said.extend(remarks)
        if self.skipped:
            reading.notes["skipped"] = dict(self.skipped)
        return reading


def _flat(record: Mapping[str, Any], parent: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a record that are not null, those of objects inside it with the names of both.

    Text that is itself a JSON object, as of a logged body, is looked into.
    """
    for name, value in record.items():
        if isinstance(value, str) and value[:1] == "{" and value.rstrip()[-1:] == "}":
            try:
                parsed = json.loads(value)
            except (ValueError, RecursionError):
                parsed = value
            value = parsed if isinstance(parsed, dict) else value
        path = f"{parent}.{name}" if parent else name
        if isinstance(value, dict) and depth < DEPTH:
            yield from _flat(value, path, depth + 1)
        elif value is not None and value != "":
            yield path, value


def _failed(value: Mapping[str, Any]) -> bool:
    status = str(value.get("status", "ok"))
    return not WELL.fullmatch(status) or value.get("error", "") not in NO_ERROR


def _of_chat(messages: Any) -> tuple[str | None, int]:
    """Return the text of the last message of a user, and the number of images in it."""
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role", "user") == "user":
            content = message.get("content")
            if isinstance(content, str):
                return content, 0
            parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
            texts = [str(part["text"]) for part in parts if isinstance(part.get("text"), str)]
            return "\n".join(texts) or None, sum("image" in str(part.get("type", "")) for part in parts)
    return None, 0


def _are_made(images: Any) -> bool:
    """Return True for the images of an answer, as fal has them beside the prompt: files with their type or width."""
    return isinstance(images, list) and all(
        isinstance(image, dict) and "url" in image and {"content_type", "width"} & image.keys() for image in images
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (
        isinstance(value, str) and re.fullmatch(r"\s*\d+(\.0*)?\s*", value) is not None
    )


def _counted(counter: Counter[str]) -> str:
    """Return names with their counts, the commonest first."""
    shown = ", ".join(f"{excerpt(name, 60)} ({count:,})" for name, count in counter.most_common(SHOWN))
    return shown + (f" and {len(counter) - SHOWN} more" if len(counter) > SHOWN else "")


def _source(name: str, form: Form) -> type[Streamed]:
    """Return a class whose arguments are the options of a form."""
    texts = {
        "path": form.path,
        "columns": "a column of a trace = the log's field, fields inside others with a point between; may be repeated.",
        "units": "the unit of a field of times or durations: ns, us, ms, s, min, h or d; may be repeated.",
        "drop_failed": "leave out requests that failed.",
        "keep_refused": "keep requests that were refused before any work (status 4xx).",
        **form.options,
    }
    own = [(option, str | None, None) for option in form.options]
    mapping = Annotated[dict[str, str], typer.Option("--map", metavar="MEANING=FIELD")]
    unit = Annotated[dict[str, str], typer.Option("--unit", metavar="FIELD=UNIT")]
    arguments = "\n".join(f"    {argument}: {' '.join(text.split())}" for argument, text in texts.items())
    return make_dataclass(
        name,
        [
            ("path", str | Path), *own, ("columns", mapping, field(default_factory=dict)),
            ("units", unit, field(default_factory=dict)), ("drop_failed", bool, False), ("keep_refused", bool, False),
            ("name", str | None, None), ("limits", Limits, field(default_factory=Limits)),
        ],
        bases=(Logged, Streamed),
        namespace={"FORM": form, "__doc__": f"{form.help}\nArgs:\n{arguments}\n"},
        kw_only=True,
    )  # fmt: skip


SOURCES: Mapping[str, type[Streamed]] = {
    name: _source(name, Form(**yaml.safe_load(file.read_text(encoding="utf-8"))))
    for file in FOLDER.iterdir()
    if (name := file.name.removesuffix(".yaml"))
}
"""Name of a form -> its source."""
