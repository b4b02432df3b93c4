"""The header of an answer: what was served, on whose times, from which state, under which load, and what decides it.

Every answer (run line, report, plan, notebook) takes it from here, so that no answer leaves out what another one says.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from mezzotint.figures.page import number, percent
from mezzotint.files.printable import printable
from mezzotint.sim.core.slo import OWN
from mezzotint.sim.metrics.counterfactuals import counterfactuals
from mezzotint.sim.metrics.served import BASES, UNKNOWN, ImageSpec, served_models

MAX_LINE = 120
"""Characters of ``Header.line``."""

MAX_RUN_LINE = 160
"""Characters of ``run_line``, unless the names of the run and of its folder leave no room."""

MAX_NAMES = 6
"""Columns that are named."""

MAX_SOURCE = 44
"""Characters of the name of a source."""

MAX_NAMED = 4
"""Models besides the reference that the header names; of more, it counts the rest."""

MAX_DECIDING = 2
"""Changes that a header names of those that were tried."""

SMALL = 0.05
"""Relative change of p95 that does not decide."""

NOTHING = "nothing that a rerun could leave out"

TRY = "`mezzotint report --reruns-s inf` tries them"

LABELS = {"rests_on": "rests on"}

COLUMNS = {
    **{"width": "sizes", "height": "sizes", "frames": "lengths", "prompt": "prompts", "user_id": "users"},
    **{"base_model": "models", "controlnets": "ControlNets", "loras": "LoRAs", "seed": "seeds", "slo_s": "deadlines"},
    **{"gen_s": "service times", "priority": "priorities", "negative_prompt": "negative prompts"},
    **{"input_images": "input images", "latency_s": "latencies", "images": "images per request"},
}
"""Columns of a trace in words, where they differ from their names."""

WORK = ("width", "height", "frames", "steps", "images", "base_model", "controlnets", "loras", "guidance",
        "negative_prompt", "input_images", "strength")  # fmt: skip
"""Columns of a trace that say what a request asks for."""

UNTIMED = {"text_encode": "text encoding", "vae_decode": "decoding"}
"""Stages in words."""


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
        rests_on=_describe_untried(summary, config),
        images=_unit(models[0].images, summary) if models else f"model {UNKNOWN}",
    )


def rests_on(summary: Mapping[str, Any], tried: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return what a result rests on most: the changes that move it most, MAX_DECIDING of them at most.

    Args:
        summary: of the run as it is.
        tried: each change in words, with the summary of the run that has it.
    """
    if not tried:
        return NOTHING
    effects = sorted(((_effect(summary, other), words, other) for words, other in tried), key=lambda row: -row[0])
    decisive = [(words, other) for effect, words, other in effects if effect >= SMALL][:MAX_DECIDING]
    if not decisive:
        return f"none of what was tried changes p95 by {percent(SMALL, 0)}: {_all_of([words for words, _ in tried])}"
    return "; ".join(f"{words}: {_describe_change(summary, other)}" for words, other in decisive)


