"""Derived columns, filters and orders of published logs, beyond the declarations of their maps.

Each function takes a log and its pieces, and yields batches; `published` looks it up by the name in the map.
"""

import json
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.cells import Timestamps, integers, numbers, refusal
from mezzotint.traces.formats.clock import PER_SECOND, WORDS
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.reader import Columns, Rows, untimed_batch
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import (
    ORDER_ONLY,
    Batch,
    order_times,
    own_clock,
    since_earliest,
    with_arrivals,
)
from mezzotint.traces.table.validation import LATEST_S, Origin, check_times, excerpt, refuse

Pieces = Iterator[tuple[Rows, pa.Table]]
Records = Iterator[tuple[Rows, list[dict[str, Any]]]]


@dataclass(slots=True, kw_only=True)
class Log(Columns):
    """A published log being read.

    Attributes:
        options: the values of its options, as attributes.
        rng: stream for values that are drawn.
        fields: names of the fields of a record, in their order.
        also: canonical name -> other fields that a value is taken of, the first first.
    """

    options: Any
    rng: np.random.Generator
    fields: Sequence[str] = ()
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def place(self, name: str) -> int:
        """Return the place of a field in the order of writing; unknown ones come last."""
        return self.fields.index(name) if name in self.fields else len(self.fields)


def as_declared(log: Log, pieces: Pieces) -> Iterator[Batch]:
    """Take the declared columns, in the file's order and without times."""
    for rows, table in pieces:
        origin = log.origin(rows)
        yield untimed_batch(log.cells(table, origin), origin, int(rows[0]))


def diffusiondb(log: Log, pieces: Pieces) -> Iterator[Batch]:
    """Skip rows without a timestamp or above the NSFW score; accounts that were deleted have no name."""
    stamps = Timestamps()
    for rows, table in pieces:
        origin = log.origin(rows)
        times = _utc(table.column("timestamp"), stamps, origin)
        reasons = {"no timestamp": times.is_null().to_numpy()}
        if log.options.nsfw_max is not None:
            reasons["NSFW score above nsfw_max, or none"] = ~_clean(log, table, origin)
        kept = log.keep(rows, reasons)
        origin, table, times = log.origin(rows[kept]), table.take(pa.array(kept)), times.take(pa.array(kept))
        users = table.column("user_name")
        if not pa.types.is_string(users.type):
            raise TraceError(f"{log.where}: column user_name: found type {users.type}, expected text")
        columns = {
            **log.cells(table, origin),
            "user_id": pc.if_else(pc.equal(users, "deleted_account"), pa.scalar(None, users.type), users),
            "images": np.ones(table.num_rows, np.int32),
        }
        if "image_name" in table.column_names:
            columns["request_id"] = table.column("image_name")
        yield Batch(columns, times, origin)
    log.check_kept("raise nsfw_max or check the file")


def _utc(column: pa.ChunkedArray, stamps: Timestamps, origin: Origin) -> pa.ChunkedArray:
    """Return UTC timestamps in microseconds, (n,)."""
    if pa.types.is_string(column.type):
        return pa.chunked_array([stamps.read(column, origin, "arrival_s")])
    if not pa.types.is_timestamp(column.type):
        raise TraceError(f"{origin.where}: column timestamp: found type {column.type}, expected timestamps")
    # Parquet keeps times with a zone in UTC; those without one are UTC in the published table
    ticks = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return ticks.cast(pa.timestamp("us", "UTC"))


def _clean(log: Log, table: pa.Table, origin: Origin) -> npt.NDArray[np.bool_]:
    """Return True for rows whose scores are at most the option's, (n,)."""
    clean = np.ones(table.num_rows, np.bool_)
    log.require(table.column_names, "image_nsfw", "prompt_nsfw")
    for name in ("image_nsfw", "prompt_nsfw"):
        column = table.column(name)
        if pa.types.is_string(column.type):
            column = numbers(column, origin, name)
        if not pa.types.is_floating(column.type) and not pa.types.is_integer(column.type):
            raise TraceError(f"{log.where}: column {name}: found type {column.type}, expected numbers")
        clean &= column.cast(pa.float64(), safe=False).fill_null(math.inf).to_numpy() <= log.options.nsfw_max
    return clean


