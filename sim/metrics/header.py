"""The header of an answer: what was served, on whose times, from which state, under which load, and what decides it.

Every answer (run line, report, plan, notebook) takes it from here, so that no answer leaves out what another one says.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mezzotint.figures.page import number, percent
from mezzotint.files.printable import printable
from mezzotint.sim.core.slo import OWN
from mezzotint.sim.metrics.served import BASES, UNKNOWN, served_models

MAX_LINE = 120
"""Characters of ``Header.line``."""

MAX_RUN_LINE = 160
"""Characters of ``run_line``, unless the names of the run and of its folder leave no room."""

MAX_SOURCE = 44
"""Characters of the name of a source."""

LABELS = {"rests_on": "rests on"}


@dataclass(frozen=True, slots=True)
class Header:
    """Facts that decide how a result may be read, each a phrase without a full stop.

    Attributes:
        work: model, size, steps, precision and engine of the requests.
        times: who measured the service times, when, and their known error.
        traffic: the trace, its arrivals, and the columns of it that decide and that do not.
        state: the cache at the start, the time that was measured and what was left out.
        load: requests offered and served a minute, and whether the system keeps up.
        goodput: requests completed within each limit, a minute.
        rests_on: what the result rests on most, and what it would be without.
        images: what one completed request is. Results of unlike images are not ranked together.
    """

    work: str
    times: str
    traffic: str
    state: str
    load: str
    goodput: str
    rests_on: str
    images: str

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The facts with their labels, for a table."""
        names = (field.name for field in fields(self) if field.name != "images")
        return tuple((LABELS.get(name, name), getattr(self, name)) for name in names)

    @property
    def line(self) -> str:
        """The facts that decide first, in under MAX_LINE characters."""
        parts = [self.load, self.work, self.times.partition(",")[0], self.state.partition(";")[0]]
        return _fit(parts, MAX_LINE - 1)


def header(summary: Mapping[str, Any], config: Mapping[str, Any]) -> Header:
    """Return the header of a run with this summary and resolved configuration (empty if there is none)."""
    models = served_models(summary)
    return Header(
        work=_work(summary),
        times=_times(summary, config),
        traffic=_traffic(summary, config),
        state=_state(summary),
        load=_load(summary),
        goodput=_goodput(summary),
        rests_on="",
        images=str(models[0].images) if models else f"model {UNKNOWN}",
    )


