"""The study: workload, machine and policy of each run, with nothing fitted; its errors, the figure and the page."""

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tqdm import tqdm

from mezzotint.backends.base import BackendError, size_text
from mezzotint.backends.profile import Profile
from mezzotint.backends.profile import write as write_profile
from mezzotint.figures.page import percent
from mezzotint.figures.palette import COLOURS, EDGE, house_style, panels
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import Point, compose_point, to_override
from mezzotint.sim.papers.study import DATA, RESULTS, Output, Results, Study, committed, read_data
from mezzotint.sim.papers.video.logs import MEASURES, LoggedRun, LogRow, VideoRuns, read_folder, statistics_of
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.table.trace import make

ORACLE = "tests/oracles/wan22_npu"

SOURCE = "measured by the authors of HpSuda/vllm-omni (benchmarks/diffusion, July 2026, Apache-2.0) on 8 Ascend 910B2"
"""Where the logs of a clone are from."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The content of conf/data/video.yaml, which explains each."""

    seed: int
    weights: dict[str, float]
    polling_s: float
    file_s_per_pixel: float
    calibrated_s: dict[int, dict[str, float]]
    step_shares: dict[str, list[float]]
    unknown_s: float
    close: float
    same_s: float
    baseline: str
    overrides: list[str]


INPUTS: Inputs = read_data(DATA / "video.yaml", Inputs)

SIZES = list(INPUTS.weights)

COLUMNS = 3
"""Panels in a row of the figure."""

Columns = Mapping[str, NDArray[Any]]
"""A value of each request, in the order of arrival, by name."""


def replay(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help=f"folder of the runs' logs, profiles and statistics [default: {ORACLE}]"),
    ] = None,
    output: Output = RESULTS,
) -> int:
    """Replay logged runs of Wan2.2 on eight NPUs, and write video.md, .json and .svg.

    DIR holds a log per run, named as 4xusp2_n50_r0.05_costdamped.csv (groups x degree, requests, requests a second,
    policy), the profiles by parallel degree, and a table of published statistics. What cannot be replayed is skipped
    and named. Without DIR, a clone of the repository takes the logs that it holds.

    Raises:
        ConfigError: a file cannot be read or written, no run can be replayed, or there is no DIR outside of a clone.
    """
    logs = folder or committed(ORACLE, "logged runs", SOURCE)
    return STUDY.reproduce(lambda: measure(logs), output)


def measure(folder: Path) -> dict[str, Any]:
    """Replay every run of ``folder`` and return the content of the JSON file.

    A run that cannot be replayed is skipped.

    Raises:
        ConfigError: the folder cannot be read, or none of its runs be replayed.
    """
    content = read_folder(folder)
    done, skipped = [], list(content.skipped)
    for run in tqdm(content.runs, unit="run", desc=STUDY.name, disable=None):
        try:
            done.append(result(content, run))
        except (ConfigError, BackendError) as error:
            skipped.append(f"{run.name}, {run.policy.name}: {error}")
    if not done:
        raise ConfigError(f"{folder}: none of its runs can be replayed; the last is {skipped[-1]}")
    return {"folder": folder.name, "runs": done, "changes": list(changes(done)), "skipped": skipped}


@dataclass(frozen=True, slots=True)
class Video:
    """A kind of request, and what is known of its seconds.

    Attributes:
        shape: width, height, frames and steps.
        gpu_s: seconds of a whole request on the NPUs of a group.
        text_s, vae_s: seconds of encoding the prompt and of decoding in it.
        answer_s: seconds from its end on the NPUs to the answer.
        believed_s: seconds that the scheduler believes.
        shares: weights of its steps by index; empty if they are equal.
    """

    shape: Mapping[str, int]
    gpu_s: float
    text_s: float
    vae_s: float
    answer_s: float
    believed_s: float
    shares: Sequence[float]

    @property
    def size(self) -> str:
        """The size as settings name it."""
        return size_text(self.shape["width"], self.shape["height"], self.shape["frames"])


def workload(requests: int, rate_rps: float) -> tuple[list[str], list[float]]:
    """Return the sizes and arrivals [s] of the runs, by Python's generator."""
    sizes = random.Random(INPUTS.seed).choices(SIZES, [*INPUTS.weights.values()], k=requests)
    gaps, now_s, arrivals = random.Random(INPUTS.seed), 0.0, []
    for _ in range(requests):
        arrivals.append(now_s)
        now_s += gaps.expovariate(rate_rps)
    return sizes, arrivals