def _effect(summary: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the larger relative change of p95 and of what is served; more than any if it decides on overload."""
    p95_s = [each["latency_s"]["p95"] for each in (summary, other)]
    decides = is_overloaded(summary) is not is_overloaded(other)
    return max(_change(*p95_s), _change(_served_rpm(summary), _served_rpm(other))) + (1e6 if decides else 0.0)


def _change(ours: float | None, theirs: float | None) -> float:
    """Return by how much the larger of two values exceeds the smaller, a fraction; infinite if one is not known."""
    return max(ours / theirs, theirs / ours) - 1 if ours and theirs else math.inf


def _served_rpm(summary: Mapping[str, Any]) -> float | None:
    rate: float | None = summary["load"]["served_rpm"]
    return rate


def _describe_change(summary: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    ours, theirs = (_seconds(each["latency_s"]["p95"]) for each in (summary, other))
    parts = [f"p95 {theirs} for {ours}"]
    served = [_served_rpm(each) for each in (summary, other)]
    if is_overloaded(summary) or is_overloaded(other) or _change(*served) >= SMALL / 2:
        offered = _rate(other["load"]["offered_rpm"])
        words = " (overloaded)" if is_overloaded(other) else " (below capacity)" if is_overloaded(summary) else ""
        parts.insert(0, f"serves {_rate(served[1])} of {offered} a minute for {_rate(served[0])}{words}")
    return ", ".join(parts)


def _describe_untried(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    words = [words for words, _ in counterfactuals(summary, config)]
    return f"not tried: {_all_of(words)}; {TRY}" if words else NOTHING


def split_rows(
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
    served = [name for name, n in requests_by_model(summary).items() if n]
    text = _fit([*parts, _short_load(summary)], room)
    alone = about.images if len(served) == 1 and about.images.startswith(served[0]) else ""
    works = filter(None, (about.work, alone, " + ".join(served)))
    work = next((work for work in works if len(text) + 2 + len(work) <= room), "")
    return name + _fit([text, work, about.times.partition(",")[0]], room) + end


def _fit(parts: Sequence[str], room: int) -> str:
    """Join the first parts with semicolons, as many as fit into ``room`` characters and at least one."""
    text = parts[0]
    for part in filter(None, parts[1:]):
        if len(text) + 2 + len(part) > room:
            break
        text += f"; {part}"
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _unit(images: ImageSpec, summary: Mapping[str, Any]) -> str:
    """Return what one request is; requests of their own sizes or steps are alike on one trace."""
    if None in (images.width, images.steps):
        return f"{images}, of {(summary['trace'] or {}).get('name')}"
    return str(images)


def _work(summary: Mapping[str, Any]) -> str:
    rows = summary.get("models") or []
    if not rows:
        return f"model {UNKNOWN}"
    models = served_models(summary)
    images = models[0].images
    same = [row for row in rows if row["model"] == rows[0]["model"]]
    software = _distinct(_first_part(row.get("software") or "") for row in same)
    besides = _besides(requests_by_model(summary), images.model)
    text = str(images)
    if (work := summary.get("work")) is not None:
        low, high = work["steps"]["min"], work["steps"]["max"]
        size, share = next(iter(work["sizes"].items()))
        sizes = size if work["size_count"] == 1 else f"{work['size_count']} sizes (mostly {size}, {percent(share, 0)})"
        text = f"{images.model}, {sizes}, {low if low == high else f'{low} to {high}'} steps, {images.precision_text}"
    return f"{text}{''.join(f', {name}' for name in software)}{besides}"


def requests_by_model(summary: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests that each model completed, by its name."""
    return {printable(row["model"]): row.get("requests") or 0 for row in summary.get("models") or ()}


def _besides(counts: Mapping[str, int], reference: str) -> str:
    """Say which share of the requests models other than the reference served; empty if there is none."""
    total = sum(counts.values())
    others = {name: n for name, n in counts.items() if n and name != reference}
    named = others if len(others) <= MAX_NAMED else dict(list(others.items())[: MAX_NAMED - 1])
    shares = [f"{percent(n / total, 0)} on {name}" for name, n in named.items()]
    if rest := len(others) - len(named):
        share = percent(sum(n for name, n in others.items() if name not in named) / total, 0)
        shares.append(f"{share} on {rest} other models")
    return f"; {_all_of(shares)}" if shares else ""


def _times(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    found = []
    for row in summary.get("models") or []:
        basis = BASES.get(row["basis"] or "", f"basis {UNKNOWN}")
        source = _source(row.get("source") or "", basis)
        whence = ", ".join(filter(None, [source, _month(row.get("date") or "")]))
        error = row["service_error"]
        known = "measured as it ran" if row["basis"] == "live" else f"error {UNKNOWN}"
        if error is not None:
            known = f"known to {percent(error)}"
        untimed = row.get("untimed") or ()
        # Where the decoding has seconds, text encoding may be inside them: what was fitted to a log is.
        where = "the steps" if "vae_decode" in untimed else "other stages"
        inside = f" ({' and '.join(UNTIMED.get(stage, stage) for stage in untimed)} inside {where})" if untimed else ""
        found.append(f"{basis}{f' ({whence})' if whence else ''}, {known}{inside}")
    if (config.get("backend") or {}).get("service") == "trace":
        return "the trace's own seconds for each request"
    factor = (config.get("backend") or {}).get("service_factor", 1.0)
    changed = "" if factor == 1.0 else f"; all times {factor:g}"
    return ("; ".join(_distinct(found)) or f"basis {UNKNOWN}") + changed


def _source(text: str, basis: str) -> str:
    """Return the first words of a source: "MLPerf Inference v4.1"; empty if they say no more than ``basis``."""
    name = _first_part(re.sub(r"^(assumed|measured|scaled)\s*[,:]\s*", "", printable(text)))
    return "" if name == basis else name


def _month(text: str) -> str:
    """Return a day such as 2025-04-02 as "Apr 2025"; other text as it is."""
    try:
        return datetime.strptime(text[:7], "%Y-%m").strftime("%b %Y")
    except ValueError:
        return printable(text)


def _first_part(text: str) -> str:
    """Return a text up to its first comma, colon, semicolon or bracket, cut to MAX_SOURCE characters."""
    name = re.split(r"[,:;(]", printable(text), maxsplit=1)[0].strip()
    return name if len(name) <= MAX_SOURCE else f"{name[: MAX_SOURCE - 1].rstrip()}…"


def _traffic(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    trace = summary["trace"] or {}
    columns = trace.get("columns") or {}
    used, unused = (
        _distinct(COLUMNS.get(name, name) for name in columns.get(group) or () if name != "arrival_s")
        for group in ("used", "unused")
    )
    unused += _distinct(f"its column {printable(name)}" for name in columns.get("left_out") or ())
    parts = [arrivals_text(config.get("arrivals") or {}), *([f"its {_all_of(used)}"] if used else [])]
    parts += _client(config.get("client") or {})
    text = f"{printable(str(trace.get('name') or 'trace'))}: {', '.join(parts)}"
    return f"{text}; not used: {_all_of(unused)}" if unused else text


def ignored_work(summary: Mapping[str, Any]) -> str:
    """Return what the trace says of its requests' work and the run does not read, with the reasons; else nothing."""
    trace = summary["trace"] or {}
    by_reason: dict[str, list[str]] = {}
    for name, reason in ((trace.get("columns") or {}).get("unused") or {}).items():
        if name in WORK:
            by_reason.setdefault(reason, []).append(COLUMNS.get(name, name))
    said = "; ".join(f"{', '.join(_distinct(names))} ({reason})" for reason, names in by_reason.items())
    return said and f"{printable(str(trace.get('name') or 'trace'))}: its own work is not served: {said}"


def arrivals_text(arrivals: Mapping[str, Any]) -> str:
    """Return arrivals in words: "its own times", "poisson arrivals at 10 a minute"."""
    kind, rate = str(arrivals.get("_target_", "")).rpartition(".")[2], _number_of(arrivals, "rate_rpm")
    speed = "" if rate is None else f" at {number(rate, 4)} a minute"
    if kind == "TraceClock":
        speedup = _number_of(arrivals, "speedup")
        return f"its own times{speed}" + ("" if speedup in (None, 1.0) else f", {speedup:g} times as fast")
    if not kind:
        return "arrivals not recorded"
    return f"{in_words(kind)} arrivals{speed}"


def _client(client: Mapping[str, Any]) -> list[str]:
    """Say what the client of a run does; nothing without one."""
    found = []
    if (limit := _number_of(client, "max_in_flight")) is not None:
        found.append(f"at most {limit:,} in flight (no open loop)")
    if (timeout_s := _number_of(client, "timeout_s")) is not None:
        found.append(f"given up after {duration(timeout_s)}")
    if retries := _number_of(client, "max_retries"):
        found.append(f"up to {retries} retries")
    if (hedge_s := _number_of(client, "hedge_after_s")) is not None:
        found.append(f"a second try after {duration(hedge_s)}")
    return found


def _number_of(group: Mapping[str, Any], key: str) -> int | float | None:
    """Return the number at ``key``; None for anything else, such as a setting of that name of a class of the user's."""
    value = group.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def in_words(name: str) -> str:
    """Return the name of a class in words: "global monitor"."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _state(summary: Mapping[str, Any]) -> str:
    """Say what cache and servers began with, how long was measured, in periods of controllers, and what is left out."""
    state = summary.get("state")
    if not state:
        return "state not recorded"
    cache = {"empty": "cache empty at the start", "preloaded": f"cache filled with {state['preloaded']:,} requests"}
    none = "hits declared" if (summary["cache"] or {}).get("hit_rate") is not None else "no cache"
    periods = [
        f"{number(count, 2)} periods of {in_words(name)}" for name, count in (state.get("periods") or {}).items()
    ]
    left_out = f"first {duration(state['warmup_s'])} left out" if state["warmup_s"] else "nothing left out at the start"
    rule = f" ({state['warmup_rule']})" if state["warmup_s"] and state["warmup_rule"] else ""
    measured = ", ".join([f"{duration(state['span_s'])} measured", *periods])
    note = printable(state.get("note") or "")
    servers = {"ready": "servers that compiled nothing", "cold": "servers start cold"}.get(state.get("servers", ""))
    begin = ", ".join(filter(None, [cache.get(state["cache_start"], none), servers]))
    return "; ".join(filter(None, [begin, measured, left_out + rule, note]))


def is_overloaded(summary: Mapping[str, Any]) -> bool:
    """Return True if the run served less than was offered."""
    return bool((summary["load"] or {}).get("verdict") == "overloaded")


def _load(summary: Mapping[str, Any]) -> str:
    load, requests = summary["load"], summary["requests"]
    if load is None:
        return "not recorded"
    text = f"offered {_rate(load['offered_rpm'])} a minute, served {_rate(load['served_rpm'])}"
    if load["verdict"] == "below":
        return f"{text}: below capacity"
    if load["verdict"] == "undecided":
        return f"{text}: undecided{f' ({note})' if (note := load['note']) else ''}"
    growth, lost = load["growth_per_hour"], 1 - requests["completed"] / requests["arrived"]
    waiting = f", {number(growth, 2)} more waiting an hour" if growth and growth >= 1 else ""
    return f"{text}: overloaded{waiting}{f', {percent(lost)} lost' if lost else ''}"


def _short_load(summary: Mapping[str, Any]) -> str:
    load = summary["load"] or {}
    offered, served = (_rate(load.get(name)) for name in ("offered_rpm", "served_rpm"))
    verdict = {"below": ", below capacity", "undecided": ", load undecided"}.get(load.get("verdict", ""), "")
    return f"{served}{'' if served == offered else f' of {offered}'} a minute{verdict}"


def _goodput(summary: Mapping[str, Any]) -> str:
    parts = []
    client = summary.get("client") or {}
    # Of requests, not of tries, and from the instant at which they were due.
    for name, limit in (client.get("slo") or summary["slo"] or {}).items():
        if (rate := limit.get("goodput_rpm")) is not None:
            parts.append(f"{_rate(rate)} a minute within {'their own deadlines' if name == OWN else name}")
    if (wasted_s := client.get("wasted_gpu_s")) and parts:
        share = percent(wasted_s / summary["gpu"]["seconds"])
        parts.append(f"{share} of the GPU-seconds spent on requests that were given up")
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


def _all_of(names: Sequence[str]) -> str:
    """Return names in a row, "a, b and c", at most MAX_NAMES of them."""
    shown = list(names) if len(names) <= MAX_NAMES else [*names[: MAX_NAMES - 1], f"{len(names) - MAX_NAMES + 1} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _distinct(texts: Any) -> list[str]:
    return list(dict.fromkeys(filter(None, texts)))
