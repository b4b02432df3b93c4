"""Replay of logged runs of Wan2.2 on eight NPUs: workload, machine and policy, with nothing fitted."""

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.base import size_text
from mezzotint.backends.profile import GroupPoint, Profile, StepShares, Timing
from mezzotint.backends.profile import Point as At
from mezzotint.backends.profile import write as write_profile
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import Point, composed
from mezzotint.sim.papers.video.rows import LoggedRun, LogRow, ProfileRow, VideoRuns, statistics_of
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.table.trace import Trace, make

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

MODEL, NPU = "wan2.2", "npu"

SERVER = (
    *("trace=mix", "arrivals=trace", f"models={MODEL}", "shapes=trace", "quality=alpha", "slo=[]", "sample_s=1e6"),
    *("cluster=local", f"cluster.gpu.name={NPU}", "estimates=table"),
)
"""Overrides of every run."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Video:
    """A kind of request, and what is known of its seconds.

    Attributes:
        width, height, frames, steps: its shape.
        gpu_s: seconds of a whole request by parallel degree.
        vae_s: seconds of decoding in it.
        answer_s: seconds from its end on the NPUs to the answer.
        believed_s: seconds that the scheduler believes.
        shares: weights of its steps by index; empty if they are equal.
    """

    width: int
    height: int
    frames: int
    steps: int
    gpu_s: Mapping[int, float]
    vae_s: float
    answer_s: float
    believed_s: float
    shares: Sequence[float] = ()

    @property
    def size(self) -> str:
        """The size as settings name it."""
        return size_text(self.width, self.height, self.frames)


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

    @property
    def statistics(self) -> dict[str, float]:
        """The statistics by MEASURES."""
        return statistics_of(self.latency_s, float(self.finish_s.max()))


def workload(requests: int, rate_rps: float) -> tuple[list[str], list[float]]:
    """Return the sizes and arrivals [s] of the runs, by Python's generator with SEED."""
    sizes = random.Random(SEED).choices(SIZES, WEIGHTS, k=requests)
    gaps, now_s, arrivals = random.Random(SEED), 0.0, []
    for _ in range(requests):
        arrivals.append(now_s)
        now_s += gaps.expovariate(rate_rps)
    return sizes, arrivals


@dataclass(slots=True)
class Machine:
    """The NPUs by a folder's profile.

    The seconds of a size on the NPUs are the profile's mean, less POLLING_S where the profile has end-to-end seconds,
    less the seconds of its file. The steps of a size take them by ``shares``, or evenly.

    Raises:
        ConfigError: the profile lacks a size on some degree.
    """

    folder: VideoRuns
    shares: Mapping[str, Sequence[float]] = field(default_factory=lambda: STEP_SHARES)
    _rows: Mapping[tuple[int, str], ProfileRow] = field(init=False, repr=False)
    text_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._rows = {(row.usp_degree or 1, row.size): row for row in self.folder.profile}
        text = [row.text_encoder_s for row in self.folder.profile if row.text_encoder_s is not None]
        self.text_s = fmean(text) if text else 1e-3

    def videos(self, run: LoggedRun) -> dict[str, Video]:
        """Return the sizes with their seconds, as the scheduler of ``run`` believes them."""
        degrees = sorted({row.usp_degree or 1 for row in self.folder.profile})
        if run.degree not in degrees:
            known = ", ".join(map(str, degrees))
            raise ConfigError(f"{run.name}: found groups of {run.degree} NPUs, and the profile has {known}; add it")
        found = {}
        for size in SIZES:
            rows = [self._row(degree, size) for degree in degrees]
            first, decoding = rows[0], [row.vae_decode_s for row in rows if row.vae_decode_s is not None]
            file_s = FILE_S_PER_PIXEL * first.width * first.height * first.frames
            shape = first.width, first.height, first.frames, first.steps
            gpu_s = {degree: _worker_s(row) - file_s for degree, row in zip(degrees, rows, strict=True)}
            vae_s = fmean(decoding) if decoding else 1e-3
            believed_s, shares = self._believed_s(run, size), self.shares.get(size, ())
            found[size] = Video(*shape, gpu_s, vae_s, POLLING_S + file_s, believed_s, shares)
        return found

    def replay(self, run: LoggedRun) -> Replayed:
        """Replay ``run`` on the profile's seconds, with the requests of its log, or else those of its seed."""
        sizes, arrivals_s = workload(run.requests, run.rate_rps)
        if run.log:
            sizes, arrivals_s = [row.size for row in run.log], [row.arrival_s for row in run.log]
        videos = self.videos(run)
        return replayed(run, [videos[size] for size in sizes], arrivals_s, self.text_s)

    def rules_alone(self, run: LoggedRun) -> Replayed:
        """Replay the log of ``run`` on each request's own logged seconds: what differs then is the rules' doing.

        A preempted request, whose log has no seconds of its own, keeps the profile's.
        """
        known, asked = self.videos(run), []
        for number, row in enumerate(run.log):
            video = known[row.size]
            gpu_s, answer_s = _logged(row, video)
            gpu_s = video.gpu_s[run.degree] if gpu_s is None else gpu_s
            own = {1: gpu_s, run.degree: gpu_s}
            shape = 1000 + number, 8, 1, video.steps
            asked.append(Video(*shape, own, video.vae_s, answer_s, video.believed_s, video.shares))
        return replayed(run, asked, [row.arrival_s for row in run.log], self.text_s)

    def _believed_s(self, run: LoggedRun, size: str) -> float:
        if run.policy.estimates == "scheduler":
            believed = {row.size: row.e2e_mean_s for row in self.folder.believed}
            if size not in believed:
                raise ConfigError(
                    f"{run.name}: its scheduler believes the rows without a usp_degree, and the profile has none of "
                    f"size {size}; add it"
                )
            return believed[size]
        return CALIBRATED_S.get(run.degree, {}).get(size) or self._row(run.degree, size).e2e_mean_s

    def _row(self, degree: int, size: str) -> ProfileRow:
        try:
            return self._rows[degree, size]
        except KeyError:
            raise ConfigError(f"profile: found no size {size} on {degree} NPUs; add the row") from None


