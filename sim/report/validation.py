"""`mezzotint validate`: the error of a simulation against the same trace served live.

A small trace is served live in virtual time. Its models are then profiled and the trace is simulated with the profiles.
The simulation takes nothing from the live run but the sizes and the largest batch to profile. On a CPU all seconds are
processor time of this process, so that other load on the machine is no error of the simulator.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mezzotint.backends.base import weights_of
from mezzotint.backends.calibrate import Plan, grid
from mezzotint.backends.profile import file_name
from mezzotint.backends.profile import write as write_profile
from mezzotint.figures.page import number, percent, table
from mezzotint.figures.palette import COLOURS
from mezzotint.files.atomic import atomic_files, check_ours
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.metrics.header import header
from mezzotint.sim.report.figures.palette import SeriesStyle
from mezzotint.sim.report.interactive import Chart, Field, lines, picture, png
from mezzotint.sim.report.validation_page import validation_page
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, assemble, replay, simulate, write

GPU = "here"
"""Name of the device at hand in the profiles of a validation."""

HEAD = ("", "live", "simulated", "error")

STYLES = {"live": SeriesStyle(COLOURS[0], "-", "o"), "simulated": SeriesStyle(COLOURS[1], (0, (5, 1.5)), "s")}

_LATENCIES = ("mean", "p50", "p90", "p99")
_ON_GPU = ["load_s", "fetch_s", "denoise_s", "decode_s"]


def validate(config: Mapping[str, Any], folder: Path, *, progress: bool = False) -> str:
    """Serve live, profile and simulate a trace; return the table of errors in Markdown and the files' paths.

    Args:
        config: the resolved configuration of the live run; its backend must be live.
        folder: receives ``live/`` and ``simulated/`` (run folders), ``profiles/`` and validation.{html,md,json,png}.

    Raises:
        ConfigError: the backend is not live. Errors of ``simulate`` and ``calibrate`` pass through.
    """
    from mezzotint.backends.calibrate.session import complete  # needs the live extra

    check_ours(folder / "validation.md", ConfigError, "a page of a live validation", b"# Validation")
    settings = check(config)
    assembled = assemble(settings, progress=progress)
    backend: Any = assembled.engine.backend
    if not backend.live:
        raise ConfigError("backend: found a backend with profiled times, expected a live one; add backend=live")
    live = replay(settings, assembled, config, progress=progress)
    write(live, folder / "live")
    profiles = folder / "profiles"
    profiles.mkdir(exist_ok=True)
    rows = live.requests.to_pandas()
    served = rows.dropna(subset="model")
    names = backend.names()
    for name in names:
        model = backend.model(name)
        by_model = served[served.model == name] if (served.model == name).any() else served
        sizes = sorted({(int(w), int(h)) for w, h in zip(by_model.width, by_model.height, strict=True)})
        largest = backend.largest_batch(name)
        batches = sorted(
            {1 << power for power in range(largest.bit_length())} | {largest}
        )  # powers of two, and that one
        addons = backend.add_ons(name)
        plan = Plan(
            model.spec,
            GPU,
            name,
            grid(sizes, batches),
            device=backend.place,
            warmup=2,
            repeats=5,
            steps_timed=10,
            controlnets=tuple(sorted(addons.in_line)),
            apart=addons.stepped_remote,
            lora_rank=addons.lora_rank,
            patches=next(reversed(backend.largest_cut(name).items()), None),
        )
        profile = complete(plan, profiles, progress=progress, model=model).profile
        if len(names) > 1:
            load_s = backend.load(weights_of(name)).seconds
            write_profile(profile.model_copy(update={"load_s": load_s}), profiles / file_name(GPU, name))
    profiled = {"_target_": "mezzotint.backends.profiled.Profiled", "gpu": GPU, "folder": str(profiles)}
    simulated = simulate({**config, "backend": profiled}, progress=progress)
    write(simulated, folder / "simulated")
    device = f"{backend.place} (processor time)" if backend.place == "cpu" else backend.place
    facts = _compare(live, simulated, device)
    text = _text(facts)
    charts = _charts(live, simulated, facts)
    about = (("work", header(simulated.summary, config).work), ("compared", _describe_comparison(facts)))
    sent = validation_page(facts, charts, STYLES, [("Errors", HEAD, _rows(facts))], about)
    files = [folder / f"validation.{ending}" for ending in ("html", "md", "json", "png")]
    with atomic_files(files, ConfigError) as (html, page, data, figure):
        html.write_text(sent, encoding="utf-8")
        page.write_text(f"# Validation\n\n{text}\n\n![latency](validation.png)\n", encoding="utf-8")
        data.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        figure.write_bytes(png(picture(charts, STYLES)))
    return "\n".join([text, *map(str, files)])


def _compare(live: Outcome, simulated: Outcome, device: str) -> dict[str, Any]:
    """Return the content of validation.json: the requests, and the figures of both runs with their errors."""
    served, predicted = live.summary, simulated.summary
    rows = [outcome.requests.to_pandas().astype({"model": str}) for outcome in (live, simulated)]
    pairs = {f"latency {p} [s]": [summary["latency_s"][p] for summary in (served, predicted)] for p in _LATENCIES}
    pairs["throughput [1/min]"] = [served["throughput_rpm"], predicted["throughput_rpm"]]
    pairs["GPU-seconds"] = [float(requests[_ON_GPU].sum().sum()) for requests in rows]
    if served["gpu"]["switches"] or predicted["gpu"]["switches"]:
        pairs["model switches"] = [served["gpu"]["switches"], predicted["gpu"]["switches"]]
        pairs["GPU-seconds of switches"] = [served["gpu"]["switch_s"], predicted["gpu"]["switch_s"]]
    one, other = (requests[["model", "skipped"]] for requests in rows)
    return {
        "system": served["system"],
        "device": device,
        "requests": served["requests"]["arrived"],
        "hits_live": served["cache"]["hits"] or 0,
        "hits_simulated": predicted["cache"]["hits"] or 0,
        "same_plan": int((one == other).all(axis=1).sum()),
        "rows": [
            {"what": what, "live": float(a or 0), "simulated": float(b or 0), "error": b / a - 1 if a else None}
            for what, (a, b) in pairs.items()
        ],
    }


def _text(facts: Mapping[str, Any]) -> str:
    return f"{_describe_comparison(facts)}\n\n{table(HEAD, _rows(facts), right=True)}"


def _describe_comparison(facts: Mapping[str, Any]) -> str:
    """Return what was compared."""
    return (
        f"{facts['system']} on {facts['device']}, {facts['requests']} requests; "
        f"{facts['hits_live']} hits live, {facts['hits_simulated']} simulated; "
        f"{facts['same_plan']} requests ran the same model from the same step in both"
    )


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (row["what"], number(row["live"]), number(row["simulated"]), percent(row["error"], sign=True))
        for row in facts["rows"]
    ]


def _charts(live: Outcome, simulated: Outcome, facts: Mapping[str, Any]) -> list[Chart]:
    """Return the cumulative latency of both runs."""
    curves = []
    for outcome, name in ((live, "live"), (simulated, "simulated")):
        rows = outcome.requests.to_pandas().query("outcome == 'completed'")
        latency = (rows.finish_s - rows.arrival_s).sort_values()
        share = latency.rank(method="first") / len(latency)
        curves.append(pd.DataFrame({"series": name, "latency_s": latency, "share": share}))
    x = Field("latency_s", "Latency, arrival to finish (s)")
    y = Field("share", "Share of completed requests", ".0~%", domain=(0.0, 1.0))
    error = percent(facts["rows"][0]["error"], sign=True)
    title = f"{facts['system']}, {facts['requests']} requests: mean latency {error}"
    return [Chart(title, lines(pd.concat(curves), x, y, STYLES, sparse=False, along="y"))]
