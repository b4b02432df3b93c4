"""`mezzotint validate --measured`: the error of a simulation against the result of a benchmark of the real server.

The measured arrivals are replayed through the simulated system. A result of aggregates has no arrivals, so it is
compared with a run of the arrivals that the configuration names.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mezzotint.figures.page import DASH, number, percent, render
from mezzotint.figures.palette import COLOURS
from mezzotint.files.atomic import atomic_files, check_ours, output_folder
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.measured.replay import (
    SEEDS,
    TOLERANCE,
    Fit,
    Replay,
    find_scale,
    measured_frame,
    relative,
    replay_seeds,
    replay_with,
    with_factor,
    with_handling,
)
from mezzotint.sim.fit.measured.statistics import SHARES, closed_loop, spread, statistics
from mezzotint.sim.metrics.header import header
from mezzotint.sim.report.figures.palette import SeriesStyle
from mezzotint.sim.report.interactive import Chart, Field, Limit, lines, picture, png, points
from mezzotint.sim.report.validation_page import Table, validation_page
from mezzotint.sim.run.simulate import write
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.trace import write as write_trace

TRACE = "measured.parquet"
"""The measured requests in the folder of a validation, as a trace that `mezzotint run trace=file` replays."""

TITLE = "# A simulation against a measured result"

MAX_POINTS = 2000
"""Points of the figure of differences; of more requests, evenly spaced ones."""

STYLES = {"measured": SeriesStyle(COLOURS[0], "-", "o"), "simulated": SeriesStyle(COLOURS[1], (0, (5, 1.5)), "s")}


def validate_measured(
    config: dict[str, Any], results: Sequence[Trace | dict[str, float]], files: Sequence[Path], what: Fit, folder: Path
) -> str:
    """Simulate what a benchmark measured; return the table of errors in Markdown and the files' paths.

    Args:
        config: the resolved configuration; the trace of a result with requests takes the place of its own.
        results: what `open_result` returns for each of ``files``. The first is compared, the others are repetitions of
            the same run and give its spread.
        what: what is fitted to the first result.
        folder: receives ``simulated/`` (a run folder), the measured requests, and validation.{html,md,json,png}.

    Raises:
        ConfigError: the fit needs requests and the result has aggregates alone, or the files cannot be written. Errors
            of ``simulate`` pass through.
    """
    first, *others = results
    page, data, figure, html = (folder / f"validation.{ending}" for ending in ("md", "json", "png", "html"))
    output_folder(folder, ConfigError)
    band: Mapping[str, Sequence[float]] | None
    check_ours(page, ConfigError, "a page of validate --measured", TITLE.encode())
    if isinstance(first, Trace):
        stored = write_trace(first, folder / TRACE)
        config = {**config, "trace": {**config["trace"], "path": str(stored.path)}}
        config, replay, fitted = replay_with(config, first, what, folder)
        truth = statistics(*replay.target())
        band = spread(replay.target()[1]) if not others else None
    else:
        config, replay, fitted = _replay_aggregates(config, first, what)
        truth, band = first, _band(replay)
    write(replay.outcome, folder / "simulated")
    repeats = [_statistics(other) for other in others]
    facts = _facts(first, files, replay, truth, band, repeats) | {"fit": what, "fitted": fitted}
    facts["needed"] = _needed_changes(config, replay, truth, is_scaled=what == "scale")
    text, charts = _text(facts), _charts(replay, truth)
    about = (("work", header(replay.outcome.summary, config).work), ("real server", _describe_comparison(facts)))
    sent = validation_page(facts, charts, STYLES, _tables(facts), about, _remarks(facts))
    with atomic_files([page, data, figure, html], ConfigError) as (markdown, plain, image, shown_page):
        markdown.write_text(text, encoding="utf-8")
        plain.write_text(json.dumps(facts, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        image.write_bytes(png(picture(charts, STYLES)))
        shown_page.write_text(sent, encoding="utf-8")
    shown = text.partition("\n\n![")[0].partition("\n\n")[2] + text.partition(".png)")[2].rstrip()
    return "\n".join([shown, "", *map(str, (html, page, data, figure))])


def _replay_aggregates(
    config: dict[str, Any], truth: Mapping[str, float], what: Fit
) -> tuple[dict[str, Any], Replay, dict[str, Any]]:
    """Simulate the arrivals of the configuration, with a scale fitted to the measured mean if asked for."""
    if what in ("quiet", "handling"):
        raise ConfigError(
            f"--fit {what}: the result has aggregates alone, expected one that lists the requests (AIPerf's"
            " profile_export.jsonl, vllm bench serve --save-detailed, or a trace with latency_s); use --fit scale"
        )
    replay = replay_seeds(config)
    if what == "none":
        return config, replay, {}
    scaled = find_scale(config, replay, truth["mean"])
    if scaled is None:
        raise ConfigError(
            f"--fit scale: no factor brings the mean latency to {truth['mean']:.4g} s; check the arrivals"
        )
    return with_factor(config, scaled[0]), scaled[1], {"service_factor": scaled[0]}


def _band(replay: Replay) -> dict[str, Sequence[float]] | None:
    """Return the lowest and highest figure over the seeds of the arrivals; None if no seed changes them."""
    runs = replay.by_seed()
    if len(runs) < 2:
        return None
    return {name: (min(run[name] for run in runs), max(run[name] for run in runs)) for name in runs[0]}


def _statistics(result: Trace | Mapping[str, float]) -> Mapping[str, float]:
    if not isinstance(result, Trace):
        return result
    rows = measured_frame(result).dropna()
    return statistics(rows["arrival_s"].to_numpy(), rows["latency_s"].to_numpy())


def _facts(
    result: Trace | Mapping[str, float],
    files: Sequence[Path],
    replay: Replay,
    truth: Mapping[str, float],
    band: Mapping[str, Sequence[float]] | None,
    repeats: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """Return the content of validation.json but for what is fitted."""
    summary, simulated = replay.outcome.summary, replay.statistics()
    errors = relative(simulated, truth)
    rows = []
    for name in ("mean", *SHARES, "throughput"):
        if name not in truth or name not in simulated:
            continue
        low, high = (band or {}).get(name, (None, None))
        again = [other[name] for other in repeats if name in other]
        if again:
            low, high = min(truth[name], *again), max(truth[name], *again)
        judged = truth if replay.others else simulated  # the spread is that of the other side
        is_inside = None if low is None or high is None else low <= judged[name] <= high
        row = {"what": name, "measured": truth[name], "simulated": simulated[name], "error": errors.get(name)}
        rows.append(row | {"low": low, "high": high, "inside": is_inside})
    about: dict[str, Any] = {
        "client": "aggregates",
        "clients": None,
        "measured_requests": truth.get("requests"),
        "skipped": {"failed": int(failed)} if (failed := truth.get("failed")) else {},
    }
    client = result.notes.get("client", {}) if isinstance(result, Trace) else result
    about["contradictions"] = [] if replay.is_paired else _contradictions(client, replay.outcome.config["arrivals"])
    if isinstance(result, Trace):
        skipped = {why: count for why, count in result.notes.get("skipped", {}).items() if count}
        about |= {"client": result.source, "measured_requests": len(result), "skipped": skipped}
        about["images"] = sorted(set(result.column("images").tolist()))
        seen = measured_frame(result).dropna()
        about["clients"] = closed_loop(seen["arrival_s"].to_numpy(), seen["latency_s"].to_numpy())
    kinds = " + ".join(f"{count} x {kind}" for kind, count in _gpus(replay.outcome.config).items())
    return {
        "system": summary["system"],
        "gpus": kinds,
        "file": files[0].name,
        **about,
        "requests": len(replay.requests),
        "paired": replay.is_paired,
        "spread": "repetition" if repeats else None if band is None else "seeds" if replay.others else "bootstrap",
        "rows": rows,
    }


def _contradictions(client: Mapping[str, float], arrivals: Mapping[str, Any]) -> list[str]:
    """Return how the simulated arrivals differ from what a client says of its own (`client_of`), a sentence each."""
    said = []
    max_in_flight, sent_rpm = client.get("max_in_flight"), client.get("sent_rpm")
    outstanding, rate_rpm = arrivals.get("outstanding"), arrivals.get("rate_rpm")
    if max_in_flight is not None and outstanding != max_in_flight:
        simulated = "no such bound" if outstanding is None else f"{outstanding} in flight"
        said.append(
            f"The client had at most {max_in_flight:g} requests in flight (max_concurrency), and the simulated arrivals"
            f" have {simulated}: compare with arrivals=closed arrivals.outstanding={max_in_flight:g}."
        )
    if sent_rpm == math.inf:
        if max_in_flight is None and (rate_rpm is not None or outstanding is not None):
            said.append(
                "The client sent all requests at once (request_rate), and the simulated arrivals do not: compare with"
                " arrivals=saturation arrivals.gap_s=0."
            )
    # Without a rate in the simulation, the bound in flight may stand for the client's.
    elif sent_rpm is not None and (max_in_flight is None if rate_rpm is None else not math.isclose(rate_rpm, sent_rpm)):
        simulated = "have no rate" if rate_rpm is None else f"are {rate_rpm:g} a minute"
        said.append(
            f"The client sent {sent_rpm:g} requests a minute (request_rate), and the simulated arrivals {simulated}:"
            f" compare with arrivals=poisson arrivals.rate_rpm={sent_rpm:g}."
        )
    return said


def _gpus(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of GPUs by kind."""
    cluster = config["cluster"]
    pools = cluster.get("pools") or [cluster]
    counts: dict[str, int] = {}
    for pool in pools.values() if isinstance(pools, dict) else pools:
        gpu = pool.get("gpu") or {}
        name = str(gpu.get("name") if isinstance(gpu, dict) else gpu)
        counts[name] = counts.get(name, 0) + int(pool.get("count", 1))
    return counts


