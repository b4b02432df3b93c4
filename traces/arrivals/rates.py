"""Arrivals at a rate over time that is read from a file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from annotated_types import Ge, Le

from mezzotint.settings.assumption import UNREAD, Assumption
from mezzotint.traces.arrivals.base import MAX_RPM, Rpm, Schedule, Times
from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.cells import are_dates, as_text, numbers, pointed, refusal, unit_of
from mezzotint.traces.formats.clock import PER_SECOND, read_clock
from mezzotint.traces.formats.headers import COUNTS, UNIT_WORDS, meaning, normalise, rate_unit
from mezzotint.traces.formats.opening import open_table
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin, check_number, excerpt

Unit = Literal["s", "min", "h", "d"]

HEADLESS = ("time", "value")
"""Columns of a file without names of columns; one of numbers alone has the latter."""

BUCKETS = ("interval", "bucket", "window", "period")
"""Names of a column of times, besides those of arrivals and of units."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Arrivals at the rates of a file; they end with the file, or with the trace's last request.

    The file is a table as `mezzotint trace import table` opens it, or Prometheus' answer to a range query. It has one
    number a row, or a column of times and one of rates or counts. Times are as arrivals are written, or of the unit in
    the column's name. Names of columns may be absent. A row holds from its time to that of the next, and the last
    row as long as the row before. The first time is the start of the run.

    Args:
        path: the file.
        per: unit of the rates, and the length of an interval where the file has no times. None: the unit in the
            column's name, such as requests_per_minute or rps; without one, a name such as count or invocations is
            requests per interval.
        interpolation: "constant" keeps the rate of a row until the next. "linear" takes it as the rate at the row's
            time and draws a line to that of the next row.
        dispersion: variance over mean of the count in a row's interval. 1 is a Poisson process. Above 1, the rate of
            each interval is multiplied by a gamma variable of mean 1, so that its count is negative binomial. 0 is
            evenly spaced: one request for each one expected, from a random start.
        rate_rpm: mean rate over the file, requests per minute, that the rates are scaled to; None keeps them.

    Raises:
        TraceError: `dispersion` is between 0 and 1. From `schedule`: the file is not such a table, with its row.
    """

    path: str | Path
    per: Unit | None = None
    interpolation: Literal["constant", "linear"] = "constant"
    dispersion: Annotated[float, Ge(0), Le(1e6)] = 1.0
    rate_rpm: Rpm | None = None

    def __post_init__(self) -> None:
        if 0 < self.dispersion < 1:
            raise TraceError(
                f"arrivals: dispersion={self.dispersion:g}, expected 0 (evenly spaced), 1 (Poisson), or more (bursts)"
            )

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        edges_s, rate_hz, read_as = read_rates(Path(self.path).expanduser(), self.per)
        after_hz = np.append(rate_hz[1:], rate_hz[-1]) if self.interpolation == "linear" else rate_hz
        lengths_s = np.diff(edges_s)
        mean_rpm = float((rate_hz + after_hz) @ lengths_s) / 2 / edges_s[-1] * 60.0
        scale = 1.0 if self.rate_rpm is None else self.rate_rpm / mean_rpm
        rate_hz, after_hz = rate_hz * scale, after_hz * scale
        check_number(f"{self.path}: arrivals", "highest rate per minute", 60 * float(rate_hz.max()), max_value=MAX_RPM)
        expected = lengths_s * (rate_hz + after_hz) / 2
        so_far = np.concatenate([[0.0], np.cumsum(expected)])
        counts = self._counts(expected, so_far, len(own_clock_s), rng)
        if not counts.size and len(own_clock_s):
            raise TraceError(
                f"{self.path}: no request arrives, with {so_far[-1]:.3g} expected in {edges_s[-1]:g} s; scale the rates"
                " with arrivals.rate_rpm, or correct their unit with arrivals.per"
            )
        # The inverse of the integral of a rate that is linear between edges.
        piece = np.minimum(np.searchsorted(so_far, counts, side="right"), len(expected)) - 1
        within, slope = counts - so_far[piece], ((after_hz - rate_hz) / lengths_s)[piece]
        speed = rate_hz[piece] + np.sqrt(np.maximum(rate_hz[piece] ** 2 + 2 * slope * within, 0.0))
        after_s = np.divide(2 * within, speed, out=np.zeros_like(speed), where=speed > 0)
        times_s = np.maximum.accumulate(edges_s[piece] + np.minimum(after_s, lengths_s[piece]))
        return Schedule(
            times_s, rows=len(times_s), assumptions=(*self._assumptions(times_s, own_clock_s, edges_s), *read_as)
        )

    def _counts(self, expected: Times, so_far: Times, rows: int, rng: np.random.Generator) -> Times:
        """Return the expected number of requests before each arrival, ascending: the time change of the process."""
        if not self.dispersion:
            evenly: Times = np.asarray(rng.random() + np.arange(rows), np.float64)
            return evenly[: np.searchsorted(evenly, so_far[-1])]
        modulated = so_far
        if self.dispersion > 1:
            excess = self.dispersion - 1
            modulated = np.concatenate([[0.0], np.cumsum(excess * rng.gamma(expected / excess))])
        counts = np.cumsum(rng.exponential(1.0, rows))
        return np.asarray(np.interp(counts[counts < modulated[-1]], modulated, so_far), np.float64)

    def _assumptions(self, times_s: Times, own_clock_s: Times, edges_s: Times) -> list[Assumption]:
        setting = "a setting of arrivals=rates"
        stated = [
            Assumption("interpolation of the arrival rates", self.interpolation, setting),
            Assumption("variance over mean of the arrivals in an interval", self.dispersion, setting),
        ]
        if self.rate_rpm is not None:
            stated.append(Assumption("mean of the arrival rates, requests per minute", self.rate_rpm, setting))
        if len(times_s) == len(own_clock_s):
            share = float(times_s[-1] / edges_s[-1]) if len(times_s) else 0.0
            why = f"the trace's {len(times_s)} requests are used up; take a longer trace (trace.requests=)"
            stated.append(Assumption("share of the arrival rates' time that is replayed", round(share, 4), why))
        return stated


def read_rates(path: Path, per: Unit | None = None) -> tuple[Times, Times, list[Assumption]]:
    """Return the edges of the intervals, (m + 1,) seconds from 0, the rate in each, (m,) per second, and what was read.

    Counts whose times are multiples of one interval apart are those of that interval: a log's count by the minute has
    no row for a minute without requests.

    Raises TraceError naming the file, and the row and column where there is one.
    """
    table, kind = open_table(path, Limits(), headless=HEADLESS)
    if {"status", "data"} <= set(table.column_names):
        table, kind = _of_prometheus(path, table.column("data")[0].as_py()), "Prometheus"
    names = table.column_names
    time, value = _columns(path, names)
    cells = {name: as_text(table.column(name)) for name in names}
    origin = Origin(str(path), {"value": value, "arrival_s": time or ""})
    per = _unit(str(path), value, per, time is None)
    if cells[value] is None or not table.num_rows:
        raise TraceError(f"{path}: column {excerpt(value)}: found no numbers, expected one or more; name another file")
    values = numbers(pointed(cells[value], origin, "value"), origin, "value").to_numpy()
    _refuse(origin, "value", cells[value], ~(values >= 0) | np.isinf(values), "a number, 0 or more")
    written = ""
    if time is None:
        edges_s: Times = np.arange(len(values) + 1) / PER_SECOND[per or "s"]  # a unit is needed here
    else:
        unit = unit_of(table.schema.field(time).type) or _time_unit(time)
        starts_s, written = _times(time, cells[time], origin, unit)
        edges_s = np.append(starts_s, 2 * starts_s[-1] - starts_s[-2])
        if per is None and (step_s := _grid_s(starts_s)) is not None:
            edges_s, values, empty = _with_empty(starts_s, values, step_s)
            written += f"; no request in {empty:,} intervals of {step_s:g} s without a row"
    if not values.any():
        raise TraceError(f"{path}: found no rate above 0 in {len(values)} rows, expected at least one")
    rate_hz: Times = values * PER_SECOND[per] if per else values / np.diff(edges_s)
    read_as = f"{kind}; {value} " + (f"per {per}" if per else "per interval") + written
    said = [Assumption("columns of the arrival rates", excerpt(read_as, 500), f"read from {path.name}")]
    if left_out := ", ".join(name for name in names if name not in (time, value)):
        what = "other columns of the arrival rates"
        said.append(Assumption(what, excerpt(left_out, 500), f"{path.name} has them {UNREAD}"))
    return edges_s, rate_hz, said


def _grid_s(starts_s: Times) -> float | None:
    """Return the seconds of an interval if all times are multiples of it apart, and some intervals have no row."""
    steps_s = np.diff(starts_s)
    multiples = steps_s / steps_s.min()
    is_grid = multiples.max() > 1.5 and np.allclose(multiples, np.round(multiples), rtol=0, atol=1e-6)
    return float(steps_s.min()) if is_grid else None


def _with_empty(starts_s: Times, values: Times, step_s: float) -> tuple[Times, Times, int]:
    """Return edges and values with the intervals that have no row, those between two rows as one; and how many."""
    ends_s, next_s = starts_s + step_s, np.append(starts_s[1:], starts_s[-1] + step_s)
    is_followed = next_s - ends_s > step_s / 2
    edges_s = np.sort(np.concatenate([starts_s, ends_s[is_followed], next_s[-1:]]))
    of_all = np.insert(values, np.flatnonzero(is_followed) + 1, 0.0)
    return edges_s, of_all, round(float((next_s - ends_s)[is_followed].sum() / step_s))


def _of_prometheus(path: Path, data: str | None) -> pa.Table:
    """Return the one series of Prometheus' answer to a range query as times and values."""
    try:
        series = [one["values"] for one in json.loads(data or "")["result"]]
        columns = zip(*series[0], strict=True) if len(series) == 1 else ()
        return pa.table({name: [str(x) for x in column] for name, column in zip(HEADLESS, columns, strict=True)})
    except (ValueError, KeyError, TypeError):
        raise TraceError(
            f"{path}: found Prometheus' answer without exactly one series of values, expected one; ask for a range and"
            " one series, as in sum(rate(requests_total[1m]))"
        ) from None