def spread_in_minutes(log: Log, table: pa.Table) -> pa.Table:
    """Spread the arrivals of rows sorted by timestamp inside their minutes, unless a timestamp is finer."""
    minute_us, limit = 60_000_000, log.options.limit
    ticks: npt.NDArray[np.int64] = table.column("time").cast(pa.int64()).to_numpy()
    finer = bool((ticks % minute_us).any())
    if limit is not None:
        log.notes["skipped"]["after the first `limit` requests"] = max(0, table.num_rows - limit)
        table, ticks = table.slice(0, limit), ticks[:limit]
    minutes = ticks // minute_us
    if finer:
        log.notes["arrival_s"] = "as stamped, which is finer than minutes"
        return with_arrivals(table, (ticks - minutes[0] * minute_us) / 1e6)
    log.notes["arrival_s"] = "spread at random inside the minute of their stamp"
    start_s = (minutes - minutes[0]) * 60.0
    offset_s: npt.NDArray[np.float64] = log.rng.random(len(minutes)) * 60.0
    offset_s = offset_s[np.lexsort((offset_s, minutes))]
    # adding may round up into the next minute
    return with_arrivals(table, np.minimum(start_s + offset_s, np.nextafter(start_s + 60.0, -math.inf)))


SINCE_1970_S = 1e8
"""Timestamps of vLLM-Omni above this are seconds since 1970; as seconds of a benchmark they would be three years."""


def since_start(_: Log, table: pa.Table) -> pa.Table:
    """Count arrivals from the start of the trace, for either kind of timestamp."""
    return (since_earliest if table.column("time")[0].as_py() > SINCE_1970_S else own_clock)(table)


CLOCKS: Mapping[str, Callable[[Log, pa.Table], pa.Table]] = {
    "order": lambda _, table: own_clock(table),
    "earliest": lambda _, table: since_earliest(table),
    "own or since 1970": since_start,
    "spread in minutes": spread_in_minutes,
}
"""Clock in a map -> how sorted times become arrivals."""

MAX_LORAS = 1000
"""LoRAs of one request, at most; more are an error of the file."""


def gentd26_timed(log: Log, pieces: Pieces) -> Iterator[Batch]:
    """Make lists of LoRAs of their numbers: empty for 0, else null or made-up names."""
    stamps = Timestamps()
    lengths: Counter[int] = Counter()
    named = log.options.unnamed_loras
    for rows, table in pieces:
        origin = log.origin(rows)
        columns = log.cells(table, origin, "loras")
        counts = integers(table.column("num_lora"), origin, "loras").to_pylist()
        for index, count in enumerate(counts):
            if count is not None and not 0 <= count <= MAX_LORAS:
                raise refusal(origin, index, "loras", str(count), f"0 to {MAX_LORAS}")
        lengths.update(count for count in counts if count is not None)
        columns["loras"] = [
            [f"unnamed-{one}" for one in range(1, count + 1)]
            if count == 0 or (count and log.options.unnamed_loras)
            else None
            for count in counts
        ]
        yield Batch(columns, stamps.read(table.column("gmt_create"), origin, "arrival_s"), origin)
    log.check_kept("keep the failed ones, or all kinds")
    detail = "the names unnamed-1, unnamed-2, ... are made up" if named else "null where there were some"
    log.notes["loras"] = f"only their number is published; {detail}"
    log.notes["loras_per_request"] = {str(length): lengths[length] for length in sorted(lengths)}


def gentd26_untimed(log: Log, pieces: Pieces) -> Iterator[Batch]:
    """Read the names of LoRAs out of Python's lists of dictionaries."""
    if log.options.drop_failed or log.options.text_only or log.options.unnamed_loras:
        raise TraceError(
            f"{log.where}: has no times, status and kinds, and names its LoRAs; drop the options, or name the table"
            " lora_request_trace.csv"
        )
    lengths: Counter[int] = Counter()
    idle = 0
    for rows, table in pieces:
        log.keep(rows, {})
        origin = log.origin(rows)
        cells = table.column("lora_args").to_pylist()
        named = [None if cell is None else _loras(cell, origin, index) for index, cell in enumerate(cells)]
        lengths.update(len(loras) for loras in named if loras is not None)
        idle += sum(scale == 0 for loras in named for _, scale in loras or [])
        names = [None if loras is None else [name for name, _ in loras] for loras in named]
        yield untimed_batch({**log.cells(table, origin, "loras"), "loras": names}, origin, int(rows[0]))
    log.notes["loras"] = "named; their scales are left out, and those of scale 0 are kept"
    log.notes["loras_of_scale_0"] = idle
    log.notes["loras_per_request"] = {str(length): lengths[length] for length in sorted(lengths)}


def _loras(cell: str, origin: Origin, index: int) -> list[tuple[str, Any]]:
    """Return names and scales of the LoRAs in a cell that holds a Python list of dictionaries."""
    try:
        loras = json.loads(cell.replace("'", '"'))
        named = [(lora["modelVersionId"], lora.get("scale")) for lora in loras]
        if len(named) <= MAX_LORAS and all(isinstance(name, str) for name, _ in named):
            return named
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass
    raise refusal(origin, index, "loras", repr(cell), "a list such as [{'modelVersionId': 'a name', 'scale': 0.8}]")