def _needed_changes(
    config: Mapping[str, Any], replay: Replay, truth: Mapping[str, float], *, is_scaled: bool
) -> list[dict[str, Any]]:
    """Return the changes that would bring the mean to the measured one, with the errors that are then left."""
    needed = []
    backend = config["backend"]
    if not is_scaled and isinstance(backend, dict) and "service_factor" in backend:
        scaled = find_scale(config, replay, truth["mean"])
        if scaled is not None:
            errors = relative(scaled[1].statistics(), truth)
            needed.append({"change": "service seconds x", "value": scaled[0], "errors": errors})
    missing_s = truth["mean"] - replay.statistics()["mean"]
    if missing_s > TOLERANCE * truth["mean"] and replay.is_paired:
        handled = with_handling(config, missing_s)
        errors = relative(replay.rerun(handled).statistics(), truth)
        needed.append({"change": "handling [s]", "value": handled["handling"]["after_s"], "errors": errors})
    return needed


def _text(facts: Mapping[str, Any]) -> str:
    """Return the page in Markdown."""
    (_, head, rows), (_, needed_head, needed) = _tables(facts)
    return render(
        "mezzotint.sim.fit.measured",
        "page.md.jinja",
        compared=_describe_comparison(facts),
        head=head,
        rows=rows,
        remarks=_remarks(facts),
        needed_head=needed_head,
        needed=needed,
    )


