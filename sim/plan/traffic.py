"""The traffic of a plan: its requests, their rate, and what of a log is used."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mezzotint.backends.base import size_text
from mezzotint.figures.page import number
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.streams import TRACE, stream
from mezzotint.sim.plan.candidate import Start
from mezzotint.sim.plan.options import Options
from mezzotint.sim.plan.rate import count_replications
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.config.options import files_of, prepare_overrides
from mezzotint.traces.sources import Source
from mezzotint.traces.sources.table import import_table
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace, make, write

STEADY_ROWS = 100_000
"""Requests of a longer file that a steady load replays: percentiles need no more, and caches search them at speed."""

REPLICATIONS = 6
"""Most seeds of a cluster, unless a number is given."""

HOUR_S = 3600.0

LEAD_S = 600.0
"""Seconds before the busiest hour that run without being measured, so that it does not begin with an empty queue."""

WARM_ROWS = 5_000
"""Earlier requests that fill a warm cache, if the trace can be made longer."""

STEADY_REQUESTS = 6_000
"""Requests of a built-in trace that a run serves, unless a controller needs more."""

PERIODS = 10
"""Periods of the slowest controller that a run measures at least, after one before its first decision."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of a plan.

    Attributes:
        trace: all of them, of the first seed.
        name: the file's name, or that of the built-in trace.
        words: overrides of every run: the requests and their times.
        load: the requests and their rate, in words.
        replications: most seeds of a cluster.
        rate_rpm: mean rate of the arrivals of a run, requests per minute; None if a process draws a rate that changes.
        mean_rpm: mean rate of a log whose busiest hour is replayed, requests per minute; else None.
        earlier: number of first requests of a busiest hour that come before it, and may fill a cache.
        lead: number of requests before a busiest hour that are served and not measured.
        hour: the file of a busiest hour without those that may fill a cache; else None.
        is_file: True if the requests are a file's. Only the built-in traces can be made longer.
        is_set: overrides among ``trace.requests``, ``preload`` and ``warmup``.
    """

    trace: Trace
    name: str
    words: tuple[str, ...]
    load: str
    replications: int
    rate_rpm: float | None
    mean_rpm: float | None
    earlier: int
    lead: int
    hour: Path | None
    is_file: bool
    is_set: frozenset[str]

    @property
    def has_prompts(self) -> bool:
        """True if a request has a prompt, so that a cache can be searched."""
        return self.trace.has("prompt")

    @property
    def has_addons(self) -> bool:
        """True if a request asks for a ControlNet or a LoRA."""
        return any(self.trace.has(name) for name in ("controlnets", "loras"))

    @property
    def own_shapes(self) -> tuple[str, ...]:
        """The columns of a file's own sizes and steps; empty for built-in traces, whose models have theirs."""
        columns = ("width", "height", "frames", "steps") if self.is_file else ()
        return tuple(name for name in columns if (self.trace.column(name) > 0).any())

    def shapes_text(self, model: Mapping[str, Any]) -> str:
        """Return the sizes and the steps of the requests in words; those that they lack are the model's."""
        values = {}
        for name in ("width", "height", "frames", "steps"):
            column = self.trace.column(name)
            values[name] = np.where(column > 0, column, model.get(name, 1))
        sizes = sorted(set(zip(*(values[name].tolist() for name in ("width", "height", "frames")), strict=True)))
        steps = sorted(set(values["steps"].tolist()))
        size = size_text(*sizes[0]) if len(sizes) == 1 else f"{len(sizes)} sizes"
        return f"{size}, {steps[0]} steps" if len(steps) == 1 else f"{size}, {steps[0]} to {steps[-1]} steps"


