"""Log of the Stable Diffusion beta, the public service that DiffusionDB was collected from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed, keep_rows, make_reading, with_row_numbers
from mezzotint.traces.sources.formats.cells import integers, numbers
from mezzotint.traces.sources.formats.delimited import read_delimited, read_header, require_column
from mezzotint.traces.table.ingest import Batch, Reading, since_earliest
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin, check_times, excerpt, refuse

COLUMNS = {
    "arrival_s": "est_unix_s",
    "user_id": "user",
    "prompt": "prompt",
    "width": "width",
    "height": "height",
    "steps": "steps",
    "images": "n_images",
    "seed": "seed",
    "gen_s": "gen_seconds",
}
"""Canonical name -> the log's."""

PLACE = ("channel", "idx")

STEPS = 50
"""The bot's own number of steps, used if a request names none."""

ESTIMATED = (
    "estimated: interpolated between 440 anchors. Inside a channel the order is exact; between channels the times are "
    "off by half an hour in the median (90 %: up to 2.5 h), and the rhythm of the day is flattened: no hourly rate can "
    "be taken from them"
)
"""Note on arrivals, from the log's authors and a comparison with DiffusionDB's own timestamps."""


@dataclass(slots=True, kw_only=True)
class SdBeta(Streamed):
    """The log as delimited text, a row for each message that the bot answered, 6 to 13 August 2022.

    Arrivals are estimated, and the notes say how well. The order inside a channel is exact and is kept: an estimate
    below an earlier one of its channel is raised to that, and counted in the notes. Channels are merged by their
    estimates, ties in the file's order. A request is named channel/idx.

    A message is one request of 1 to 9 images; `gen_s` is the bot's time for all of them. Some users are known from
    9 August on; a blank one is null. Blank steps are the bot's own 50.

    Args:
        path: requests.csv, plain or gzipped; a leading ~ is the home folder.
        channel: keep only the requests of this channel; None merges all of them.
        since: keep only requests that arrive then or later: a day or a time in ISO 8601, UTC if it has no zone.
        until: keep only requests that arrive before then.

    Raises TraceError if `since` or `until` is no day or time, or `until` is not later.
    """

    path: str
    channel: str | None = None
    since: str | None = None
    until: str | None = None
    name: str = "sd-beta"
    limits: Limits = field(default_factory=Limits)
    _from_s: float = field(init=False, repr=False)
    _until_s: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._from_s = -np.inf if self.since is None else _unix_s("since", self.since)
        self._until_s = np.inf if self.until is None else _unix_s("until", self.until)
        if not self._from_s < self._until_s:
            raise TraceError(
                f"sd-beta: since={self.since} and until={self.until} leave no time between them; set until later"
            )

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        header = read_header(path, self.limits)
        used = (*COLUMNS.values(), *PLACE)
        for column in used:
            require_column(header, column, str(path))
        notes: dict[str, Any] = {
            "file": path.name,
            "arrival_s": ESTIMATED,
            "request_ids": "channel/idx",
            "images": "a message is a request, of one or several images",
            "gen_s": "seconds that the bot printed, for all images of the message",
            "channel": self.channel,
            "since": self.since,
            "until": self.until,
            "columns_left_out": [name for name in header if name not in used],
            "rows": 0,
            "skipped": {},
        }
        batches = self._batches(read_delimited(path, self.limits, header), str(path), notes)
        return make_reading(self, "Stable Diffusion beta, log of 30 of its 50 channels", batches, notes, since_earliest)

    def _batches(self, tables: Iterator[pa.Table], where: str, notes: dict[str, Any]) -> Iterator[Batch]:
        order = _Order()
        blank: Counter[str] = Counter()
        kept, first_s = 0, np.inf
        for rows, table in with_row_numbers(tables):
            notes["rows"] += len(rows)
            arrival_s = order.times(table, Origin(where, COLUMNS, rows))
            reasons: dict[str, npt.NDArray[np.bool_]] = {}
            if self.channel is not None:
                reasons["another channel"] = pc.not_equal(table.column("channel"), self.channel).to_numpy()
            if self.since is not None:
                reasons["before `since`"] = arrival_s < self._from_s
            if self.until is not None:
                reasons["from `until` on"] = arrival_s >= self._until_s
            at = np.flatnonzero(keep_rows(len(rows), reasons, notes["skipped"]))
            kept += at.size
            first_s = float(arrival_s[at].min(initial=first_s))
            table, origin = table.take(pa.array(at)), Origin(where, COLUMNS, rows[at])
            blank.update({name: table.column(name).null_count for name in ("user", "steps", "prompt")})
            yield Batch(_columns(table, origin), pa.array(arrival_s[at]), origin)
        if notes["rows"] and not kept:
            raise TraceError(
                f"{where}: no requests are left of {notes['rows']:,} (channels"
                f" {excerpt(', '.join(sorted(order.last)))}); check --channel, --since and --until"
            )
        if kept:
            notes["first_arrival"] = f"{np.datetime64(int(first_s), 's')}Z"
        notes["channels"] = 1 if self.channel is not None else len(order.last)
        notes["raised_estimates"] = order.raised
        notes["users_unknown"], notes["prompts_empty"] = blank["user"], blank["prompt"]
        notes["steps"] = f"{STEPS} in {blank['steps']:,} requests that name none"


@dataclass(slots=True)
class _Order:
    """Last place and latest time of each channel."""

    last: dict[str, tuple[int, float]] = field(default_factory=dict)
    raised: int = 0

    def times(self, table: pa.Table, origin: Origin) -> npt.NDArray[np.float64]:
        """Return estimates that never fall inside a channel, (n,) seconds since 1970.

        Raises TraceError for a row without a channel, or whose place is not after the last one of its channel.
        """
        estimates = numbers(table.column("est_unix_s"), origin, "arrival_s")
        check_times(estimates, origin, relative=False)
        for name in PLACE:
            refuse(table.column(name), pc.is_null(table.column(name)), name, "a value", origin)
        channels = table.column("channel").to_pylist()
        places = integers(table.column("idx"), origin, "idx").to_pylist()
        arrival_s: npt.NDArray[np.float64] = estimates.to_numpy().copy()
        for index, (channel, place) in enumerate(zip(channels, places, strict=True)):
            before, latest_s = self.last.get(channel, (-1, -np.inf))
            if place <= before:
                raise TraceError(
                    f"{origin.cell(index, 'idx')}: found {place}, expected more than {before} as before it in channel"
                    f" {excerpt(channel, 60)}; sort the rows of each channel by idx, and drop duplicates"
                )
            if arrival_s[index] < latest_s:
                arrival_s[index] = latest_s
                self.raised += 1
            self.last[channel] = place, arrival_s[index]
        return arrival_s


def _columns(table: pa.Table, origin: Origin) -> dict[str, Any]:
    integral = {
        name: integers(table.column(COLUMNS[name]), origin, name)
        for name in ("width", "height", "steps", "images", "seed")
    }
    return {
        "request_id": pc.binary_join_element_wise(table.column("channel"), table.column("idx"), "/"),
        "user_id": table.column("user"),
        "prompt": table.column("prompt"),
        **integral,
        "steps": integral["steps"].fill_null(STEPS),
        "gen_s": numbers(table.column("gen_seconds"), origin, "gen_s"),
    }


def _unix_s(setting: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        raise TraceError(
            f"sd-beta: {setting}={excerpt(repr(text), 60)}, expected a day or a time such as 2022-08-12 or"
            " 2022-08-12T18:00"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
