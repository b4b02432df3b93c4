"""MLPerf's server submissions, replayed: arrivals and server, with the seconds per image as the only unknown."""

import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Le
from numpy.typing import NDArray
from pydantic import AliasChoices, Field
from pydantic.dataclasses import dataclass
from scipy.optimize import brentq

from mezzotint.backends.profile import Point as At
from mezzotint.backends.profile import Profile
from mezzotint.backends.profile import write as write_profile
from mezzotint.settings.ranges import Count, Positive, Rate, Seconds, Seed, SomeSeconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.rows import measured
from mezzotint.sim.papers.runs import Point, compose_point
from mezzotint.sim.plan.search import ClusterSearch, Outcome, Trial, run_searches
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Assembled, assemble
from mezzotint.traces.table.trace import Trace

MODEL, GPU, SIZE, STEPS = "sdxl-mlperf", "submission", 1024, 20
"""Workload of every submission: 1024x1024 in 20 steps, on a GPU with a profile of its own."""

SERVER = (
    *("trace=mix", "arrivals=loadgen", "scheduler=mlperf-batching", "executor=static-batch", "cluster=local"),
    *(f"models={MODEL}", "extrapolate=warn", "slo=[]", "sample_s=1e6", "quality=alpha"),
)
"""Overrides of the server; a partial batch takes its share of a full batch's time (extrapolate)."""

LIMIT_S = 20.0
"""The limit on p99 of MLPerf's server scenario."""

FIT_TOLERANCE = 1e-5
"""Relative tolerance of the fitted seconds per image, of which 2 % are up to 30 % of latency."""

SERVICE_TIME_CHANGES = (-0.03, -0.02, -0.01, 0.01, 0.02, 0.03)
"""Relative changes of the service time in the sensitivity analysis."""

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p97": 0.97, "p99": 0.99, "p999": 0.999}

MEASURES = ("mean", *QUANTILES, "min", "max")
"""Statistics of latency in a submission's log."""

SCORED = ("p50", "p90", "p99", "p999", "max")
"""Predicted measures of a submission; the mean is fitted."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Submission:
    """One run of MLPerf Inference's SDXL server scenario: its settings and its log, as in conf/data.

    Attributes:
        offline_images_per_s: of the same system, all GPUs together, in full batches; None if unknown.
        schedule_rng_seed, target_qps, min_query_count, min_duration_s: of the load generator (traces/arrivals).
        max_batch, batch_timeout_s: of the server; also read from the former columns batch_most and batch_limit_s.
        scheduled_qps: rate that the generator issued.
    """

    round: str
    division: str
    submitter: str
    system: str
    accelerator: str
    gpus: Annotated[Count, Le(100_000)]
    max_batch: Annotated[Count, Le(4096), Field(validation_alias=AliasChoices("max_batch", "batch_most"))]
    batch_timeout_s: Annotated[Seconds, Field(validation_alias=AliasChoices("batch_timeout_s", "batch_limit_s"))]
    schedule_rng_seed: Seed
    target_qps: Positive
    min_query_count: Count
    min_duration_s: Seconds
    mean_s: SomeSeconds
    p50_s: Seconds | None = None
    p90_s: Seconds | None = None
    p95_s: Seconds | None = None
    p97_s: Seconds | None = None
    p99_s: Seconds | None = None
    p999_s: Seconds | None = None
    min_s: Seconds | None = None
    max_s: Seconds | None = None
    offline_images_per_s: Rate | None = None
    scheduled_qps: Rate | None = None
    repo: str = ""
    commit: str = ""
    path: str = ""

    @property
    def name(self) -> str:
        """Round, division, submitter and system, as MLCommons wants them cited."""
        return f"{self.round}, {self.division}, {self.submitter}, {self.system}"

    @property
    def measured(self) -> dict[str, float]:
        """Seconds by MEASURES, as far as the log has them."""
        return measured(self, MEASURES)


@dataclass(frozen=True, slots=True)
class OfflineRun:
    """The rate of one system in MLPerf Inference's SDXL offline scenario, all GPUs together, as in conf/data."""

    round: str
    accelerator: str
    gpus: Count
    images_per_s: Rate