def _columns(path: Path, names: list[str]) -> tuple[str | None, str]:
    """Return the names of the columns of times, None if there are none, and of rates or counts."""
    if len(names) == 1:
        return None, names[0]
    times = [name for name in names if _is_time(name)]
    if len(names) == 2:
        time = times[0] if len(times) == 1 else names[0]
        return time, names[1 - names.index(time)]
    values = [name for name in names if name not in times[:1] and (rate_unit(name) or normalise(name) in COUNTS)]
    if not times or len(values) != 1:
        raise TraceError(
            f"{path}: found the columns {excerpt(', '.join(names))}, expected times and one column of rates or counts;"
            " keep these two"
        )
    return times[0], values[0]


def _time_unit(name: str) -> str | None:
    """Return the unit at the end of a column's name, or None."""
    return UNIT_WORDS.get(normalise(name).rpartition("_")[2])


def _is_time(name: str) -> bool:
    means = meaning(name)
    is_named = normalise(name) in BUCKETS or (means is not None and means.name == "arrival_s")
    return not rate_unit(name) and (is_named or _time_unit(name) is not None)


def _unit(where: str, name: str, per: Unit | None, needs_unit: bool) -> Unit | None:
    """Return the unit of time that a rate refers to; None if the column has requests per interval."""
    named = rate_unit(name)
    if per and named and per != named:
        raise TraceError(f"{where}: column {name} is per {named}, found arrivals.per={per}; leave per out")
    unit = per or named
    if unit is None and (needs_unit or normalise(name) not in COUNTS):
        raise TraceError(
            f"{where}: column {excerpt(name)} has no unit; say it with arrivals.per=s, min, h or d, or in the column's"
            " name (requests_per_second, or count for requests per interval)"
        )
    return unit  # type: ignore[return-value]


def _times(name: str, cells: pa.ChunkedArray | None, origin: Origin, unit: str | None) -> tuple[Times, str]:
    """Return the times of the rows, (m,) seconds after the first, and how they are written."""
    if cells is None or len(cells) < 2:
        raise TraceError(f"{origin.where}: found one row, expected two or more: an interval ends at the next row")
    cells = cells if are_dates(cells) else pointed(cells, origin, "arrival_s")
    clock = read_clock(cells, origin, unit=unit, has_date="date" in normalise(name))
    late = np.diff(clock.seconds, prepend=-np.inf) > 0
    _refuse(origin, "arrival_s", cells, ~late, "a time after that of the row before")
    written = "".join(f", {part}" for part in (f"{name} as {clock.written}", *clock.remarks))
    return clock.seconds - clock.seconds[0], written


def _refuse(origin: Origin, column: str, cells: pa.ChunkedArray, bad: npt.NDArray[np.bool_], expected: str) -> None:
    """Raise TraceError for the first of the ``bad`` cells, by file, row and column."""
    if bad.any():
        at = int(bad.argmax())
        raise refusal(origin, at, column, repr(cells[at].as_py()), expected)
