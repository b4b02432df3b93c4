"""The study: workload, machine and policy of each run, with nothing fitted; its errors, the figure and the page."""

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from mezzotint.sim.papers.runs import Point, composed
from mezzotint.sim.papers.study import RESULTS, Output, Results, Study, committed
from mezzotint.sim.papers.video.logs import MEASURES, LoggedRun, LogRow, VideoRuns, read_folder, statistics_of
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.table.trace import make

ORACLE = "tests/oracles/wan22_npu"

SOURCE = "the authors of HpSuda/vllm-omni (benchmarks/diffusion, July 2026, Apache-2.0) on 8 Ascend 910B2"
"""Where the logs of a clone are from."""

SEED = 42
"""Seed of the sizes and of the gaps between arrivals."""

SIZES, WEIGHTS = ("short", "medium", "long"), (0.15, 0.25, 0.6)
"""Sizes of the requests, and their weights."""

POLLING_S = 2.05
"""Seconds that a client, which polls, waits for a finished video; from the logs (e2e less all other columns)."""

FILE_S_PER_PIXEL = 57e-9
"""Seconds in which a pixel of a video is written to its file, on no NPU: 1.9, 2.8 and 4.2 s by size, from the columns
backend_s less scheduler_s of the 4 x 2 log. The NPUs run the next request meanwhile."""

CALIBRATED_S: Mapping[int, Mapping[str, float]] = {1: {"short": 110.7, "medium": 219.5, "long": 612.3}}
"""Seconds that the later schedulers believed, by parallel degree; of other degrees the profile's. Every pull in the
logs is the one that these seconds ask for."""

STEP_SHARES: Mapping[str, Sequence[float]] = {"long": (70.6, 70.8, 70.8, 35.3, 35.6, 36.8)}
"""Seconds of the steps of a size by index, for their shares; of other sizes the steps are equal. The mean over the two
tails of the 4 x 2 log, each preempted after every step: a step ends where the next normal request begins."""

UNKNOWN_S = 1e-3
"""Seconds of text encoder and VAE where the profile has none."""

MODEL, NPU = "wan2.2", "npu"

SERVER = (
    *("trace=mix", "arrivals=trace", f"models={MODEL}", "shapes=trace", "quality=alpha", "slo=[]", "sample_s=1e6"),
    *("cluster=local", f"cluster.gpu.name={NPU}", "estimates=table"),
)
"""Overrides of every run."""

LIMIT = 0.03
"""Error that the page counts as close."""

SAME_S = 1.5
"""Seconds within which two starts are the same: the polls of a log are not known to the second."""

BASELINE = "super_p95"
"""Policy that the others are compared with on the same machine and workload."""

COLUMNS = 3
"""Panels in a row of the figure."""

Floats = NDArray[np.float64]


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
    and named. Without DIR, a clone of the
    repository takes the logs that it holds.

    Raises:
        ConfigError: a file cannot be read or written, no run can be replayed, or there is no DIR outside of a clone.
    """
    if folder is None:
        folder = committed(ORACLE, "logged runs")
        print(f"{ORACLE}: measured by {SOURCE}")
    return STUDY.reproduce(lambda: measure(folder), output)


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
        gpu_s: seconds of a whole request on the NPUs by parallel degree.
        text_s, vae_s: seconds of encoding the prompt and of decoding in it.
        answer_s: seconds from its end on the NPUs to the answer.
        believed_s: seconds that the scheduler believes.
        shares: weights of its steps by index; empty if they are equal.
    """

    shape: Mapping[str, int]
    gpu_s: Mapping[int, float]
    text_s: float
    vae_s: float
    answer_s: float
    believed_s: float
    shares: Sequence[float] = ()

    @property
    def size(self) -> str:
        """The size as settings name it."""
        return size_text(self.shape["width"], self.shape["height"], self.shape["frames"])


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: a value of each request, in the order of arrival."""

    arrival_s: Floats
    start_s: Floats
    finish_s: Floats
    is_tail: NDArray[np.bool_]
    preemptions: NDArray[np.int_]

    @property
    def latency_s(self) -> Floats:
        """Seconds from arrival to answer."""
        return self.finish_s - self.arrival_s

    def against(self, run: LoggedRun) -> dict[str, dict[str, float]]:
        """Return the statistics by MEASURES, and their errors where ``run`` has them."""
        ours = statistics_of(self.latency_s, float(self.finish_s.max()))
        known = [name for name in MEASURES if name in run.measured]
        return {"ours": ours, "error": {name: ours[name] / run.measured[name] - 1 for name in known}}


def workload(requests: int, rate_rps: float) -> tuple[list[str], list[float]]:
    """Return the sizes and arrivals [s] of the runs, by Python's generator with SEED."""
    sizes = random.Random(SEED).choices(SIZES, WEIGHTS, k=requests)
    gaps, now_s, arrivals = random.Random(SEED), 0.0, []
    for _ in range(requests):
        arrivals.append(now_s)
        now_s += gaps.expovariate(rate_rps)
    return sizes, arrivals


