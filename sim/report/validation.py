"""`mezzotint validate`: the error of a simulation against the same trace served live.

A small trace is served live in virtual time. Its models are then profiled and the trace is simulated with the profiles.
The simulation takes nothing from the live run but the sizes and the largest batch to profile. On a CPU all seconds are
processor time of this process, so that other load on the machine is no error of the simulator.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from mezzotint.backends.base import Asset
from mezzotint.backends.calibrate import Plan, grid
from mezzotint.backends.profile import file_name
from mezzotint.backends.profile import write as write_profile
from mezzotint.figures.page import number, percent, table
from mezzotint.figures.palette import COLOURS, house_style, panels
from mezzotint.figures.save import save_png
from mezzotint.files.atomic import atomic_files
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, assemble, replay, simulate, write

GPU = "here"
"""Name of the device at hand in the profiles of a validation."""


def validate(config: Mapping[str, Any], folder: Path, *, progress: bool = False) -> str:
    """Serve live, profile and simulate a trace; return the table of errors in Markdown and the files' paths.

    Args:
        config: the resolved configuration of the live run; its backend must be live.
        folder: receives ``live/`` and ``simulated/`` (run folders), ``profiles/`` and validation.{json,md,png}.

    Raises:
        ConfigError: the backend is not live. Errors of ``simulate`` and ``calibrate`` pass through.
    """
    from mezzotint.backends.calibrate.session import complete  # needs the live extra

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
        at = served[served.model == name] if (served.model == name).any() else served
        sizes = sorted({(int(w), int(h)) for w, h in zip(at.width, at.height, strict=True)})
        shapes = grid(sizes, _batches(backend.largest_batch(name)))
        addons = backend.add_ons(name)
        plan = Plan(
            model.spec,
            GPU,
            name,
            shapes,
            device=backend.place,
            warmup=2,
            repeats=5,
            steps_timed=10,
            controlnets=tuple(sorted(addons.in_line)),
            apart=addons.stepped_remote,
            lora_rank=addons.lora_rank,
        )
        profile = complete(plan, profiles, progress=progress, model=model).profile
        updates: dict[str, Any] = {}
        for side, max_images in backend.largest_cut(name).items():
            from mezzotint.backends.calibrate.patches import measure  # needs the live extra

            updates["patched"] = measure(model, sizes, side, max_images).fit()[0]
        if len(names) > 1:
            updates["load_s"] = backend.load(Asset("model", name, name)).seconds
        if updates:
            write_profile(profile.model_copy(update=updates), profiles / file_name(GPU, name))
    profiled = {"_target_": "mezzotint.backends.profiled.Profiled", "gpu": GPU, "folder": str(profiles)}
    simulated = simulate({**config, "backend": profiled}, progress=progress)
    write(simulated, folder / "simulated")
    device = f"{backend.place} (processor time)" if backend.place == "cpu" else backend.place
    facts = _compared(live, simulated, device)
    text = _text(facts)
    files = [folder / f"validation.{ending}" for ending in ("md", "json", "png")]
    with atomic_files(files, ConfigError) as (page, data, figure):
        page.write_text(f"# Validation\n\n{text}\n\n![latency](validation.png)\n", encoding="utf-8")
        data.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        save_png(_draw(live, simulated, facts), figure)
    return "\n".join([text, *map(str, files)])


def _batches(largest: int) -> list[int]:
    """Return the batch sizes to profile: powers of two below the largest that was served, and that one."""
    return sorted({1 << n for n in range(largest.bit_length())} | {largest})


def _compared(live: Outcome, simulated: Outcome, device: str) -> dict[str, Any]:
    """Return the content of validation.json: the requests, and the figures of both runs with their errors."""
    served, predicted = live.summary, simulated.summary
    pairs = [
        *(
            (f"latency {p} [s]", served["latency_s"][p], predicted["latency_s"][p])
            for p in ("mean", "p50", "p90", "p99")
        ),
        ("throughput [1/min]", served["throughput_rpm"], predicted["throughput_rpm"]),
        ("GPU-seconds", _gpu_s(live), _gpu_s(simulated)),
    ]
    if served["gpu"]["switches"] or predicted["gpu"]["switches"]:
        pairs += [
            ("model switches", served["gpu"]["switches"], predicted["gpu"]["switches"]),
            ("GPU-seconds of switches", served["gpu"]["switch_s"], predicted["gpu"]["switch_s"]),
        ]
    one, other = (
        outcome.requests.select(["model", "skipped"]).to_pandas().astype({"model": str})
        for outcome in (live, simulated)
    )
    return {
        "system": served["system"],
        "device": device,
        "requests": served["requests"]["arrived"],
        "hits_live": served["cache"]["hits"] or 0,
        "hits_simulated": predicted["cache"]["hits"] or 0,
        "same_plan": int((one == other).all(axis=1).sum()),
        "rows": [
            {"what": what, "live": float(a or 0), "simulated": float(b or 0), "error": b / a - 1 if a else None}
            for what, a, b in pairs
        ],
    }


def _text(facts: Mapping[str, Any]) -> str:
    head = (
        f"{facts['system']} on {facts['device']}, {facts['requests']} requests; "
        f"{facts['hits_live']} hits live, {facts['hits_simulated']} simulated; "
        f"{facts['same_plan']} requests ran the same model from the same step in both"
    )
    rows = [
        (row["what"], number(row["live"]), number(row["simulated"]), percent(row["error"], sign=True))
        for row in facts["rows"]
    ]
    return f"{head}\n\n{table(('', 'live', 'simulated', 'error'), rows, right=True)}"


def _gpu_s(outcome: Outcome) -> float:
    rows = outcome.requests.select(["load_s", "fetch_s", "denoise_s", "decode_s"]).to_pandas()
    return float(rows.sum().sum())


@house_style()
def _draw(live: Outcome, simulated: Outcome, facts: Mapping[str, Any]) -> Figure:
    figure, ((axes,),) = panels(1, width=7.5, height=4.2)
    for outcome, label, colour, style in (
        (live, "live", COLOURS[0], "-"),
        (simulated, "simulated", COLOURS[1], "--"),
    ):
        rows = outcome.requests.to_pandas().query("outcome == 'completed'")
        axes.ecdf(rows.finish_s - rows.arrival_s, label=label, color=colour, linestyle=style, linewidth=2)
    axes.set(xlabel="Latency, arrival to finish (s)", ylabel="Share of completed requests", ylim=(0, 1.02))
    axes.yaxis.set_major_formatter("{x:.0%}")
    error = percent(facts["rows"][0]["error"], sign=True)
    axes.set_title(f"{facts['system']}, {facts['requests']} requests: mean latency {error}")
    axes.legend()
    return figure
