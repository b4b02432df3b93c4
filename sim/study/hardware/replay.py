"""One MLPerf submission replayed: the server it ran, its own arrivals, and the seconds per image as the one unknown."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from backends.profile import Point as At
from backends.profile import Profile
from backends.profile import write as write_profile
from sim.config.settings import check
from sim.errors import ConfigError
from sim.run import assemble
from sim.study.hardware.rows import QUANTILES, Submission
from sim.study.scorecard.points import Point, composed
from traces.table.trace import Trace

MODEL, GPU, SIZE, STEPS = "sdxl-mlperf", "submission", 1024, 20
"""What every submission serves: 1024x1024 in 20 steps, on what its own profile calls a submission's GPU."""

SERVER = (
    *("trace=mix", "arrivals=loadgen", "scheduler=batch-server", "executor=whole-batch", "cluster=local"),
    *(f"models={MODEL}", "extrapolate=warn", "slo=[]", "sample_s=1e6", "quality=alpha"),
)
"""The parts of the server; a batch that is not full takes its share of a full one's time (extrapolate)."""

PRECISE = 1e-5
"""To what part of itself the seconds per image are fitted: 2 % of it is up to 30 % of latency."""

MOVED = (-0.03, -0.02, -0.01, 0.01, 0.02, 0.03)
"""Changes of the service time whose effect is shown, as a share of it."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a replay says of latencies, in seconds: by the measures of a submission, and p99 with the service moved.

    Attributes:
        image_s: seconds per image on one GPU.
        latency_s: mean, min, max and QUANTILES (order statistics, as the load generator's).
        p99_moved_s: p99 by the share by which the service time was moved; empty where nobody asked.
    """

    image_s: float
    latency_s: Mapping[str, float]
    p99_moved_s: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A submission beside its replay.

    Attributes:
        scheduled_qps: of the arrivals made again: gaps over the time of the last.
        fitted: with the seconds per image at which the mean is the measured one.
        unfitted: with those of the same system's offline run; None where that is not known.
        latencies_s: all of ``fitted``, ascending, (requests,).
    """

    row: Submission
    scheduled_qps: float
    fitted: Prediction
    unfitted: Prediction | None
    latencies_s: Floats

    @property
    def load(self) -> float:
        """Seconds of work that come in a second, over the GPUs there are, by the fit."""
        return self.fitted.image_s * self.row.target_qps / self.row.gpus

    def error(self, measure: str, *, fitted: bool = True) -> float | None:
        """Predicted over measured, less one; None where it was not measured, or nothing is predicted."""
        measured = self.row.measured.get(measure)
        said = self.fitted if fitted else self.unfitted
        return None if not measured or said is None else said.latency_s[measure] / measured - 1


class Replay:
    """The simulator set up as a submission's machine. The engine is run anew for every ``factor``.

    ``base_s`` is what an image takes on a GPU offline, or, where that is not known, at a load of 1.

    Args:
        row: the submission.
        folder: where its profile is put.

    Raises:
        ConfigError: a run that would not end in an hour's simulation.
    """

    def __init__(self, row: Submission, folder: Path) -> None:
        expected = max(row.min_query_count, row.min_duration_s * row.target_qps)
        if expected > 1e6:
            raise ConfigError(f"{row.name}: about {expected:,.0f} requests, expected at most 1,000,000; leave it out")
        self.row = row
        self.base_s = row.gpus / (row.offline_images_per_s or row.target_qps)
        write_profile(self._profile(), folder / "submission.yaml")
        self._config = self._configured(str(folder), ceil(1.3 * expected) + 300)
        self._trace: Trace | None = None
        self.times_s: Floats = np.zeros(0)
        self.predicted_s: Floats = np.zeros(0)

    def latencies_s(self, factor: float) -> Floats:
        """Seconds from arrival to image of every request, ascending, if an image takes ``factor`` x ``base_s``."""
        backend = {**self._config["backend"], "service_factor": factor}
        run = assemble(check({**self._config, "backend": backend}), trace=self._trace)
        self._trace = run.trace
        run.engine.run()
        facts = run.engine.record.facts
        self.times_s = np.asarray(facts["arrival_s"], np.float64)
        return np.sort(np.asarray(facts["finish_s"], np.float64) - self.times_s)

    def predict(self, factor: float, *, moved: bool) -> Prediction:
        """The latencies at ``factor``, and with ``moved`` what p99 would be with the service time moved."""
        self.predicted_s = self.latencies_s(factor)
        found = summary(self.predicted_s)
        around = {share: summary(self.latencies_s(factor * (1 + share)))["p99"] for share in MOVED if moved}
        return Prediction(factor * self.base_s, found, around)

    def fit(self) -> float:
        """The factor at which the simulated mean is the measured one. Latencies grow with it, and without a jump.

        Raises ConfigError where no seconds per image give that mean.
        """
        measured = self.row.measured["mean"]

        def above(factor: float) -> float:
            return float(self.latencies_s(factor).mean()) - measured

        low, high = 0.9, 1.1
        while above(low) > 0 and low > 1e-3:
            low, high = low / 2, low
        while above(high) < 0 and high < 1e3:
            low, high = high, high * 2
        if above(low) > 0 or above(high) < 0:
            raise ConfigError(
                f"{self.row.name}: no seconds per image give a mean of {measured:g} s with these arrivals and batches; "
                "check mean_s, target_qps, batch_most and batch_limit_s"
            )
        return float(brentq(above, low, high, rtol=PRECISE, xtol=PRECISE))

    def _profile(self) -> Profile:
        seconds = self.base_s * self.row.batch_most / STEPS
        return Profile(
            schema=1,
            model=MODEL,
            gpu=GPU,
            source=f"MLPerf Inference {self.row.name}, offline; not verified by MLCommons",
            basis="published",
            step=[At(width=SIZE, height=SIZE, batch=self.row.batch_most, seconds=seconds)],
        )

    def _configured(self, folder: str, requests: int) -> dict[str, Any]:
        row, base = self.row, base_config(SERVER)
        return base | {
            "trace": base["trace"] | {"shapes": [[SIZE, SIZE, STEPS, 1]], "requests": requests},
            "arrivals": base["arrivals"]
            | {
                "seed": row.schedule_rng_seed,
                "rate_rpm": 60 * row.target_qps,
                "least_requests": row.min_query_count,
                "least_s": row.min_duration_s,
            },
            "scheduler": base["scheduler"] | {"batch_most": row.batch_most, "batch_limit_s": row.batch_limit_s},
            "executor": base["executor"] | {"limit": row.batch_most},
            "cluster": {"count": row.gpus, "gpu": base["cluster"]["gpu"] | {"name": GPU}},
            "backend": base["backend"] | {"gpu": GPU, "folder": folder},
        }


@cache
def base_config(overrides: tuple[str, ...]) -> dict[str, Any]:
    """What a run with ``overrides`` is composed of; not to be changed."""
    return composed(Point("", {}, overrides)) | {"run": {"dir": "unnamed"}}


def replayed(row: Submission, *, moved: bool = True) -> Replayed:
    """Fit one number to the mean, predict the rest; and predict all of it with nothing fitted.

    Args:
        row: the submission.
        moved: with the sensitivity of both predictions to the service time.

    Raises ConfigError where the row cannot be replayed.
    """
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(row, Path(folder))
        factor = replay.fit()
        unfitted = None if not row.offline_images_per_s else replay.predict(1.0, moved=moved)
        fitted = replay.predict(factor, moved=moved)
        latencies_s, times_s = replay.predicted_s, replay.times_s
    return Replayed(row, (len(times_s) - 1) / float(times_s[-1] or 1.0), fitted, unfitted, latencies_s)


def summary(latencies_s: Floats) -> dict[str, float]:
    """Mean, ends and order statistics of ascending seconds, (requests,)."""
    found: dict[str, Any] = {
        name: np.quantile(latencies_s, share, method="inverted_cdf") for name, share in QUANTILES.items()
    }
    found |= {"mean": latencies_s.mean(), "min": latencies_s[0], "max": latencies_s[-1]}
    return {name: float(value) for name, value in found.items()}
