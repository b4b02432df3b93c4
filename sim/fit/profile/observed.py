"""Size, steps and generation seconds of every request of a log, in order of arrival."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.errors import ConfigError
from mezzotint.traces.table.trace import Trace


@dataclass(frozen=True, slots=True)
class Observed:
    """Size, steps, generation seconds and frames of requests in order of arrival; every array is (n,)."""

    arrival_s: NDArray[np.float64]
    width: NDArray[np.int64]
    height: NDArray[np.int64]
    steps: NDArray[np.int64]
    seconds: NDArray[np.float64]
    frames: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def pixels(self) -> NDArray[np.int64]:
        """Pixels of all frames, (n,)."""
        return self.width * self.height * self.frames

    def __getitem__(self, rows: NDArray[np.bool_] | slice) -> "Observed":
        return Observed(*(getattr(self, each.name)[rows] for each in fields(self)))

    def period(self, begins: datetime | None) -> str:
        """Return the times of the first and last request in words: dates, or hours of the trace without ``begins``."""
        ends_s = self.arrival_s[[0, -1]].tolist()
        if begins is None:
            first, last = (f"{seconds / 3600:.1f}" for seconds in ends_s)
            return f"hours {first} to {last} of the trace"
        first, last = (f"{begins + timedelta(seconds=seconds):%Y-%m-%d %H:%M}" for seconds in ends_s)
        return f"{first} to {last}"


def observed(trace: Trace) -> Observed:
    """Return the requests with a size, steps and generation seconds. Raises ConfigError for fewer than two."""
    arrival_s, width, height, steps, seconds = (
        trace.column(name) for name in ("arrival_s", "width", "height", "steps", "gen_s")
    )
    known = (width > 0) & (height > 0) & (steps > 0) & (seconds > 0)
    if known.sum() < 2:
        raise ConfigError(
            f"trace {trace.name}: {int(known.sum())} of {len(trace)} requests have a size, steps and seconds, "
            "expected 2 or more; take a trace with generation seconds (mezzotint trace import sd-beta)"
        )
    return Observed(arrival_s, width, height, steps, seconds, np.maximum(trace.column("frames"), 1))[known]


def first_arrival(trace: Trace) -> datetime | None:
    """Return the time of the first request from the trace's notes; None if they lack it."""
    try:
        return datetime.fromisoformat(trace.notes.get("first_arrival"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