def videos_of(content: VideoRuns, run: LoggedRun) -> dict[str, Video]:
    """Return the sizes with their seconds, as the scheduler of ``run`` believes them.

    The seconds of a size on the NPUs are the profile's mean, less POLLING_S where the profile has end-to-end seconds,
    less the seconds of its file.

    Raises:
        ConfigError: the profile lacks a size on some degree.
    """
    rows = {(row.usp_degree, row.size): row for row in content.profile}
    degrees = sorted({degree for degree, _ in rows if degree is not None})
    lacking = [f"on {degree} NPUs" for degree in {run.degree, *degrees} for size in SIZES if (degree, size) not in rows]
    if run.policy.estimates == "scheduler" and not set(SIZES) <= set(content.believed):
        lacking.append("without a usp_degree, which its scheduler believes")
    if lacking:
        raise ConfigError(f"{run.name}: found not every size {lacking[0]} in the profile; add the rows")

    def mean_s(seconds: Sequence[float | None]) -> float:
        known = [value for value in seconds if value is not None]
        return fmean(known) if known else UNKNOWN_S

    text_s, videos = mean_s([row.text_encoder_s for row in content.profile]), {}
    for size in SIZES:
        of_size = {degree: rows[degree, size] for degree in degrees}
        shape = {name: getattr(of_size[degrees[0]], name) for name in ("width", "height", "frames", "steps")}
        file_s = FILE_S_PER_PIXEL * shape["width"] * shape["height"] * shape["frames"]
        polled_s = {degree: 0.0 if "compute" in row.note else POLLING_S for degree, row in of_size.items()}
        gpu_s = {degree: row.e2e_mean_s - polled_s[degree] - file_s for degree, row in of_size.items()}
        calibrated_s = CALIBRATED_S.get(run.degree, {}).get(size, of_size[run.degree].e2e_mean_s)
        believed_s = content.believed[size] if run.policy.estimates == "scheduler" else calibrated_s
        vae_s, shares = mean_s([row.vae_decode_s for row in of_size.values()]), STEP_SHARES.get(size, ())
        videos[size] = Video(shape, gpu_s, text_s, vae_s, POLLING_S + file_s, believed_s, shares)
    return videos


def replay_run(videos: Mapping[str, Video], run: LoggedRun) -> Replayed:
    """Replay ``run`` on the profile's seconds, with the requests of its log, or else those of its seed."""
    sizes, arrivals_s = workload(run.requests, run.rate_rps)
    if run.log:
        sizes, arrivals_s = [row.size for row in run.log], [row.arrival_s for row in run.log]
    return simulate(run, [videos[size] for size in sizes], arrivals_s)