def _worker_s(row: ProfileRow) -> float:
    """Return the seconds of a request in the worker, with those of its file."""
    return row.e2e_mean_s - (0.0 if "compute" in row.note else POLLING_S)


def _logged(row: LogRow, video: Video) -> tuple[float | None, float]:
    """Return the logged seconds on the NPUs, None where preemptions are in them, and those to the answer."""
    if row.served_s is None:
        return row.gpu_s, video.answer_s
    file_s = video.answer_s - POLLING_S
    gpu_s = row.served_s - file_s if row.gpu_s is None else row.gpu_s
    return None if row.preemptions else gpu_s, row.e2e_s - row.wait_s - (row.queue_s or 0.0) - row.served_s + file_s


def replayed(run: LoggedRun, asked: Sequence[Video], arrivals_s: Sequence[float], text_s: float) -> Replayed:
    """Run the requests ``asked`` on the machine and under the policy of ``run``."""
    kinds, trace = {video.size: video for video in asked}, _trace(asked, arrivals_s)
    with tempfile.TemporaryDirectory() as folder:
        write_profile(_profile(list(kinds.values()), text_s), Path(folder) / "npu.yaml")
        words = (
            *SERVER,
            *run.policy.overrides,
            f"cluster.count={run.groups * run.degree}",
            f"group_policy.degree={run.degree}",
            f"backend.folder={folder}",
            f"estimates.seconds={_mapping({size: video.believed_s for size, video in kinds.items()})}",
            f"executor.handling_by_size={_mapping({size: video.answer_s for size, video in kinds.items()})}",
        )
        engine = assemble(check(composed(Point("", {}, words))), trace=trace).engine
        engine.run()
    columns = engine.record.request_columns
    arrival_s, start_s, finish_s = (np.asarray(columns[f"{name}_s"], float) for name in ("arrival", "start", "finish"))
    return Replayed(arrival_s, start_s, finish_s, np.asarray(columns["tail"]), np.asarray(columns["pauses"]))


def _mapping(values: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {value!r}" for name, value in values.items()) + "}"


def _trace(asked: Sequence[Video], arrivals_s: Sequence[float]) -> Trace:
    shapes = {name: [getattr(video, name) for video in asked] for name in ("width", "height", "frames", "steps")}
    ids = [f"request-{number:05d}" for number in range(len(asked))]
    columns = {"request_id": ids, "arrival_s": list(arrivals_s), "prompt": [""] * len(asked), **shapes}
    return make(columns, name="wan2.2", source="HpSuda/vllm-omni, benchmarks/diffusion")


def _profile(videos: Sequence[Video], text_s: float) -> Profile:
    def step_s(video: Video, degree: int) -> float:
        return (video.gpu_s[degree] - text_s - video.vae_s) / video.steps

    def at(video: Video, seconds: float) -> dict[str, Any]:
        return {"width": video.width, "height": video.height, "frames": video.frames, "seconds": seconds}

    degrees = sorted(videos[0].gpu_s)
    return Profile(
        schema=1,
        model=MODEL,
        gpu=NPU,
        source="HpSuda/vllm-omni (Apache-2.0), benchmarks/diffusion, July 2026; step_shares fitted to the 4 x 2 log",
        step=[At(**at(video, step_s(video, degrees[0]))) for video in videos],
        gang_step=[
            GroupPoint(**at(video, step_s(video, degree)), gpus=degree)
            for degree in degrees
            if degree > 1
            for video in videos
        ],
        step_shares=[
            StepShares(width=video.width, height=video.height, frames=video.frames, shares=list(video.shares))
            for video in videos
            if video.shares
        ],
        text_encode=[Timing(seconds=text_s)],
        vae_decode=[At(**at(video, video.vae_s)) for video in videos],
    )