def katz(log: Log, pieces: Records) -> Iterator[Batch]:
    """Keep one service or node if asked to, and name a request service/node/row."""
    stamps, unit = Timestamps(), None
    services: Counter[str] = Counter()
    nodes: set[str] = set()
    wanted = (log.options.service, log.options.node)
    for rows, records in pieces:
        places = [(str(record["scene_id"]), str(record["ip"])) for record in records]
        services.update(service for service, _ in places)
        other = [any(want not in (None, part) for want, part in zip(wanted, place, strict=True)) for place in places]
        kept = log.keep(rows, {"another service or node": np.array(other, np.bool_)})
        nodes.update(places[index][1] for index in kept)
        origin, chosen = log.origin(rows[kept]), [records[index] for index in kept]
        models = [record["base_model_id"] for record in chosen]
        columns = {
            "request_id": ["/".join((*places[index], str(rows[index]))) for index in kept],
            "base_model": [None if model is None else str(model) for model in models],
            **{name: [[*map(str, record[name] or [])] for record in chosen] for name in ("controlnets", "loras")},
        }
        times = [record["timestamp"] for record in chosen]
        unit = _unit(times, unit, origin)
        if unit == "text":
            yield Batch(columns, stamps.read(pa.chunked_array([times], pa.string()), origin, "arrival_s"), origin)
        else:
            scale = 1000.0 if unit == "milliseconds since 1970" else 1.0
            yield Batch(columns, pa.array(np.array(times, np.float64) / scale), origin)
    found = excerpt(", ".join(sorted(services)), 60)
    log.check_kept("check --service and --node", f" (services {found})")
    if wanted == (None, None):
        log.notes.pop("skipped", None)
    log.notes.update(services=dict(sorted(services.items())), nodes=len(nodes), times=unit)


def _unit(times: list[Any], unit: str | None, origin: Origin) -> str | None:
    """Return the unit of all times, which has to be that of the times before; None before the first."""
    for index, time in enumerate(times):
        if isinstance(time, str):
            own = "text" if time.isascii() else None
        elif isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < 1e18:
            own = None
        else:  # as seconds, times above would be beyond the year 5000
            own = "milliseconds since 1970" if abs(time) > 1e11 else "seconds since 1970"
        unit = unit or own
        if own is None or own != unit:
            expected = f"{unit or 'a time in ISO 8601 or a number'} as in the rows before"
            raise refusal(origin, index, "arrival_s", repr(time), expected)
    return unit


def mjhq(log: Log, pieces: Records) -> Iterator[Batch]:
    """Keep the last prompts of each category if asked to, in the file's order, under the images' names."""
    categories, requests = 10, log.options.requests  # 3,000 prompts each in the published file
    if requests is not None and requests % categories:
        raise TraceError(f"mjhq: requests={requests}, expected a multiple of {categories}, the categories")
    each = None if requests is None else requests // categories
    last: defaultdict[str, deque[Any]] = defaultdict(partial(deque, maxlen=each))
    counts: Counter[str] = Counter()
    for rows, images in pieces:
        counts.update(image["category"] for image in images)
        for row, image in zip(rows.tolist(), images, strict=True):
            last[image["category"]].append((row, image["key"], image["prompt"]))
    log.notes["categories"] = dict(sorted(counts.items()))
    if not counts:
        return
    if each is not None and (len(last) != categories or min(map(len, last.values())) < each):
        raise TraceError(
            f"{log.where}: found {counts.total():,} prompts in {len(last)} categories, expected {each:,} or more in"
            f" each of {categories}; ask for fewer with --requests, or name the whole file"
        )
    chosen = sorted(row for rows_of in last.values() for row in rows_of)
    if each is not None:
        log.notes["skipped"] = {"before the last of their category": counts.total() - len(chosen)}
    numbers_of, names, prompts = zip(*chosen, strict=True)
    yield untimed_batch({"request_id": names, "prompt": prompts}, log.origin(np.array(numbers_of)), 0)