def _describe_comparison(facts: Mapping[str, Any]) -> str:
    """Return what was compared in a sentence or two."""
    against = f"{facts['system']} on {facts['gpus']}, against {facts['file']} ({facts['client']})"
    return f"{against}: {facts['requests']} requests compared. {_describe_fit(facts)}"


def _tables(facts: Mapping[str, Any]) -> tuple[Table, Table]:
    """Return the table of errors, and that of the changes that would bring the mean to the measured one."""
    rows = []
    for row in facts["rows"]:
        unit = " [1/min]" if row["what"] == "throughput" else " [s]"
        band = DASH if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"
        inside = {True: "yes", False: "no", None: DASH}[row["inside"]]
        values = (number(row["measured"]), band, number(row["simulated"]), percent(row["error"], sign=True), inside)
        rows.append((f"{row['what']}{unit}", *values))
    spread_of = {"repetition": "measured again", "seeds": "simulated, by seed"}.get(facts["spread"], "repetition")
    names = [row["what"] for row in facts["rows"]]
    needed = [
        (one["change"], number(one["value"]), *(percent(one["errors"].get(name), sign=True) for name in names))
        for one in facts["needed"]
    ]
    head = ("", "measured", spread_of, "simulated", "error", "in the spread")
    needed_head = ("", "needed", *(f"{name} then" for name in names))
    return ("Errors", head, rows), ("What would have to be true", needed_head, needed)


