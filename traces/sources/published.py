"""Published logs, a source for each file in `logs`: it declares columns, filters, options, licence and help.

What a file cannot declare, such as a derived column, is a function of `published_rows` that the file names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from mezzotint.settings.ranges import Amount, Count
from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.columnar import from_hub, read_parquet
from mezzotint.traces.formats.delimited import HEAD_BYTES, Dialect, read_delimited
from mezzotint.traces.formats.jsontext import elements, is_json, members
from mezzotint.traces.formats.records import Name, check_records
from mezzotint.traces.formats.requests import requests
from mezzotint.traces.sources import Streamed, published_rows
from mezzotint.traces.sources.published_rows import CLOCKS, Log
from mezzotint.traces.sources.reader import Rows, with_row_numbers
from mezzotint.traces.table.ingest import ORDER_ONLY, Reading
from mezzotint.traces.table.limits import Limits, open_unpacked

FOLDER = resources.files("mezzotint.traces.sources") / "logs"

KINDS: Mapping[str, Any] = {
    "amount": Amount | None, "count": Count | None, "flag": bool, "text": str | None,
}  # fmt: skip
"""Kind of an option in a map -> type of its value."""

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(gt=-(2.0**63), lt=2.0**63)]

FIELDS: Mapping[str, Any] = {
    "any": Any, "text": str, "name": Name, "name or null": Name | None, "names or null": list[Name] | None,
    "text or null": str | None, "whole or null": Whole | None,
    "number or null": Number | None, "any or null": Any, "object or null": dict[str, Any] | None,
}  # fmt: skip
"""Kind of a field in a map -> type of its values."""


@dataclass(frozen=True, kw_only=True)
class LogMap:
    """The declaration of a published log.

    Attributes:
        title: its origin in words; {file} is the name of the file.
        help, path: help texts of the command and of the argument PATH.
        format: "csv", "tsv without quotes", "parquet or csv" by the file's name, "json" (records in an array or one
            after another), "json object" (a record for each name) or "request lines" of Python's syntax.
        columns: canonical name -> the log's name of that column, which is needed.
        rows: function of `published_rows` that makes batches of a piece of the log.
        clock: key of `published_rows.CLOCKS`, or "order" without times.
        needs, may_have: columns without a canonical name, which a table must or may have.
        fields: kind of each field of a record, a key of FIELDS; all are needed.
        fields_optional: whether fields that may be null may be absent.
        also: canonical name -> fields without a column of their own that it is taken of where it is null.
        counts: name of a note -> column whose values it counts.
        filters: option -> column, and the value that it keeps.
        untimed: what differs in a second table of the log that lacks the column of arrivals.
        hub: file on the Hugging Face hub, read where no path is given.
        options: name -> kind (a key of KINDS) and help text.
        named_after_file: whether a trace has the name of its file, and not of the log.
        notes: notes of every trace.
        notes_left_out: whether the notes name the columns that are not used.
    """

    title: str
    help: str
    path: str
    format: str
    columns: Mapping[str, str]
    clock: str
    rows: str = "as_declared"
    needs: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    fields_optional: bool = False
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)
    filters: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    untimed: Mapping[str, Any] = field(default_factory=dict)
    hub: str | None = None
    licence: str | None = None
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    named_after_file: bool = False
    notes_left_out: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)


class Published:
    """A published log: the base of the classes in `LOGS`."""

    LOG: ClassVar[LogMap]

    path: Any
    name: str | None
    limits: Limits

    def read(self, rng: np.random.Generator) -> Reading:
        declared, where = self.LOG, str(self.LOG.hub if self.path is None else Path(self.path).expanduser())
        path = Path(where)
        tables: Any = None
        if not declared.fields:
            header, tables = _tables(where, self.limits, declared)
            if declared.untimed and declared.columns["arrival_s"] not in header:
                declared = replace(declared, **declared.untimed)
        notes: dict[str, Any] = {"file": path.name, **declared.notes}
        notes |= {"licence": declared.licence} if declared.licence else {}
        notes |= {"arrival_s": ORDER_ONLY} if declared.clock == "order" else {}
        notes |= {name: getattr(self, name) for name, option in declared.options.items() if option["kind"] != "flag"}
        log = Log(
            where=where, names=declared.columns, notes=notes, options=self, rng=rng,
            fields=tuple(declared.fields), also=declared.also,
        )  # fmt: skip
        if tables is None:
            pieces: Any = _records(path, self.limits, log, declared)
        else:
            filtering = (column for column, _ in declared.filters.values())
            log.require(header, *declared.needs, *declared.counts.values(), *filtering)
            if declared.notes_left_out:
                used = (*declared.columns.values(), *declared.needs)
                notes["columns_left_out"] = [name for name in header if name not in used]
            pieces = _filtered(log, tables, declared)
        return Reading(
            where=where,
            name=self.name or path.name.split(".")[0],
            source=declared.title.format(file=path.name),
            batches=getattr(published_rows, declared.rows)(log, pieces),
            notes=notes,
            settle=partial(CLOCKS[declared.clock], log),
            limits=self.limits,
        )


def _tables(where: str, limits: Limits, declared: LogMap) -> tuple[list[str], Iterator[pa.Table]]:
    """Return the names of the columns of a table, and its rows in pieces."""
    path = Path(where)
    if declared.format == "tsv without quotes":
        return read_delimited(path, limits, Dialect(delimiter="\t", quote=None))
    if declared.format == "csv" or path.suffix != ".parquet":
        with open_unpacked(path, limits) as stream:
            if is_json(stream.peek(HEAD_BYTES)):
                raise TraceError(
                    f"{path}: holds JSON, expected {declared.title.format(file=path.name)}, as {declared.format}; name"
                    " that file, or read the records with `mezzotint trace import table`"
                )
        return read_delimited(path, limits)
    if where == declared.hub:
        return from_hub(where)
    wanted = {*declared.columns.values(), *declared.needs, *declared.may_have}
    return read_parquet(path, limits, wanted, declared.title)


def _filtered(log: Log, tables: Iterator[pa.Table], declared: LogMap) -> Iterator[tuple[Rows, pa.Table]]:
    """Yield the rows that the chosen options keep, with their numbers in the file."""
    counts: dict[str, Counter[str]] = {note: Counter() for note in declared.counts}
    chosen = [column_value for option, column_value in declared.filters.items() if getattr(log.options, option)]
    for rows, table in with_row_numbers(tables):
        for note, column in declared.counts.items():
            counts[note].update(word or "none" for word in table.column(column).to_pylist())
        if declared.filters:
            kept = log.keep(
                rows,
                {
                    f"{column} is not {value}": ~pc.equal(table.column(column), value).fill_null(False).to_numpy()
                    for column, value in chosen
                },
            )
            rows, table = rows[kept], table.take(pa.array(kept))
        yield rows, table
    log.notes |= {note: dict(sorted(count.items())) for note, count in counts.items()}


def _records(path: Path, limits: Limits, log: Log, declared: LogMap) -> Iterator[tuple[Rows, list[dict[str, Any]]]]:
    """Yield the checked records of a file, with their numbers in it; a record in a JSON object has its `key`."""
    kinds = {
        name: NotRequired[FIELDS[kind]] if declared.fields_optional and "null" in kind else FIELDS[kind]
        for name, kind in declared.fields.items()
    }
    of_record: Any = TypedDict("Record", kinds)  # type: ignore
    form: TypeAdapter[Any] = TypeAdapter(list[with_config(ConfigDict(extra="ignore"))(of_record)])  # type: ignore
    if declared.format == "json object":
        for rows, pairs in with_row_numbers(members(path, limits)):
            check_records([value for _, value in pairs], form, log.origin(rows))
            yield rows, [{**value, "key": key} for key, value in pairs]
        return
    pieces: Iterator[tuple[Rows, int, list[Any]]]
    if declared.format == "json":
        pieces = ((rows, 0, records) for rows, records in with_row_numbers(elements(path, limits)))
    else:
        pieces = requests(path, limits)
        log.notes["skipped"] = {"blank lines": 0}
    for rows, blank, records in pieces:
        if blank:
            log.notes["skipped"]["blank lines"] += blank
        check_records(records, form, log.origin(rows))
        yield rows, records


def _source(name: str, declared: LogMap) -> type[Streamed]:
    """Return a class whose arguments are the options of a log."""
    path: Any = ("path", str | Path) if declared.hub is None else ("path", str | Path | None, None)
    options = [
        (option, KINDS[about["kind"]], False if about["kind"] == "flag" else None)
        for option, about in declared.options.items()
    ]
    more = [
        ("name", str | None, None if declared.named_after_file else name),
        ("limits", Limits, field(default_factory=Limits)),
    ]
    texts = {"path": declared.path, **{option: about["help"] for option, about in declared.options.items()}}
    arguments = "\n".join(f"    {argument}: {' '.join(text.split())}" for argument, text in texts.items())
    doc = f"{declared.help}\nArgs:\n{arguments}\n"
    return make_dataclass(
        name,
        [path, *options, *more],
        bases=(Published, Streamed),
        namespace={"LOG": declared, "__doc__": doc},
        kw_only=True,
    )


MAPS: Mapping[str, LogMap] = {
    file.name.removesuffix(".yaml"): LogMap(**yaml.safe_load(file.read_text(encoding="utf-8")))
    for file in FOLDER.iterdir()
}
"""Name of a published log -> its declaration."""

LOGS: Mapping[str, type[Streamed]] = {name: _source(name, declared) for name, declared in MAPS.items()}
"""Name of a published log -> its source."""