def sd_beta(log: Log, pieces: Pieces) -> Iterator[Batch]:
    """Keep the order inside each channel, and one channel or stretch of time if asked to."""
    channel, since, until = log.options.channel, log.options.since, log.options.until
    from_s = -np.inf if since is None else _unix_s("since", since)
    until_s = np.inf if until is None else _unix_s("until", until)
    if not from_s < until_s:
        raise TraceError(f"sd-beta: since={since} and until={until} leave no time between them; set until later")
    latest: dict[str, tuple[int, float]] = {}
    blank: Counter[str] = Counter()
    raised, first_s, bot_steps = 0, np.inf, 50
    for rows, table in pieces:
        arrival_s, count = _in_order(table, log.origin(rows), latest)
        raised += count
        reasons: dict[str, npt.NDArray[np.bool_]] = {}
        if channel is not None:
            reasons["another channel"] = pc.not_equal(table.column("channel"), channel).to_numpy()
        if since is not None:
            reasons["before `since`"] = arrival_s < from_s
        if until is not None:
            reasons["from `until` on"] = arrival_s >= until_s
        kept = log.keep(rows, reasons)
        first_s = float(arrival_s[kept].min(initial=first_s))
        table, origin = table.take(pa.array(kept)), log.origin(rows[kept])
        blank.update({name: table.column(name).null_count for name in ("user", "steps", "prompt")})
        columns = log.cells(table, origin)
        columns["request_id"] = pc.binary_join_element_wise(table.column("channel"), table.column("idx"), "/")
        columns["steps"] = columns["steps"].fill_null(bot_steps)
        yield Batch(columns, pa.array(arrival_s[kept]), origin)
    log.check_kept("check --channel, --since and --until", f" (channels {excerpt(', '.join(sorted(latest)))})")
    if log.kept:
        log.notes["first_arrival"] = f"{np.datetime64(int(first_s), 's')}Z"
    log.notes["channels"] = 1 if channel is not None else len(latest)
    log.notes["raised_estimates"] = raised
    log.notes["users_unknown"], log.notes["prompts_empty"] = blank["user"], blank["prompt"]
    log.notes["steps"] = f"{bot_steps} in {blank['steps']:,} requests that name none"


def _in_order(
    table: pa.Table, origin: Origin, latest: dict[str, tuple[int, float]]
) -> tuple[npt.NDArray[np.float64], int]:
    """Return estimates that never fall inside a channel, (n,) seconds since 1970, and how many had to be raised.

    Args:
        latest: last place and time of each channel, to be brought up to date.

    Raises TraceError for a row without a channel, or whose place is not after the last one of its channel.
    """
    estimates = numbers(table.column("est_unix_s"), origin, "arrival_s")
    check_times(estimates, origin, relative=False)
    for name in ("channel", "idx"):
        refuse(table.column(name), pc.is_null(table.column(name)), name, "a value", origin)
    channels = table.column("channel").to_pylist()
    places = integers(table.column("idx"), origin, "idx").to_pylist()
    arrival_s: npt.NDArray[np.float64] = estimates.to_numpy().copy()
    raised = 0
    for index, (channel, place) in enumerate(zip(channels, places, strict=True)):
        before, latest_s = latest.get(channel, (-1, -np.inf))
        if place <= before:
            raise TraceError(
                f"{origin.cell(index, 'idx')}: found {place}, expected more than {before} as before it in channel"
                f" {excerpt(channel, 60)}; sort the rows of each channel by idx, and drop duplicates"
            )
        raised += bool(arrival_s[index] < latest_s)
        arrival_s[index] = max(arrival_s[index], latest_s)
        latest[channel] = place, arrival_s[index]
    return arrival_s, raised


