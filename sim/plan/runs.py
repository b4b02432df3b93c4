"""Runs of a plan: each is made once, and its summary is kept under the key of its configuration and of the code."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mezzotint.backends.base import BackendError
from mezzotint.files.digest import keep, read_kept
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import check_place
from mezzotint.sim.plan.candidate import Candidate
from mezzotint.sim.run.pool import Launcher, run_calls
from mezzotint.sim.run.refusal import warn
from mezzotint.sim.run.run_key import digest
from mezzotint.sim.run.shared_trace import shared_trace
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.error import TraceError

Summary = Mapping[str, Any]
DROPPED = ("wall",)
"""Keys of a summary that differ from one run to the next, and are not kept."""


class Run(NamedTuple):
    """A run to make: a candidate and its number of GPUs, ``load`` times the rate, ``service`` times the seconds.

    ``alone`` is the number of first requests to run; 0 runs all of them, ``repeats`` times over.
    """

    candidate: Candidate
    gpus: int
    seed: int
    load: float = 1.0
    service: float = 1.0
    alone: int = 0
    repeats: int = 1


class Runs:
    """Makes runs in ``jobs`` processes, and keeps their summaries in ``folder``, one file a run.

    Args:
        tick: called after each run.
        launcher: where the processes run.

    Raises ConfigError: ``folder`` cannot be written.
    """

    def __init__(self, folder: Path, jobs: int, tick: Callable[[], object], launcher: Launcher = "joblib") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        check_place(folder / "run")
        self._folder, self._jobs, self._launcher, self._tick = folder.absolute(), jobs, launcher, tick

    def measure(self, runs: Sequence[Run]) -> dict[Run, Summary | str]:
        """Return the summary of each run, or the error that it ended with.

        Raises what ``simulate`` raises for an input that no run could use.
        """
        configs = [run.candidate.config(run.gpus, run.seed, run.load, run.service, run.alone) for run in runs]
        return dict(zip(runs, self.measure_configs(configs, [run.repeats for run in runs]), strict=True))

    def measure_configs(
        self, configs: Sequence[Mapping[str, Any]], repeats: Sequence[int] | None = None
    ) -> list[Summary | str]:
        """Return the summary of the run of each resolved configuration; see ``measure`` and ``Run``."""
        calls_of = list(zip(configs, repeats or [1] * len(configs), strict=True))
        paths = [self._folder / _file_name(config, count) for config, count in calls_of]
        results: dict[Path, Summary | str | None] = {path: read_kept(path, warn) for path in paths}
        missing = {path: call for path, call in zip(paths, calls_of, strict=True) if results[path] is None}
        calls = [partial(_run, path, *call) for path, call in missing.items()]
        for path, error in run_calls(calls, self._jobs, self._launcher):
            results[path] = error or read_kept(path, warn)
            self._tick()
        return [results[path] or f"{path}: was removed while the plan ran" for path in paths]


def _file_name(config: Mapping[str, Any], repeats: int) -> str:
    return f"{digest(config)}.json" if repeats == 1 else f"{digest(config)}-{repeats}.json"


def _run(path: Path, config: Mapping[str, Any], repeats: int) -> tuple[Path, str | None]:
    """Make one run, of ``repeats`` times the requests, and keep its summary; return its file and its error, if any."""
    try:
        summary = simulate(config, trace=shared_trace(config, repeats)).summary
    except (ConfigError, BackendError, TraceError) as error:  # of this candidate, such as too few GPUs for two models
        return path, " ".join(str(error).split())
    keep(path, {key: value for key, value in summary.items() if key not in DROPPED}, ConfigError)
    return path, None