def videos_of(content: VideoRuns, run: LoggedRun) -> dict[str, Video]:
    """Return the sizes with their seconds, as the scheduler of ``run`` believes them.

    The seconds of a size on the NPUs are the profile's mean, less the client's polling where the profile has end-to-end
    seconds, less the seconds of its file.

    Raises:
        ConfigError: the profile lacks a size on the degree of the run.
    """
    rows = {row.size: row for row in content.profile if row.usp_degree == run.degree}
    believed_s = content.believed
    if run.policy.estimates == "calibrated":
        believed_s = {size: row.e2e_mean_s for size, row in rows.items()} | INPUTS.calibrated_s.get(run.degree, {})
    if lacking := [size for size in SIZES if size not in rows or size not in believed_s]:
        what = f"size {lacking[0]} on {run.degree} NPUs with what the scheduler believes of it (no usp_degree)"
        raise ConfigError(f"{run.name}: found no {what} in the profile; add the rows")

    def mean_s(column: str, sizes: Sequence[str]) -> float:
        seconds = [getattr(row, column) for row in content.profile if row.size in sizes]
        known = [value for value in seconds if value is not None]
        return fmean(known) if known else INPUTS.unknown_s

    videos = {}
    for size in SIZES:
        shape = {name: getattr(rows[size], name) for name in ("width", "height", "frames", "steps")}
        file_s = INPUTS.file_s_per_pixel * shape["width"] * shape["height"] * shape["frames"]
        worker_s = rows[size].e2e_mean_s - (0.0 if "compute" in rows[size].note else INPUTS.polling_s)
        videos[size] = Video(
            shape,
            gpu_s=worker_s - file_s,
            text_s=mean_s("text_encoder_s", SIZES),
            vae_s=mean_s("vae_decode_s", [size]),
            answer_s=INPUTS.polling_s + file_s,
            believed_s=believed_s[size],
            shares=INPUTS.step_shares.get(size, ()),
        )
    return videos


def replay_run(videos: Mapping[str, Video], run: LoggedRun) -> Columns:
    """Replay ``run`` on the profile's seconds, with the requests of its log, or else those of its seed."""
    sizes, arrivals_s = workload(run.num_requests, run.rate_rps)
    if run.log:
        sizes, arrivals_s = [row.size for row in run.log], [row.arrival_s for row in run.log]
    return simulate(run, [videos[size] for size in sizes], arrivals_s)


def replay_rules(videos: Mapping[str, Video], run: LoggedRun, *, equal_steps: bool) -> Columns:
    """Replay the log of ``run`` on each request's own logged seconds: what differs then is the rules' doing.

    A preempted request, whose log has no seconds of its own, keeps the profile's.
    """
    requests = []
    for number, row in enumerate(run.log):
        video = videos[row.size]
        gpu_s, answer_s = _logged_s(row, video)
        requests.append(
            replace(
                video,
                shape={"width": 1000 + number, "height": 8, "frames": 1, "steps": video.shape["steps"]},
                gpu_s=video.gpu_s if gpu_s is None else gpu_s,
                answer_s=answer_s,
                shares=() if equal_steps else video.shares,
            )
        )
    return simulate(run, requests, [row.arrival_s for row in run.log])


def _logged_s(row: LogRow, video: Video) -> tuple[float | None, float]:
    """Return the logged seconds on the NPUs, None where preemptions are in them, and those to the answer."""
    if row.served_s is None:
        return row.gpu_s, video.answer_s
    file_s = video.answer_s - INPUTS.polling_s
    gpu_s = row.served_s - file_s if row.gpu_s is None else row.gpu_s
    return None if row.preemptions else gpu_s, row.e2e_s - row.wait_s - (row.queue_s or 0.0) - row.served_s + file_s