def find_traffic(options: Options) -> Traffic:
    """Return the requests that ``options`` ask for.

    A steady load replays the first `STEADY_ROWS` requests of a longer file. A file at its own times is replayed in its
    busiest hour, if it is longer than that.

    Raises ConfigError, TraceError: there are none, or the options contradict each other.
    """
    if options.trace is not None and not options.trace.is_file():
        raise ConfigError(f"{options.trace}: is no file; name a trace or a table of requests, or an override KEY=VALUE")
    folder = options.runs / "traces"
    path = None if options.trace is None else import_table(options.trace, folder)
    name = "the built-in trace" if options.trace is None else options.trace.name
    words = [] if path is None else ["trace=file", f"trace.path={path}"]
    given = [word.lstrip("+") for word in options.overrides]
    arrivals = [word for word in given if word.startswith(("arrivals=", "arrivals."))]
    is_chosen = any(word.startswith("arrivals=") for word in arrivals)
    keys = {word.partition("=")[0] for word in given}
    if options.rate_rpm is not None:
        if arrivals:
            raise ConfigError(f"--rate-rpm: found beside {arrivals[0]}; leave one out")
        words += ["arrivals=poisson", f"arrivals.rate_rpm={options.rate_rpm!r}"]
    elif path is None and not is_chosen:
        raise ConfigError("--rate-rpm: found none, and no file with times of its own; name one of the two")
    elif path is not None and not is_chosen:
        words.append("arrivals=trace")
    trace = _load(options, words)
    if options.rate_rpm is None and not is_chosen and trace.notes.get("arrival_s") == ORDER_ONLY:
        raise ConfigError(
            f"{options.trace}: has an order of requests and no times; give --rate-rpm, or map its column of times in"
            " `mezzotint trace import`"
        )
    traffic = Traffic(
        trace, name, tuple(words), "", REPLICATIONS, options.rate_rpm, None, 0, 0, None, path is not None,
        frozenset(keys & {"trace.requests", "preload", "warmup"}),
    )  # fmt: skip
    times_of: str | Path | None = None
    if options.rate_rpm is not None:
        part = ""
        if path is not None and not traffic.is_set and len(trace) > STEADY_ROWS:
            traffic = replace(traffic, words=(*words, f"trace.requests={STEADY_ROWS}"), trace=trace.head(STEADY_ROWS))
            part = f" (the first {STEADY_ROWS:,} requests)"
        load = f"{options.rate_rpm:g} requests per minute of {name}{part}"
    elif is_chosen:
        load = f"{name}, {' '.join(arrivals)}"
        times_of = name if "arrivals=trace" in arrivals else None
    else:
        load, times_of = f"{name} at its own times", options.trace
        if not traffic.is_set and trace.span_s > HOUR_S:
            traffic, load = _busiest_hour(traffic, folder)
        elif trace.span_s > 0:
            traffic = replace(traffic, rate_rpm=60 * len(trace) / trace.span_s)
    replications = count_replications(options.replications, REPLICATIONS, times_of, "give --rate-rpm")
    return replace(traffic, load=load, replications=replications)


def _load(options: Options, words: Sequence[str]) -> Trace:
    """Load the requests of the first seed."""
    files = files_of(options.config_dir, None, "config")
    chosen = [word for word in options.overrides if word.lstrip("+").startswith(("trace=", "trace."))]
    composed = compose_config(prepare_overrides([*chosen, *words, "run.dir=unnamed"]), files)
    source: Source = build(resolve_config(composed)["trace"], "trace", Source)
    return source.load(stream(1, TRACE))


