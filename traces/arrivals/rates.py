"""Arrivals at a rate over time that is read from a file."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from annotated_types import Ge, Le

from mezzotint.settings.assumption import Assumption
from mezzotint.traces.arrivals.base import MAX_RPM, Rpm, Schedule, Times
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.limits import Limits, open_bounded
from mezzotint.traces.table.validation import Origin, check_number, excerpt

UNIT_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
"""Seconds of a unit of `per`."""

RATE = re.compile(
    r"(?P<s>(?:.*_)?(?:rps|qps|hz)|.*(?:per_|/)(?:s|secs?|seconds?))"
    r"|(?P<min>(?:.*_)?rpm|.*(?:per_|/)(?:min|minutes?))|(?P<h>(?:.*_)?rph|.*(?:per_|/)(?:h|hours?))"
)
"""Name of a column of rates, whose end is its unit: rate_rpm, requests_per_second, req/s."""

COUNT = re.compile(r"(?:num_|n_)?(?:counts?|requests?|invocations?|arrivals|calls|hits|queries)")
"""Name of a column of requests per interval."""

TIME_S = {
    re.compile(r"(?:.*_)?(?:d|days?)"): 86_400.0,
    re.compile(r"(?:.*_)?(?:h|hours?)"): 3600.0,
    re.compile(r"(?:.*_)?(?:min|minutes?)"): 60.0,
    re.compile(r"(?:.*_)?(?:s|secs?|seconds?)"): 1.0,
    re.compile(r"(?:.*_)?(?:ms|milliseconds?)"): 1e-3,
    re.compile(r"t|ts|time|timestamp|datetime|date|start|interval|bucket"): None,
}
"""Name of a column of times: seconds of its unit, None if the cells say it."""

EPOCH_UNITS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
"""A number of at least the first counts from 1970 in units of the second, seconds; 1e11 s are 3,000 years."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Arrivals at the rates of a file; they end with the file, or with the trace's last request.

    The file is delimited text, plain or gzipped. It has one number a line, or a column of times (seconds, another unit
    by the column's name, epochs or ISO 8601) and a column of rates or counts. A row holds from its time to that of the
    next, and the last row as long as the row before. The first time is the start of the run.

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
    per: Literal["s", "min", "h"] | None = None
    interpolation: Literal["constant", "linear"] = "constant"
    dispersion: Annotated[float, Ge(0), Le(1e6)] = 1.0
    rate_rpm: Rpm | None = None

    def __post_init__(self) -> None:
        if 0 < self.dispersion < 1:
            raise TraceError(
                f"arrivals: dispersion={self.dispersion:g}, expected 0 (evenly spaced), 1 (Poisson), or more (bursts)"
            )

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        edges_s, rate_hz = read_rates(Path(self.path).expanduser(), self.per)
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
        return Schedule(times_s, rows=len(times_s), assumptions=tuple(self._assumptions(times_s, own_clock_s, edges_s)))

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


def read_rates(path: Path, per: Literal["s", "min", "h"] | None = None) -> tuple[Times, Times]:
    """Return the edges of the intervals, (m + 1,) seconds from 0, and the rate in each, (m,) requests per second.

    Raises TraceError naming the file, and the row and column where there is one.
    """
    with open_bounded(path, Limits()) as stream:
        lines = pd.Series(stream.read().decode(errors="replace").splitlines(), dtype=str).str.strip()
    lines = lines[lines != ""]
    if lines.empty:
        raise TraceError(f"{path}: is empty, expected a rate or a count on each line; name another file")
    delimiter = next((mark for mark in ",;\t" if mark in lines.iloc[0]), "\0")
    cells = lines.str.split(delimiter, expand=True).apply(lambda column: column.str.strip(' "'))
    header = cells.iloc[0].fillna("").str.lower().str.replace(r"[^\w/]+", "_", regex=True).str.strip("_").tolist()
    has_header = pd.isna(pd.to_numeric(cells.iloc[0], errors="coerce")).iloc[-1]
    names = header if has_header else ["time", "value"][-cells.shape[1] :]
    cells = cells.iloc[1:] if has_header else cells
    if delimiter == ";":
        cells = cells.apply(lambda column: column.str.replace(",", "."))
    time, value = _columns(path, names)
    rows = np.asarray(cells.index, np.int64) + 1
    origin = Origin(str(path), {"time": "" if time is None else names[time], "value": names[value]}, rows)
    unit_s = _unit_s(origin.where, names[value], per, time is None)
    values = pd.to_numeric(cells[value], errors="coerce").to_numpy(np.float64)
    _refuse(origin, "value", cells[value], ~(values >= 0) | np.isinf(values), "a number, 0 or more")
    if time is None:
        edges_s: Times = np.asarray((unit_s or 1.0) * np.arange(len(values) + 1), np.float64)  # a unit is needed here
    else:
        starts_s = _times(origin, names[time], cells[time])
        late = np.diff(starts_s, prepend=-np.inf) > 0
        _refuse(origin, "time", cells[time], ~late, "a time after that of the row before")
        if len(starts_s) < 2:
            raise TraceError(f"{path}: found one row, expected two or more: an interval ends at the next row")
        edges_s = np.append(starts_s, 2 * starts_s[-1] - starts_s[-2])
    if not values.any():
        raise TraceError(f"{path}: found no rate above 0 in {len(values)} rows, expected at least one")
    rate_hz: Times = values / (unit_s or np.diff(edges_s))
    return edges_s, rate_hz


def _columns(path: Path, names: list[str]) -> tuple[int | None, int]:
    """Return the positions of the times, None if there are none, and of the rates or counts."""
    if len(names) == 1:
        return None, 0
    times = [at for at, name in enumerate(names) if any(pattern.fullmatch(name) for pattern in TIME_S)]
    if len(names) == 2 and names[0] != names[1]:
        time = times[0] if len(times) == 1 else 0
        return time, 1 - time
    values = [at for at, name in enumerate(names) if RATE.fullmatch(name) or COUNT.fullmatch(name)]
    values = [at for at in values if at not in times[:1]]
    if not times or len(values) != 1:
        raise TraceError(
            f"{path}: found the columns {excerpt(', '.join(names))}, expected times and one column of rates or counts;"
            " keep these two"
        )
    return times[0], values[0]


def _unit_s(where: str, name: str, per: str | None, needs_unit: bool) -> float | None:
    """Return the seconds that a rate refers to; None if the column has requests per interval."""
    match = RATE.fullmatch(name)
    named = match.lastgroup if match else None
    if per and named and per != named:
        raise TraceError(f"{where}: column {name} is per {named}, found arrivals.per={per}; leave per out")
    unit = per or named
    if unit is None and (needs_unit or not COUNT.fullmatch(name)):
        raise TraceError(
            f"{where}: column {excerpt(name)} has no unit; say it with arrivals.per=s, min or h, or in the column's"
            " name (requests_per_second, or count for requests per interval)"
        )
    return UNIT_S[unit] if unit else None


def _times(origin: Origin, name: str, cells: "pd.Series[Any]") -> Times:
    """Return the times of the rows, (m,) seconds after the first."""
    numbers = pd.to_numeric(cells, errors="coerce")
    if numbers.notna().iloc[0]:
        unit_s = next((seconds for pattern, seconds in TIME_S.items() if pattern.fullmatch(name)), None)
        if unit_s is None:
            unit_s = next((seconds for smallest, seconds in EPOCH_UNITS if abs(numbers.iloc[0]) >= smallest), 1.0)
        _refuse(origin, "time", cells, ~np.isfinite(numbers.to_numpy(np.float64)), "a number, as in the first row")
        return np.asarray((numbers - numbers.iloc[0]) * unit_s, np.float64)
    stamps = pd.to_datetime(cells, utc=True, format="ISO8601", errors="coerce")
    _refuse(origin, "time", cells, stamps.isna().to_numpy(), "a number or a time such as 2026-11-01 10:00:00")
    return np.asarray((stamps - stamps.iloc[0]).dt.total_seconds(), np.float64)


def _refuse(origin: Origin, column: str, cells: "pd.Series[Any]", bad: npt.NDArray[np.bool_], expected: str) -> None:
    """Raise TraceError for the first of the ``bad`` cells, by file, line and column."""
    if bad.any():
        at = int(bad.argmax())
        found = excerpt(repr(cells.iloc[at]), 60)
        raise TraceError(f"{origin.cell(at, column)}: found {found}, expected {expected}; correct the row")