def replay_rules(videos: Mapping[str, Video], run: LoggedRun, *, equal_steps: bool) -> Replayed:
    """Replay the log of ``run`` on each request's own logged seconds: what differs then is the rules' doing.

    A preempted request, whose log has no seconds of its own, keeps the profile's.
    """
    requests = []
    for number, row in enumerate(run.log):
        video = videos[row.size]
        gpu_s, answer_s = _logged_s(row, video)
        gpu_s = video.gpu_s[run.degree] if gpu_s is None else gpu_s
        shape = {"width": 1000 + number, "height": 8, "frames": 1, "steps": video.shape["steps"]}
        of_degree, shares = {1: gpu_s, run.degree: gpu_s}, () if equal_steps else video.shares
        requests.append(Video(shape, of_degree, video.text_s, video.vae_s, answer_s, video.believed_s, shares))
    return simulate(run, requests, [row.arrival_s for row in run.log])


def _logged_s(row: LogRow, video: Video) -> tuple[float | None, float]:
    """Return the logged seconds on the NPUs, None where preemptions are in them, and those to the answer."""
    if row.served_s is None:
        return row.gpu_s, video.answer_s
    file_s = video.answer_s - POLLING_S
    gpu_s = row.served_s - file_s if row.gpu_s is None else row.gpu_s
    return None if row.preemptions else gpu_s, row.e2e_s - row.wait_s - (row.queue_s or 0.0) - row.served_s + file_s


def simulate(run: LoggedRun, requests: Sequence[Video], arrivals_s: Sequence[float]) -> Replayed:
    """Run the ``requests`` on the machine and under the policy of ``run``."""
    videos = {video.size: video for video in requests}
    ids = [f"request-{number:05d}" for number in range(len(requests))]
    columns = {name: [video.shape[name] for video in requests] for name in requests[0].shape}
    columns |= {"request_id": ids, "arrival_s": list(arrivals_s), "prompt": [""] * len(ids)}
    trace = make(columns, name="wan2.2", source="HpSuda/vllm-omni, benchmarks/diffusion")
    with tempfile.TemporaryDirectory() as folder:
        write_profile(_profile(list(videos.values())), Path(folder) / "npu.yaml")
        words = (
            *SERVER,
            *run.policy.overrides,
            f"cluster.count={run.groups * run.degree}",
            f"group_policy.degree={run.degree}",
            f"backend.folder={folder}",
            f"estimates.seconds={_mapping({size: video.believed_s for size, video in videos.items()})}",
            f"executor.handling_by_size={_mapping({size: video.answer_s for size, video in videos.items()})}",
        )
        engine = assemble(check(composed(Point("", {}, words))), trace=trace).engine
        engine.run()
    table = engine.record.request_columns
    arrival_s, start_s, finish_s = (np.asarray(table[f"{name}_s"], float) for name in ("arrival", "start", "finish"))
    return Replayed(arrival_s, start_s, finish_s, np.asarray(table["tail"]), np.asarray(table["pauses"]))


def _mapping(values: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {value!r}" for name, value in values.items()) + "}"


def _profile(videos: Sequence[Video]) -> Profile:
    def of_size(video: Video, **values: Any) -> dict[str, Any]:
        return {name: size for name, size in video.shape.items() if name != "steps"} | values

    def step(video: Video, degree: int) -> dict[str, Any]:
        steps_s = video.gpu_s[degree] - video.text_s - video.vae_s
        return of_size(video, seconds=steps_s / video.shape["steps"])

    degrees = sorted(videos[0].gpu_s)
    return Profile.model_validate(
        {
            "schema": 1,
            "model": MODEL,
            "gpu": NPU,
            "source": "HpSuda/vllm-omni (Apache-2.0), benchmarks/diffusion; step_shares fitted to the 4 x 2 log",
            "step": [step(video, degrees[0]) for video in videos],
            "gang_step": [
                step(video, degree) | {"gpus": degree} for degree in degrees if degree > 1 for video in videos
            ],
            "step_shares": [of_size(video, shares=list(video.shares)) for video in videos if video.shares],
            "text_encode": [{"seconds": videos[0].text_s}],
            "vae_decode": [of_size(video, seconds=video.vae_s) for video in videos],
        }
    )