def _busiest_hour(traffic: Traffic, folder: Path) -> tuple[Traffic, str]:
    """Return the busiest hour of a log with the requests before it, and that load in words."""
    trace, arrival_s = traffic.trace, traffic.trace.arrival_s
    ends = np.searchsorted(arrival_s, arrival_s + HOUR_S)
    first = int(np.argmax(ends - np.arange(len(trace))))
    last = int(ends[first])
    lead = first - int(np.searchsorted(arrival_s, arrival_s[first] - LEAD_S))
    earlier = min(first - lead, STEADY_ROWS)
    begin, paths = first - lead, []
    folder.mkdir(parents=True, exist_ok=True)
    for name, row in (("busiest-hour", begin - earlier), ("busiest-hour-alone", begin)):
        table = trace.table.slice(row, last - row)
        own_s = np.maximum(arrival_s[row:last] - arrival_s[begin], 0.0)  # the run begins with the first that is served
        table = table.set_column(table.schema.get_field_index("arrival_s"), "arrival_s", pa.array(own_s))
        part = make(table, name=trace.name, source=trace.source, notes=trace.notes)
        paths.append(write(part, folder / f"{trace.digest[:16]}-{name}.parquet").path)
        if row == begin - earlier:
            hour = part
    rate_rpm, mean_rpm = (last - first) / 60, 60 * len(trace) / trace.span_s
    load = (
        f"the busiest hour of {traffic.name} ({number(rate_rpm, 3)} requests per minute; {number(mean_rpm, 3)} in the "
        f"mean of its {number(trace.span_s / HOUR_S, 3)} h)"
    )
    words = (*(word for word in traffic.words if not word.startswith("trace.path=")), f"trace.path={paths[0]}")
    busy = replace(
        traffic, trace=hour, words=words, rate_rpm=rate_rpm, mean_rpm=mean_rpm, earlier=earlier, lead=lead,
        hour=paths[1],
    )  # fmt: skip
    return busy, load


def find_starts(
    traffic: Traffic, period_s: float, *, has_cache: bool
) -> tuple[dict[Start, dict[str, Any]], int, list[str]]:
    """Return the settings of a run by the state of its cache, the requests that fill a warm one, and notes.

    Both states serve as many requests, and those of a warm cache come after the ones that fill it. With drawn arrivals
    the start is left out by the rule of ``warmup=auto``. Of a log's busiest hour `LEAD_S` before it are, of a whole log
    nothing.

    Args:
        period_s: seconds between two decisions of the slowest controller of a candidate; 0 without one.
        has_cache: True if a candidate searches a cache that is to be warm.
    """
    notes, rows, own = list[str](), len(traffic.trace), "preload" in traffic.is_set
    rate_rpm = traffic.rate_rpm or 0.0
    warmup: dict[str, Any] = {} if traffic.replications == 1 or "warmup" in traffic.is_set else {"warmup": "auto"}
    if traffic.hour is not None:
        warmup, served = {"warmup": traffic.lead}, rows - traffic.earlier
        starts: dict[Start, dict[str, Any]] = {
            "warm": {"preload": traffic.earlier, **warmup},
            "empty": {"preload": 0, **warmup, "trace.path": str(traffic.hour)},
        }
        earlier = traffic.earlier
    else:
        served, earlier = rows, 0
        can_grow = not traffic.is_file and "trace.requests" not in traffic.is_set
        if can_grow:
            served = max(STEADY_REQUESTS, math.ceil(rate_rpm / 60 * period_s * (PERIODS + 1)))
        if has_cache and not own:
            earlier = WARM_ROWS if can_grow else rows // 2
            served = served if can_grow else rows - earlier
        starts = {"warm": dict(warmup), "empty": dict(warmup)}
        if served + earlier != rows:
            starts["warm"]["trace.requests"], starts["empty"]["trace.requests"] = served + earlier, served
        elif earlier:
            starts["empty"]["trace.requests"] = served
        if earlier:
            starts["warm"]["preload"], starts["empty"]["preload"] = earlier, 0
    periods = 60 * (served - traffic.lead) / rate_rpm / period_s if rate_rpm and period_s else math.inf
    if periods < PERIODS:
        notes.append(
            f"{traffic.name} is short: {served - traffic.lead:,} requests are {number(periods, 2)} periods of the "
            f"slowest controller ({period_s:g} s); below {PERIODS} its start may show; "
            "take a longer trace or a lower rate"
        )
    return starts, earlier, notes
