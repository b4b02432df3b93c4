"""`mezzotint validate`: how far a simulation is from the real thing.

A small trace is served live in virtual time, all models are profiled, and the same trace is simulated with the profile.
The simulation sees nothing of the live run but the sizes and the largest batch that are to be profiled. On a CPU all
seconds are processor time of this process, so that what else the machine does is no error of the simulator.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from backends.base import Asset
from backends.calibrate import Plan, grid
from backends.profile import write as write_profile
from conf.atomic import atomic_files
from conf.page import number, percent, table
from conf.palette import COLOURS, DPI, house_style, panels
from sim.core.errors import ConfigError
from sim.run.config.settings import check
from sim.run.simulate import Outcome, assemble, replay, simulate, write

GPU = "here"
"""What the device at hand is called in the profiles that are made for a validation."""


def validate(config: Mapping[str, Any], folder: Path, *, progress: bool = False) -> str:
    """Serve live, profile, simulate, compare; return the table of errors in Markdown and the paths of the files.

    Args:
        config: the resolved configuration of the live run; its backend must be live.
        folder: gets ``live/`` and ``simulated/`` (run directories), ``profiles/`` and validation.{json,md,png}.

    Raises ConfigError where the backend is not live, and whatever ``simulate`` and ``calibrate`` raise.
    """
    from backends.calibrate.session import complete  # needs the live extra

    settings = check(config)
    assembled = assemble(settings, progress=progress)
    backend: Any = assembled.engine.backend
    if not backend.live:
        raise ConfigError("backend: a validation serves live and finds a backend that only looks up; add backend=live")
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
        beside = backend.add_ons(name)
        plan = Plan(
            model.spec,
            GPU,
            name,
            shapes,
            device=backend.place,
            warmup=2,
            repeats=5,
            steps_timed=10,
            controlnets=tuple(sorted(beside.in_line)),
            apart=beside.stepped_remote,
            lora_rank=beside.lora_rank,
        )
        profile = complete(plan, profiles, progress=progress, model=model).profile
        more: dict[str, Any] = {}
        for side, most in backend.largest_cut(name).items():
            from backends.calibrate.patches import measure  # needs the live extra

            more["patched"] = measure(model, sizes, side, most).fit()[0]
        if len(names) > 1:
            more["load_s"] = backend.load(Asset("model", name, name)).seconds
        if more:
            write_profile(profile.model_copy(update=more), profiles / f"{GPU}_{name}.yaml")
    profiled = {"_target_": "backends.profiled.Profiled", "gpu": GPU, "folder": str(profiles)}
    simulated = simulate({**config, "backend": profiled}, progress=progress)
    write(simulated, folder / "simulated")
    device = f"{backend.place} (processor time)" if backend.place == "cpu" else backend.place
    facts = _compared(live, simulated, device)
    text = _text(facts)
    files = [folder / f"validation.{ending}" for ending in ("md", "json", "png")]
    with atomic_files(files, ConfigError) as (page, data, figure):
        page.write_text(f"# Validation\n\n{text}\n\n![latency](validation.png)\n", encoding="utf-8")
        data.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        _draw(live, simulated, facts).savefig(figure, format="png", dpi=DPI, metadata={"Software": None})
    return "\n".join([text, *map(str, files)])


def _batches(largest: int) -> list[int]:
    """Batches to profile: powers of two up to the largest that was served, and that one."""
    return sorted({1 << n for n in range(largest.bit_length())} | {largest})


def _compared(live: Outcome, simulated: Outcome, device: str) -> dict[str, Any]:
    """The content of validation.json: of how many requests, and figures of both runs with the error of each."""
    said, guessed = live.summary, simulated.summary
    pairs = [
        *((f"latency {p} [s]", said["latency_s"][p], guessed["latency_s"][p]) for p in ("mean", "p50", "p90", "p99")),
        ("throughput [1/min]", said["throughput_rpm"], guessed["throughput_rpm"]),
        ("GPU-seconds", _gpu_s(live), _gpu_s(simulated)),
    ]
    if said["gpu"]["switches"] or guessed["gpu"]["switches"]:
        pairs += [
            ("models loaded in the place of others", said["gpu"]["switches"], guessed["gpu"]["switches"]),
            ("GPU-seconds of that", said["gpu"]["switch_s"], guessed["gpu"]["switch_s"]),
        ]
    one, other = (
        outcome.requests.select(["model", "skipped"]).to_pandas().astype({"model": str})
        for outcome in (live, simulated)
    )
    return {
        "system": said["system"],
        "device": device,
        "requests": said["requests"]["arrived"],
        "hits_live": said["cache"]["hits"] or 0,
        "hits_simulated": guessed["cache"]["hits"] or 0,
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
        f"{facts['same_plan']} ran on the same model from the same step"
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
        (live, "served live", COLOURS[0], "-"),
        (simulated, "simulated", COLOURS[1], "--"),
    ):
        rows = outcome.requests.to_pandas().query("outcome == 'completed'")
        axes.ecdf(rows.finish_s - rows.arrival_s, label=label, color=colour, linestyle=style, linewidth=2)
    axes.set(xlabel="Latency, arrival to finish (s)", ylabel="Completed requests no slower", ylim=(0, 1.02))
    axes.yaxis.set_major_formatter("{x:.0%}")
    error = percent(facts["rows"][0]["error"], sign=True)
    axes.set_title(f"{facts['system']}, {facts['requests']} requests: mean latency {error}")
    axes.legend()
    return figure