def simulate(run: LoggedRun, requests: Sequence[Video], arrivals_s: Sequence[float]) -> Columns:
    """Run the ``requests`` on the machine and under the policy of ``run``."""
    videos = {video.size: video for video in requests}
    ids = [f"request-{number:05d}" for number in range(len(requests))]
    shapes = {name: [video.shape[name] for video in requests] for name in requests[0].shape}
    columns = {"request_id": ids, "arrival_s": list(arrivals_s), "prompt": [""] * len(ids), **shapes}
    trace = make(columns, name="wan2.2", source="HpSuda/vllm-omni, benchmarks/diffusion")
    with tempfile.TemporaryDirectory() as folder:
        write_profile(_profile([*videos.values()], run.degree), Path(folder) / "npu.yaml")
        words = (
            *INPUTS.overrides,
            *run.policy.overrides,
            f"cluster.count={run.groups * run.degree}",
            f"group_policy.degree={run.degree}",
            f"backend.folder={folder}",
            f"estimates.seconds={to_override({size: video.believed_s for size, video in videos.items()})}",
            f"handling.by_size={to_override({size: video.answer_s for size, video in videos.items()})}",
        )
        engine = assemble(check(compose_point(Point("", {}, words))), trace=trace).engine
        engine.run()
    names = ("arrival_s", "start_s", "finish_s", "tail", "pauses")
    replayed = {name: np.asarray(engine.record.request_columns[name]) for name in names}
    return replayed | {"latency_s": replayed["finish_s"] - replayed["arrival_s"]}


def _profile(videos: Sequence[Video], degree: int) -> Profile:
    sides = ("width", "height", "frames")
    sizes: list[dict[str, Any]] = [{side: video.shape[side] for side in sides} for video in videos]
    steps_s = [(video.gpu_s - video.text_s - video.vae_s) / video.shape["steps"] for video in videos]
    steps = [size | {"seconds": step_s} for size, step_s in zip(sizes, steps_s, strict=True)]
    shares = [size | {"shares": [*video.shares]} for size, video in zip(sizes, videos, strict=True) if video.shares]
    return Profile.model_validate(
        {
            "schema": 1,
            "model": "wan2.2",
            "gpu": "npu",
            "source": "HpSuda/vllm-omni (Apache-2.0), benchmarks/diffusion; step_shares fitted to the 4 x 2 log",
            "step": steps,
            "gang_step": [step | {"gpus": degree} for step in steps if degree > 1],
            "step_shares": shares,
            "text_encode": [{"seconds": videos[0].text_s}],
            "vae_decode": [size | {"seconds": video.vae_s} for size, video in zip(sizes, videos, strict=True)],
        }
    )


def against(ours: Columns, run: LoggedRun) -> dict[str, dict[str, float]]:
    """Return the statistics of a replay by MEASURES, and their errors where ``run`` has them."""
    statistics = statistics_of(ours["latency_s"], float(ours["finish_s"].max()))
    return {
        "ours": statistics,
        "error": {name: statistics[name] / measured - 1 for name, measured in run.measured.items()},
    }


def result(content: VideoRuns, run: LoggedRun) -> dict[str, Any]:
    """Replay ``run`` and compare it with what was measured."""
    videos = videos_of(content, run)
    ours = replay_run(videos, run)
    facts: dict[str, Any] = {
        "name": run.name,
        "groups": run.groups,
        "degree": run.degree,
        "requests": run.num_requests,
        "rate_rps": run.rate_rps,
        "policy": run.policy.name,
        "estimates": run.policy.estimates,
        "seconds": {
            size: {"believed": video.believed_s, "npus": video.gpu_s, "answer": video.answer_s}
            for size, video in videos.items()
        },
        "measured": run.measured,
        **against(ours, run),
        "preemptions": {"measured": run.preemptions, "ours": int(ours["pauses"].sum())},
    }
    return facts | (_of_log(videos, run, ours) if run.log else {})


def _of_log(videos: Mapping[str, Video], run: LoggedRun, ours: Columns) -> dict[str, Any]:
    """Return every request of a log beside ours, and the replay on its own logged seconds."""
    rules, equal = (replay_rules(videos, run, equal_steps=equal_steps) for equal_steps in (False, True))
    normal = [number for number, row in enumerate(run.log) if row.queue == "normal" and not ours["tail"][number]]
    return {
        "rules_alone": _of_rules(rules, run, normal),
        "equal_steps": _of_rules(equal, run, normal),
        "same_tails": [row.queue == "tail" for row in run.log] == ours["tail"].tolist(),
        "each": [
            {
                "request": row.request,
                "size": row.size,
                "queue": row.queue,
                "measured_s": row.e2e_s,
                "ours_s": round(float(ours["latency_s"][number]), 3),
                "rules_alone_s": round(float(rules["latency_s"][number]), 3),
            }
            for number, row in enumerate(run.log)
        ],
    }


def _of_rules(rules: Columns, run: LoggedRun, normal: Sequence[int]) -> dict[str, Any]:
    """Return how far a replay on the logged seconds is from the log."""
    start_s = np.array([row.arrival_s + row.wait_s for row in run.log])
    is_same = np.abs(rules["start_s"] - start_s) <= INPUTS.same_s
    return {
        **against(rules, run),
        "same_starts": int(is_same[normal].sum()),
        "normals": len(normal),
        "furthest_s": round(float(np.abs(rules["latency_s"] - [row.e2e_s for row in run.log]).max()), 3),
    }