def result(content: VideoRuns, run: LoggedRun) -> dict[str, Any]:
    """Replay ``run`` and compare it with what was measured."""
    videos = videos_of(content, run)
    ours = replay_run(videos, run)
    facts: dict[str, Any] = {
        "name": run.name,
        "groups": run.groups,
        "degree": run.degree,
        "requests": run.requests,
        "rate_rps": run.rate_rps,
        "policy": run.policy.name,
        "estimates": run.policy.estimates,
        "seconds": {
            size: {"believed": video.believed_s, "npus": video.gpu_s[run.degree], "answer": video.answer_s}
            for size, video in videos.items()
        },
        "measured": dict(run.measured),
        **ours.against(run),
        "preemptions": {"measured": run.preemptions, "ours": int(ours.preemptions.sum())},
    }
    return facts | (_of_log(videos, run, ours) if run.log else {})


def _of_log(videos: Mapping[str, Video], run: LoggedRun, ours: Replayed) -> dict[str, Any]:
    """Return every request of a log beside ours, and the replay on its own logged seconds."""
    rules, equal = (replay_rules(videos, run, equal_steps=equal_steps) for equal_steps in (False, True))
    normal = [number for number, row in enumerate(run.log) if row.queue == "normal" and not ours.is_tail[number]]
    return {
        "rules_alone": _of_rules(rules, run, normal),
        "equal_steps": _of_rules(equal, run, normal),
        "same_tails": [row.queue == "tail" for row in run.log] == ours.is_tail.tolist(),
        "each": [
            {
                "request": row.request,
                "size": row.size,
                "queue": row.queue,
                "measured_s": row.e2e_s,
                "ours_s": round(float(ours.latency_s[number]), 3),
                "rules_alone_s": round(float(rules.latency_s[number]), 3),
            }
            for number, row in enumerate(run.log)
        ],
    }


def _of_rules(rules: Replayed, run: LoggedRun, normal: Sequence[int]) -> dict[str, Any]:
    """Return how far a replay on the logged seconds is from the log."""
    start_s = np.array([row.arrival_s + row.wait_s for row in run.log])
    is_same = np.abs(rules.start_s - start_s) <= SAME_S
    return {
        **rules.against(run),
        "same_starts": int(is_same[normal].sum()),
        "normals": len(normal),
        "furthest_s": round(float(np.abs(rules.latency_s - [row.e2e_s for row in run.log]).max()), 3),
    }


def changes(runs: Sequence[Results]) -> Iterator[dict[str, Any]]:
    """Yield the change of p95 from BASELINE to each other policy of the same machine and workload."""
    for base in runs:
        for run in runs:
            is_pair = base["policy"] == BASELINE != run["policy"] and "each" not in run
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
    axes.axvspan(-100 * LIMIT, 100 * LIMIT, color=EDGE, alpha=0.1, linewidth=0)
    axes.axvline(0, color=EDGE, linewidth=0.8)
    names = [f"{run['groups']} x {run['degree']}, {run['requests']}, {run['policy']}" for run in runs]
    axes.set_yticks(range(len(runs)), names, fontsize=6)
    axes.invert_yaxis()
    axes.set(xlabel="error (%)", title="Simulated over measured")
    axes.legend(fontsize=7)


def values(facts: Results) -> Results:
    """Return the errors, and the constants of the replay."""
    return {
        "errors": [abs(error) for run in facts["runs"] for error in run["error"].values()],
        "cell": cell,
        "limit": LIMIT,
        "measures": MEASURES,
        "sizes": SIZES,
        "shares": STEP_SHARES,
        "polling_s": POLLING_S,
        "file_ns": 1e9 * FILE_S_PER_PIXEL,
    }


STUDY = Study("video", lambda _: {}, draw, values, lines)