def _unix_s(setting: str, text: str) -> float:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        raise TraceError(
            f"sd-beta: {setting}={excerpt(repr(text), 60)}, expected a day or a time such as 2022-08-12 or"
            " 2022-08-12T18:00"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def vllm_omni(log: Log, pieces: Records) -> Iterator[Batch]:
    """Take times if the lines have them, and names if all have them."""
    timed: bool | None = None
    unit: str | None = None
    kept = 0
    for rows, records in pieces:
        origin = log.origin(rows)
        timed = _in_all(records, "arrival_s", timed, origin)
        columns = _engine_columns(log, records, origin)
        if any(record.get("request_id") is None for record in records):
            del columns["request_id"]
        columns["slo_s"] = pc.divide(columns["slo_s"], 1000.0)
        times = columns.pop("arrival_s")
        if timed is False:
            log.notes["arrival_s"] = ORDER_ONLY
            times = order_times(len(records), kept)
        elif timed:
            least = pc.min(times).as_py() or 0.0
            unit = unit or next(
                (unit for unit in ("ms", "us", "ns") if LATEST_S < least < LATEST_S * PER_SECOND[unit]), "s"
            )
            if unit != "s":
                times = pc.divide(times, PER_SECOND[unit])
                log.notes[SAID].append(f"timestamp counts {WORDS[unit]} since 1970")
        since_1970 = timed and (pc.max(times).as_py() or 0.0) > SINCE_1970_S
        yield Batch(columns, times, origin, relative=not since_1970)
        kept += len(records)


def sglang(log: Log, pieces: Records) -> Iterator[Batch]:
    """Take names if the lines have them, and settings within ``sampling_params`` where the lines have none beside."""
    named: bool | None = None
    known = {*log.names.values(), *(field for fields in log.also.values() for field in fields)}
    for rows, read in pieces:
        origin = log.origin(rows)
        records = [
            {name: value for name, value in (record.get("sampling_params") or {}).items() if name in known} | record
            for record in read
        ]
        named = _in_all(records, "request_id", named, origin)
        columns = _engine_columns(log, records, origin)
        if not named:
            del columns["request_id"]
        yield untimed_batch(columns, origin, int(rows[0]))


def _engine_columns(log: Log, records: list[dict[str, Any]], origin: Origin) -> dict[str, Any]:
    """Return the fields of an engine's requests as columns; those without a column are kept in the extras.

    A column that the field of its own name leaves null is taken of the first other field that ``log.also`` names. Input
    images are counted.
    """
    columns = _columns(records, log.names)
    for name, fields in log.also.items():
        kind = SCHEMA.field(name).type
        values = columns.get(name, pa.nulls(len(records), kind)).to_pylist()
        for index, record in enumerate(records):
            field = next((field for field in fields if values[index] is None and record.get(field) is not None), None)
            if field is not None:
                value = record[field]
                values[index] = value if pa.types.is_string(kind) else _number(value, kind, origin, index, field)
        columns[name] = values if pa.types.is_string(kind) else pa.array(values, _wide(kind))
    held = set(log.names.values())
    extras = [
        {
            field: record[field]
            for field in sorted(record, key=log.place)
            if field not in held and record[field] is not None
        }
        for record in records
    ]
    counts = log.notes.setdefault("extras", {})
    for other in extras:
        for field in other:
            counts[field] = counts.get(field, 0) + 1
    used = {field for fields in log.also.values() for field in fields}
    said = [f"{field} ({count:,} requests){', and read' * (field in used)}" for field, count in counts.items()]
    log.notes.setdefault("columns", {}).update(
        {name: field for name, field in log.names.items() if any(record.get(field) is not None for record in records)}
    )
    taken = [f"{field} as {name}" if field != name else name for name, field in log.notes["columns"].items()]
    log.notes[SAID] = [f"taken: {', '.join(taken)}"]
    log.notes[SAID] += [f"kept in the extras: {', '.join(said)}"] if said else []
    try:
        texts = [json.dumps(other, ensure_ascii=False, allow_nan=False) if other else None for other in extras]
    except (TypeError, ValueError) as error:
        raise TraceError(
            f"{log.where}: rows {origin.row(0)} to {origin.row(len(records) - 1)}: found a value that is no JSON"
            f" ({excerpt(str(error))}), expected texts, numbers, lists and objects; fix or drop the row"
        ) from None
    return {**columns, "extras": pa.array(texts, pa.string())}


def _number(value: Any, kind: pa.DataType, origin: Origin, index: int, field: str) -> float:
    """Return a number as it is, and how many things a list, or a name, holds."""
    if isinstance(value, list | tuple):
        return len(value)
    if isinstance(value, str):
        return int(bool(value))
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not isinstance(value, int | float) or (pa.types.is_integer(kind) and not whole):
        raise refusal(origin, index, field, repr(value), "a number")
    return int(value) if pa.types.is_integer(kind) else float(value)


def _in_all(records: list[dict[str, Any]], column: str, is_in: bool | None, origin: Origin) -> bool | None:
    """Return whether the lines have a column. Raises TraceError if some have it and others, or those before, do not."""
    for index, record in enumerate(records):
        has = record.get(origin.columns[column]) is not None
        is_in = has if is_in is None else is_in
        if has is not is_in:
            raise refusal(origin, index, column, "one" if has else "none", "one in every line or in none")
    return is_in


def _columns(records: list[dict[str, Any]], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of records that have a column, null where absent."""
    columns: dict[str, Any] = {}
    for name, theirs in names.items():
        kind = SCHEMA.field(name).type
        values = [record.get(theirs) for record in records]
        if pa.types.is_floating(kind):
            values = [None if value is None else float(value) for value in values]
        columns[name] = pa.array(values, _wide(kind))
    return columns


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return a type that holds any value of a record's field; the trace refuses those beyond its own type."""
    return pa.int64() if pa.types.is_integer(kind) else kind