def changes(runs: Sequence[Results]) -> Iterator[dict[str, Any]]:
    """Yield the change of p95 from the baseline to each other policy of the same machine and workload."""
    for base in runs:
        for run in runs:
            is_pair = base["policy"] == INPUTS.baseline != run["policy"] and "each" not in run
            is_same = all(run[key] == base[key] for key in ("groups", "degree", "requests", "rate_rps"))
            if is_pair and is_same and "p95" in run["measured"] and "p95" in base["measured"]:
                change = {of: run[of]["p95"] / base[of]["p95"] - 1 for of in ("measured", "ours")}
                yield {"name": run["name"], "policy": run["policy"], "estimates": run["estimates"]} | change


def cell(facts: Results, name: str) -> str:
    """Return a statistic with its error."""
    error = f" ({percent(facts['error'][name], 2, True)})" if name in facts["error"] else ""
    return f"{facts['ours'][name]:,.1f} s{error}"


def lines(facts: Results) -> Iterator[str]:
    """Yield each run with its statistics, and what was skipped."""
    for run in facts["runs"]:
        pauses = run["preemptions"]
        measured = "" if pauses["measured"] is None else f" (measured {pauses['measured']})"
        statistics = ", ".join(f"{name} {cell(run, name)}" for name in MEASURES)
        yield f"{run['name']}, {run['policy']}: {statistics}; {pauses['ours']} preemptions{measured}"
    yield from (f"skipped: {reason}" for reason in facts["skipped"])
    yield f"{len(facts['runs'])} runs replayed, {len(facts['skipped'])} skipped"


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw each request of each log beside the real one, then the errors of all runs."""
    logs = [run for run in facts["runs"] if "each" in run]
    rows, columns = -(-(len(logs) + 1) // COLUMNS), min(COLUMNS, len(logs) + 1)
    figure, grid = panels(columns, rows, width=4.2 * columns, height=4.2 * rows, share_y=False)
    places = iter(grid.ravel())
    for run in logs:
        _draw_requests(next(places), run)
    _draw_errors(next(places), facts["runs"])
    for axes in places:
        axes.set_axis_off()
    return {"": figure}


def _draw_requests(axes: Axes, run: Results) -> None:
    largest = max(max(request["measured_s"], request["ours_s"]) for request in run["each"])
    axes.plot([0, largest], [0, largest], color=EDGE, linewidth=0.8)
    for size, colour in zip(SIZES, COLOURS, strict=False):
        for queue, marker, points in (("normal", "o", 4), ("tail", "D", 6)):
            chosen = [request for request in run["each"] if (request["size"], request["queue"]) == (size, queue)]
            x, y = ([request[key] for request in chosen] for key in ("measured_s", "ours_s"))
            label = f"{size}{', tail' if queue == 'tail' else ''}" if chosen else None
            axes.plot(x, y, marker, color=colour, markersize=points, alpha=0.8, label=label)
    axes.set(xlabel="measured latency (s)", ylabel="simulated (s)", title=run["name"])
    axes.legend(loc="upper left", fontsize=7)


def _draw_errors(axes: Axes, runs: Sequence[Results]) -> None:
    for name, colour in zip(MEASURES, COLOURS, strict=False):
        points = [(100 * run["error"][name], row) for row, run in enumerate(runs) if name in run["error"]]
        axes.plot([error for error, _ in points], [row for _, row in points], "o", color=colour, label=name)
    axes.axvspan(-100 * INPUTS.close, 100 * INPUTS.close, color=EDGE, alpha=0.1, linewidth=0)
    axes.axvline(0, color=EDGE, linewidth=0.8)
    names = [f"{run['groups']} x {run['degree']}, {run['requests']}, {run['policy']}" for run in runs]
    axes.set_yticks(range(len(runs)), names, fontsize=6)
    axes.invert_yaxis()
    axes.set(xlabel="error (%)", title="Simulated over measured")
    axes.legend(fontsize=7)


def values(facts: Results) -> Results:
    """Return the errors, and the constants of the replay."""
    errors = [abs(error) for run in facts["runs"] for error in run["error"].values()]
    return {"errors": errors, "cell": cell, "measures": MEASURES, "inputs": INPUTS}


STUDY = Study("video", lambda _: {}, draw, values, lines)