def image_s_by_round(rows: Iterable[OfflineRun]) -> dict[str, dict[str, float]]:
    """Return the seconds of an image on one GPU by accelerator and round: the median over the systems of a round."""
    seconds: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        rounds = seconds.setdefault(physical(row.accelerator), {})
        rounds.setdefault(row.round, []).append(row.gpus / row.images_per_s)
    return {
        accelerator: {name: float(np.median(rounds[name])) for name in sorted(rounds)}
        for accelerator, rounds in sorted(seconds.items())
    }


def physical(accelerator: str) -> str:
    """Return the accelerator that a virtual machine has."""
    return accelerator.removeprefix("Virtualized ")


class Replay:
    """The simulator set up as a submission's machine, with its profile in ``folder``.

    Attributes:
        base_s: seconds per image on a GPU offline, or at a load of 1 if that is unknown.

    Raises:
        ConfigError: the run has over a million requests, an hour's simulation.
    """

    def __init__(self, row: Submission, folder: Path) -> None:
        expected = max(row.min_query_count, row.min_duration_s * row.target_qps)
        if expected > 1e6:
            raise ConfigError(
                f"{row.name}: found about {expected:,.0f} requests, expected at most 1,000,000; leave it out"
            )
        self.row = row
        self.base_s = row.gpus / (row.offline_images_per_s or row.target_qps)
        profile = Profile(
            schema=1,
            model=MODEL,
            gpu=GPU,
            source=f"MLPerf Inference {row.name}, offline; not verified by MLCommons",
            basis="published",
            step=[At(width=SIZE, height=SIZE, batch=row.max_batch, seconds=self.base_s * row.max_batch / STEPS)],
        )
        write_profile(profile, folder / "submission.yaml")
        base, minimum = base_config(SERVER), {"least_requests": row.min_query_count, "least_s": row.min_duration_s}
        drawn = {"seed": row.schedule_rng_seed, "rate_rpm": 60 * row.target_qps}
        shapes = {"shapes": [[SIZE, SIZE, STEPS, 1]], "requests": ceil(1.3 * expected) + 300}
        self._config = base | {
            "trace": base["trace"] | shapes,
            "arrivals": base["arrivals"] | drawn | minimum,
            "scheduler": base["scheduler"] | {"max_batch": row.max_batch, "batch_timeout_s": row.batch_timeout_s},
            "executor": base["executor"] | {"max_batch": row.max_batch},
            "cluster": {"count": row.gpus, "gpu": base["cluster"]["gpu"] | {"name": GPU}},
            "backend": base["backend"] | {"gpu": GPU, "folder": str(folder)},
        }
        self._trace: Trace | None = None
        self.scheduled_qps = 0.0

    def latencies_s(self, factor: float, gpus: int | None = None) -> Floats:
        """Return all latencies [s], ascending, if an image takes ``factor`` x ``base_s``.

        Args:
            gpus: number of GPUs; None for the submission's.
        """
        config = self._config if gpus is None else self._config | {"cluster": self._config["cluster"] | {"count": gpus}}
        run, latencies_s = run_config(config, factor, self._trace)
        self._trace = run.trace
        arrivals_s = run.engine.record.request_columns["arrival_s"]
        self.scheduled_qps = (len(arrivals_s) - 1) / float(arrivals_s[-1] or 1.0)
        return np.sort(latencies_s)

    def predict(self, factor: float, *, with_sensitivity: bool) -> tuple[dict[str, Any], Floats]:
        """Return the prediction as JSON (seconds per image, latencies and errors), and all latencies [s], ascending.

        ``with_sensitivity`` adds p99 with changed service times. An error is predicted over measured, less one; None if
        it was not measured.
        """
        latencies_s, logged = self.latencies_s(factor), self.row.measured
        latency_s = summary(latencies_s)
        changes = SERVICE_TIME_CHANGES if with_sensitivity else ()
        facts = {
            "image_s": factor * self.base_s,
            "latency_s": latency_s,
            "p99_with_service_moved_s": {
                f"{share:+.0%}": summary(self.latencies_s(factor * (1 + share)))["p99"] for share in changes
            },
            "error": {
                name: latency_s[name] / logged[name] - 1 if logged.get(name) else None for name in ("mean", *SCORED)
            },
        }
        return facts, latencies_s

    def fit(self) -> float:
        """Return the factor at which the simulated mean, a continuous function of it, is the measured one.

        Raises ConfigError: no seconds per image give that mean.
        """

        def excess_s(factor: float) -> float:
            return float(self.latencies_s(factor).mean()) - self.row.mean_s

        low, high = 0.9, 1.1
        while excess_s(low) > 0 and low > 1e-3:
            low, high = low / 2, low
        while excess_s(high) < 0 and high < 1e3:
            low, high = high, high * 2
        if excess_s(low) > 0 or excess_s(high) < 0:
            raise ConfigError(
                f"{self.row.name}: found no seconds per image that give a mean of {self.row.mean_s:g} s; "
                "check mean_s, target_qps, max_batch and batch_timeout_s"
            )
        return float(brentq(excess_s, low, high, rtol=FIT_TOLERANCE, xtol=FIT_TOLERANCE))

    def planned_gpus(self) -> int | None:
        """Return the fewest GPUs with which p99 is below `LIMIT_S`, by the planner's search; None if none has it.

        The seconds of a GPU stay the same; the search may take twice the GPUs that were used.
        """
        search = ClusterSearch(max_gpus=2 * self.row.gpus, max_seeds=1)
        work = self.base_s * self.row.target_qps

        def outcomes(trials: list[tuple[str, Trial]]) -> list[Outcome]:
            p99_s = [summary(self.latencies_s(1.0, trial.gpus))["p99"] for _, trial in trials]
            return [Outcome((seconds / LIMIT_S,), False, work, 1.0) for seconds in p99_s]

        run_searches({self.row.name: search.steps()}, outcomes)
        return search.gpus


