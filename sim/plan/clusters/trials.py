"""Runs of a plan: each is made once, and its summary is kept under the key of its configuration and of the code."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from backends.base import BackendError
from conf.atomic import atomic_write
from sim.core.errors import ConfigError
from sim.core.run_folder import check_place
from sim.plan.clusters.candidates import Candidate
from sim.run.pool import Launcher, run_calls
from sim.run.refusal import warn
from sim.run.run_key import combined, digest
from sim.run.simulate import simulate
from traces.error import TraceError

Summary = Mapping[str, Any]
DROPPED = ("wall",)
"""Keys of a summary that differ from one run to the next, and are not kept."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A run to make: a candidate and its number of GPUs, ``load`` times the rate, ``service`` times the seconds."""

    candidate: Candidate
    gpus: int
    seed: int
    load: float = 1.0
    service: float = 1.0


class Trials:
    """Runs trials in ``jobs`` processes, and keeps their summaries in ``folder``, one file a run.

    Args:
        tick: called after each run.
        launcher: where the processes run.

    Raises ConfigError: ``folder`` cannot be written.
    """

    def __init__(self, folder: Path, jobs: int, tick: Callable[[], object], launcher: Launcher = "joblib") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        check_place(folder / "run")
        self._folder, self._jobs, self._launcher, self._tick = folder.absolute(), jobs, launcher, tick

    def measure(self, trials: Sequence[Trial]) -> dict[Trial, Summary | str]:
        """Return the summary of each trial, or the error that it ended with.

        Raises what ``simulate`` raises for an input that no trial could use.
        """
        configs = {trial: trial.candidate.config(trial.gpus, trial.seed, trial.load, trial.service) for trial in trials}
        paths = {trial: self._folder / f"{digest(config)}.json" for trial, config in configs.items()}
        found: dict[Path, Summary | str | None] = {path: _read(path) for path in paths.values()}
        missing = {path: configs[trial] for trial, path in paths.items() if found[path] is None}
        calls = [partial(_run, path, config) for path, config in missing.items()]
        for path, error in run_calls(calls, self._jobs, self._launcher):
            found[path] = error or _read(path)
            self._tick()
        return {trial: found[path] or f"{path}: was removed while the plan ran" for trial, path in paths.items()}


def _read(path: Path) -> Summary | None:
    """Return the summary of a kept run; None if there is none, or not as it was written."""
    try:
        kept = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        kept = None
    if (
        isinstance(kept, dict)
        and isinstance(kept.get("summary"), dict)
        and kept.get("digest") == combined(kept["summary"])
    ):
        found: Summary = kept["summary"]
        return found
    warn(f"{path}: is not as it was written; its run is made again")
    return None


def _run(path: Path, config: Mapping[str, Any]) -> tuple[Path, str | None]:
    """Run one trial and keep its summary; return its file and its error, if any."""
    try:
        summary = simulate(config).summary
    except (ConfigError, BackendError, TraceError) as error:  # of this candidate, such as too few GPUs for two models
        return path, " ".join(str(error).split())
    kept = {key: value for key, value in summary.items() if key not in DROPPED}
    with atomic_write(path, ConfigError) as temporary:
        content = {"digest": combined(kept), "summary": kept}
        temporary.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
    return path, None