def _describe_fit(facts: Mapping[str, Any]) -> str:
    fitted = facts["fitted"]
    if facts["fit"] == "scale":
        return f"Fitted: one factor of the service seconds, {number(fitted['service_factor'])}, to the mean latency."
    if facts["fit"] == "quiet":
        return (
            f"Fitted: the service seconds by size and steps, to the {fitted['quiet_requests']} requests that began when"
            " no other was in flight. Their handling counts as service."
        )
    if facts["fit"] == "handling":
        return (
            f"Fitted: {number(fitted['handling_s'])} s of handling, which hold no GPU, to the requests that began when"
            " no other was in flight (handling.after_s)."
        )
    return "Nothing is fitted to it."


def _remarks(facts: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know beside the table."""
    remarks = []
    if facts["spread"] == "bootstrap":
        remarks.append(
            "The spread of a repetition is an assumption: the 95 % interval over resampled blocks of consecutive"
            " requests of this one run. A second --measured file gives the real difference."
        )
    if facts["spread"] == "repetition":
        remarks.append("The spread is the lowest and highest figure over the files that were named.")
    if facts["spread"] == "seeds":
        remarks.append(
            f"Arrivals are drawn, so the simulated figure is the average of {SEEDS} seeds, and the spread is that of"
            " the seeds: a measured figure inside it does not contradict the simulation."
        )
    if facts["skipped"]:
        words = ", ".join(f"{count:,} {why}" for why, count in facts["skipped"].items())
        remarks.append(f"Not replayed: {words}. They loaded the server all the same.")
    if facts["fit"] == "quiet" and len(facts["images"]) > 1:
        remarks.append("Requests ask for different numbers of images, which the fitted seconds do not tell apart.")
    if facts["paired"] and facts["clients"]:
        remarks.append(
            f"The client was a closed loop of {facts['clients']}: its arrivals follow the server's answers, so the"
            " replayed ones hide an error of the service. Compare with"
            f" arrivals=closed arrivals.outstanding={facts['clients']} too."
        )
    if not facts["paired"]:
        remarks.append(
            "The simulated arrivals are the configuration's and not the result's, so requests are not compared one by"
            " one."
        )
    remarks.extend(facts["contradictions"])
    known = facts["measured_requests"]
    if known is not None and known != facts["requests"]:
        remarks.append(f"The result has {known:,.0f} requests; {facts['requests']:,} of the simulation are compared.")
    return remarks


def _charts(replay: Replay, truth: Mapping[str, float]) -> list[Chart]:
    """Return the differences over time of paired requests, and the cumulative latencies of both sides."""
    rows, charts = replay.requests, []
    if replay.is_paired:
        step = -(-len(rows) // MAX_POINTS)
        shown = rows.sort_values("arrival_s").iloc[::step]
        frame = shown[["arrival_s"]].assign(series="simulated", difference_s=shown["latency_s"] - shown["measured_s"])
        low, high = min(0.0, frame["difference_s"].min()), max(0.0, frame["difference_s"].max())
        x = Field("arrival_s", "Arrival (s)")
        y = Field("difference_s", "Simulated minus measured latency (s)", ".3~g", domain=(low, high))
        charts.append(
            Chart("Difference of each request", points(frame, x, y, STYLES, limits=[Limit(0.0, "no difference")]))
        )
        curves = [_curve("measured", rows["measured_s"])]
    elif replay.measured is not None:
        curves = [_curve("measured", replay.measured["latency_s"].dropna())]
    else:
        known = {share: truth[name] for name, share in SHARES.items() if name in truth}
        curves = [pd.DataFrame({"series": "measured", "latency_s": list(known.values()), "share": list(known)})]
    curves.append(_curve("simulated", rows["latency_s"]))
    x = Field("latency_s", "Latency, arrival to answer (s)")
    y = Field("share", "Share of requests", ".0~%", domain=(0.0, 1.0))
    drawn = lines(pd.concat(curves), x, y, STYLES, sparse=False, along="y")
    return [*charts, Chart("Latency", drawn)]


def _curve(series: str, latency_s: "pd.Series[float]") -> pd.DataFrame:
    ordered = np.sort(latency_s.to_numpy())
    rows = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), MAX_POINTS)).round().astype(int))
    return pd.DataFrame({"series": series, "latency_s": ordered[rows], "share": (rows + 1) / len(ordered)})