@cache
def base_config(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration of a run with ``overrides``; callers must not modify it."""
    return compose_point(Point("", {}, overrides))


def run_config(config: Mapping[str, Any], factor: float, trace: Trace | None = None) -> tuple[Assembled, Floats]:
    """Run ``config`` with the service time times ``factor``; return the run and the latency [s] by request."""
    backend = {**config["backend"], "service_factor": factor}
    run = assemble(check({**config, "backend": backend}), trace=trace)
    run.engine.run()
    columns = run.engine.record.request_columns
    return run, np.asarray(columns["finish_s"], np.float64) - np.asarray(columns["arrival_s"], np.float64)


def replay_submission(row: Submission, *, with_sensitivity: bool = True) -> tuple[dict[str, Any], Floats]:
    """Fit one number to the mean and predict the rest; also predict everything with nothing fitted.

    Args:
        with_sensitivity: also predict with changed service times.

    Returns:
        The submission with both predictions as JSON, and all latencies [s] of the fitted one, ascending.

    Raises:
        ConfigError: the row cannot be replayed.
    """
    with tempfile.TemporaryDirectory() as folder:
        replay, unfitted, planned = Replay(row, Path(folder)), None, None
        fitted, latencies_s = replay.predict(replay.fit(), with_sensitivity=with_sensitivity)
        if row.offline_images_per_s:
            unfitted, _ = replay.predict(1.0, with_sensitivity=with_sensitivity)
            planned = replay.planned_gpus()
    facts = {
        "name": row.name,
        "accelerator": row.accelerator,
        "gpus": row.gpus,
        "planned_gpus": planned,
        "source": ", ".join((row.repo, row.commit, row.path)).strip(", "),
        "target_qps": row.target_qps,
        "scheduled_qps": {"logged": row.scheduled_qps, "ours": replay.scheduled_qps},
        "load": fitted["image_s"] * row.target_qps / row.gpus,
        "measured_s": row.measured,
        "fitted": fitted,
        "unfitted": unfitted,
    }
    return facts, latencies_s


def replay_at(row: Submission, ratio: float) -> dict[str, Any]:
    """Predict a submission with ``ratio`` times its offline seconds per image, as `Replay.predict` does.

    Raises ConfigError: the row cannot be replayed.
    """
    with tempfile.TemporaryDirectory() as folder:
        return Replay(row, Path(folder)).predict(ratio, with_sensitivity=False)[0]


def summary(latencies_s: Floats) -> dict[str, float]:
    """Return mean, minimum, maximum and quantiles of ascending seconds, (requests,)."""
    levels = np.quantile(latencies_s, [*QUANTILES.values()], method="inverted_cdf").tolist()
    ends = {"mean": float(latencies_s.mean()), "min": float(latencies_s[0]), "max": float(latencies_s[-1])}
    return dict(zip(QUANTILES, levels, strict=True)) | ends