def shared(
    headers: Sequence[Header],
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return the rows that all ``headers`` have in common, and the others with the values of each header, in order."""
    rows = list(zip(*(each.rows for each in headers), strict=True))
    common = tuple(row[0] for row in rows if len(set(row)) == 1)
    return common, tuple((row[0][0], tuple(value for _, value in row)) for row in rows if len(set(row)) > 1)


def unlike_work(headers: Sequence[Header]) -> bool:
    """Return True if the results are of unlike images: they are shown side by side and never ranked together."""
    return len({each.images for each in headers}) > 1


def run_line(summary: Mapping[str, Any], config: Mapping[str, Any], overrides: str = "", folder: str = "") -> str:
    """Return a run's results in one line, values that decide first.

    Args:
        overrides: what distinguishes it from other runs of its sweep.
        folder: where it was written.
    """
    requests, latency_s = summary["requests"], summary["latency_s"]
    name = f"{summary['system']}{f' ({overrides})' if overrides else ''}: "
    late = {limit: found["violation_rate"] for limit, found in (summary["slo"] or {}).items()}
    over = next((f", {percent(rate)} over {limit}" for limit, rate in late.items() if rate is not None), "")
    completed = f"{requests['completed']:,} of {requests['arrived']:,} requests completed"
    verdict = "overloaded, " if is_overloaded(summary) else ""
    parts = [f"{verdict}{completed}, p95 {_seconds(latency_s['p95'])}{over}"]
    about, end = header(summary, config), f" -> {folder}" if folder else ""
    room = max(MAX_RUN_LINE - 1 - len(name) - len(end), len(parts[0]))
    return name + _fit([*parts, about.load, about.work, about.times.partition(",")[0]], room) + end


def _fit(parts: Sequence[str], room: int) -> str:
    """Join the first parts with semicolons, as many as fit into ``room`` characters and at least one."""
    text = parts[0]
    for part in filter(None, parts[1:]):
        if len(text) + 2 + len(part) > room:
            break
        text += f"; {part}"
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _work(summary: Mapping[str, Any]) -> str:
    rows = summary.get("models") or []
    if not rows:
        return f"model {UNKNOWN}"
    models = served_models(summary)
    images = models[0].images
    same = [row for row in rows if row["model"] == rows[0]["model"]]
    software = _distinct(_first_part(row.get("software") or "") for row in same)
    names = _distinct(model.images.model for model in models if model.images.model != images.model)
    besides = f"; beside it {' and '.join(names)}" if names else ""
    return f"{images}{''.join(f', {text}' for text in software)}{besides}"


def _times(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    found = []
    for row in summary.get("models") or []:
        basis = BASES.get(row["basis"] or "", f"basis {UNKNOWN}")
        source = _source(row.get("source") or "", basis)
        whence = ", ".join(filter(None, [source, row.get("date")]))
        error = row["service_error"]
        known = "measured as it ran" if row["basis"] == "live" else f"error {UNKNOWN}"
        if error is not None:
            known = f"known to {percent(error)}"
        found.append(f"{basis}{f' ({whence})' if whence else ''}, {known}")
    factor = (config.get("backend") or {}).get("service_factor", 1.0)
    changed = "" if factor == 1.0 else f"; all times {factor:g}"
    return ("; ".join(_distinct(found)) or f"basis {UNKNOWN}") + changed


def _source(text: str, basis: str) -> str:
    """Return the first words of a source: "MLPerf Inference v4.1"; empty if they say no more than ``basis``."""
    name = _first_part(re.sub(r"^(assumed|measured|scaled)\s*[,:]\s*", "", printable(text)))
    return "" if name == basis else name


def _first_part(text: str) -> str:
    """Return a text up to its first comma, colon, semicolon or bracket, cut to MAX_SOURCE characters."""
    name = re.split(r"[,:;(]", printable(text), maxsplit=1)[0].strip()
    return name if len(name) <= MAX_SOURCE else f"{name[: MAX_SOURCE - 1].rstrip()}…"


def _traffic(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    name = printable(str((summary["trace"] or {}).get("name") or "trace"))
    return f"{name}: {arrivals_text(config.get('arrivals') or {})}"


def arrivals_text(arrivals: Mapping[str, Any]) -> str:
    """Return arrivals in words: "its own times", "poisson arrivals at 10 a minute"."""
    kind, rate = str(arrivals.get("_target_", "")).rpartition(".")[2], arrivals.get("rate_rpm")
    speed = "" if rate is None else f" at {number(rate, 4)} a minute"
    if kind == "TraceClock":
        speedup = arrivals.get("speedup", 1.0)
        return f"its own times{speed}" + ("" if speedup == 1.0 else f", {speedup:g} times as fast")
    if not kind:
        return "arrivals not recorded"
    return f"{re.sub('(?<=[a-z])(?=[A-Z])', ' ', kind).lower()} arrivals{speed}"


def _state(summary: Mapping[str, Any]) -> str:
    """Say what the cache began with, how long was measured, in periods of the controllers, and what was left out."""
    state = summary.get("state")
    if not state:
        return "state not recorded"
    cache = {"empty": "cache empty at the start", "preloaded": f"cache filled with {state['preloaded']:,} requests"}
    periods = [f"{number(count, 2)} periods of {name}" for name, count in (state.get("periods") or {}).items()]
    left_out = f"first {duration(state['warmup_s'])} left out" if state["warmup_s"] else "nothing left out at the start"
    rule = f" ({state['warmup_rule']})" if state["warmup_s"] and state["warmup_rule"] else ""
    measured = ", ".join([f"{duration(state['span_s'])} measured", *periods])
    return "; ".join([cache.get(state["cache_start"], "no cache"), measured, left_out + rule])


def is_overloaded(summary: Mapping[str, Any]) -> bool:
    """Return True if the run served less than was offered."""
    load = summary.get("load")
    return bool((summary.get("backlog") or {}).get("grows") if load is None else load["verdict"] == "overloaded")


def _load(summary: Mapping[str, Any]) -> str:
    load = summary.get("load")
    if load is None:
        return f"served {_rate(summary['throughput_rpm'])} a minute{': overloaded' if is_overloaded(summary) else ''}"
    offered, served = _rate(load["offered_rpm"]), _rate(load["served_rpm"])
    words = f"offered {offered} a minute, served {served}"
    if load["verdict"] == "overloaded":
        return f"{words}: overloaded, {number(load['growth_per_hour'], 2)} more waiting an hour"
    return f"{words}: {'below capacity' if load['verdict'] == 'below' else 'undecided whether it keeps up'}"


def _goodput(summary: Mapping[str, Any]) -> str:
    parts = []
    for name, limit in (summary["slo"] or {}).items():
        if (rate := limit.get("goodput_rpm")) is not None:
            parts.append(f"{_rate(rate)} a minute within {'their own deadlines' if name == OWN else name}")
    return ", ".join(parts) or ("not recorded" if summary["slo"] else "no limit was set")


def duration(seconds: float) -> str:
    """Return seconds in the unit that suits them: "45 s", "22 min", "3.1 h"."""
    if seconds < 120:
        return f"{number(seconds, 3)} s"
    return f"{number(seconds / 60, 3)} min" if seconds < 7200 else f"{number(seconds / 3600, 3)} h"


def _rate(value: float | None) -> str:
    return number(value, 3)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{number(value, 3)} s"


def _distinct(texts: Any) -> list[str]:
    return list(dict.fromkeys(filter(None, texts)))
