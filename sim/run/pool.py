"""Run independent calls in worker processes: on this machine (joblib), a Ray cluster, or Slurm (submitit).

Beyond this machine, workers need the same environment, and the working directory on a shared file system.
"""

import logging
import os
import shutil
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Literal, Protocol, TypeVar

from mezzotint.extras import remedy
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.termination import ending_without, workers_end_with_us

Launcher = Literal["joblib", "ray", "slurm", "submitit_local"]
"""Where calls run; ``submitit_local`` starts jobs as ``slurm`` does, but as processes of this machine."""

T = TypeVar("T")

POLL_S = 0.2
"""Seconds between two looks at submitted calls."""

TIMEOUT_MIN = 60
"""Time limit of a Slurm job, minutes; the environment variable SBATCH_TIMELIMIT overrides it."""

PASSED_ON = ("MEZZOTINT_", "PYTHONSAFEPATH", "OMP_NUM_THREADS")
"""Beginnings of the environment variables that workers of Ray take from this process; Slurm passes on all."""

LOST = {"UncompletedJobError", "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError"}
"""Errors of submitit and Ray on a worker that was killed, by name, since neither need be installed."""

REFUSING = {
    "RayError": "ray: the cluster cannot run the calls ({}); look at its log (`ray status`, `ray logs`)",
    "FailedSubmissionError": "slurm: sbatch refused the jobs ({}); check its partition, account and limits (SBATCH_*)",
}
"""Errors of Ray and submitit that are no call's and no killed worker's, by name: what was refused, and what to do."""

_NEEDS = {
    "ray": ("ray", "ray"),
    "slurm": ("submitit", "slurm"),
    "submitit_slurm": ("submitit", "slurm"),  # so named by Hydra
    "submitit_local": ("submitit", "slurm"),
}
"""The package of a launcher, and our extra that installs it."""


def run_calls(calls: Sequence[Callable[[], T]], jobs: int = 1, launcher: Launcher = "joblib") -> Iterator[T]:
    """Run ``calls``, at most ``jobs`` at a time, and yield their results in order.

    If a call raises or the iterator is closed, unfinished calls are cancelled.

    Raises:
        ConfigError: the launcher cannot be used here.
        BrokenProcessPool: a worker was killed.
        Exception: the error of a call.
    """
    if launcher == "joblib":
        from joblib import Parallel, delayed

        workers_end_with_us()
        yield from Parallel(n_jobs=jobs, return_as="generator")(delayed(call)() for call in calls)
        return
    check_launcher(launcher, "--launcher")
    outcomes = _on_ray(calls, jobs) if launcher == "ray" else _as_jobs(calls, jobs, launcher)
    with lost_workers():
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            yield outcome.value


def check_launcher(launcher: str, key: str) -> None:
    """Raise ConfigError if ``launcher`` cannot be used here; ``key`` is the option that chose it."""
    package, extra = _NEEDS.get(launcher, ("joblib", ""))
    if find_spec(package) is None:
        raise ConfigError(f"{key}: {launcher} needs the package {package}; {remedy(extra)}")
    if launcher.endswith("slurm") and shutil.which("srun") is None:
        raise ConfigError(f"{key}: {launcher} found no srun here; run the command on a machine of the Slurm cluster")


def join_ray() -> None:
    """Connect to the Ray cluster of RAY_ADDRESS or of this machine; start one here if there is none.

    Its workers work in our working directory, and print nothing here.

    Raises ConfigError if RAY_ADDRESS names no cluster, or none starts here.
    """
    import ray

    if ray.is_initialized():
        return
    folder = os.getcwd()

    def enter_folder() -> None:
        os.chdir(folder)

    environment = {key: value for key, value in os.environ.items() if key.startswith(PASSED_ON)}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": environment, "worker_process_setup_hook": enter_folder},
        )
    except ConnectionError:
        found = os.environ.get("RAY_ADDRESS", "")
        raise ConfigError(
            f"RAY_ADDRESS: found no Ray cluster at {found!r} that lets this command in; run `ray start --head` there, "
            "and set RAY_AUTH_MODE=token here if the cluster asks for a token"
        ) from None
    except Exception as error:  # of many types: a node that does not start in time is a bare Exception
        address = os.environ.get("RAY_ADDRESS")
        where = "cannot start here" if address is None else f"cannot be joined at RAY_ADDRESS={address}"
        raise ConfigError(
            f"ray: {where} ({_first_line(error)}); free memory and disk, or start it "
            "by hand (`ray start --head`) and set RAY_ADDRESS=auto"
        ) from None
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray's own ends the process without our cleanup


@contextmanager
def lost_workers() -> Iterator[None]:
    """Turn errors of Ray and submitit on a killed worker into BrokenProcessPool, as joblib's.

    Raises ConfigError for their other errors, such as a job that Slurm does not take.
    """
    try:
        yield
    except Exception as error:
        names = {each.__name__ for each in type(error).__mro__}
        if names & LOST:
            raise BrokenProcessPool(str(error)) from error
        for name in names & REFUSING.keys():
            raise ConfigError(REFUSING[name].format(_first_line(error))) from None
        raise


def _first_line(error: Exception) -> str:
    """Return the first line of a message, at most 200 characters of it; the name of the error's type if it is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    """The result or the error of a call; Ray and submitit would turn an error into text."""

    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Attempt(Generic[T]):
    """A call that returns its error, and whose process ends without the file ``alive``, if one is named."""

    call: Callable[[], T]
    alive: Path | None = None

    def __call__(self) -> _Outcome[T]:
        try:
            with ending_without(self.alive):
                return _Outcome(self.call())
        except Exception as error:
            error.add_note(traceback.format_exc())  # which is lost on the way to the driver
            return _Outcome(error=error)


class _Task(Protocol):
    """A call under way: a future of Ray's, or a job of submitit's."""

    def done(self) -> bool: ...

    def result(self) -> Any: ...


def _on_ray(calls: Sequence[Callable[[], T]], jobs: int) -> Iterator[_Outcome[T]]:
    import ray

    join_ray()
    attempt = ray.remote(num_cpus=1)(_attempted)
    references: list[Any] = []

    def submit(call: Callable[[], T]) -> _Task:
        references.append(attempt.remote(_Attempt(call)))
        future: _Task = references[-1].future()
        return future

    try:
        yield from _in_order(calls, jobs, submit)
    finally:
        for reference in references:
            ray.cancel(reference, force=True)  # a finished one is left alone


def _attempted(attempt: _Attempt[T]) -> _Outcome[T]:
    return attempt()


def _as_jobs(calls: Sequence[Callable[[], T]], jobs: int, launcher: Launcher) -> Iterator[_Outcome[T]]:
    import submitit

    begun: list[Any] = []
    with TemporaryDirectory(prefix=".submitit-", dir=".", ignore_cleanup_errors=True) as folder:
        executor = submitit.AutoExecutor(folder, cluster=launcher.removeprefix("submitit_"))
        executor.update_parameters(name="mezzotint", timeout_min=TIMEOUT_MIN, cpus_per_task=1)

        def submit(call: Callable[[], T]) -> _Task:
            begun.append(executor.submit(_Attempt(call, Path(folder).absolute())))
            job: _Task = begun[-1]
            return job

        try:
            yield from _in_order(calls, jobs, submit)
        finally:
            for job in begun:
                if launcher == "slurm" and not job.done():
                    job.cancel(check=False)  # processes of this machine end with the folder


def _in_order(
    calls: Sequence[Callable[[], T]], jobs: int, submit: Callable[[Callable[[], T]], _Task]
) -> Iterator[_Outcome[T]]:
    """Submit ``calls`` so that ``jobs`` of them are under way, and yield their outcomes in order."""
    left, begun, running = iter(calls), deque[_Task](), list[_Task]()
    while True:
        running = [task for task in running if not task.done()]
        while len(running) < jobs and (call := next(left, None)) is not None:
            running.append(submit(call))
            begun.append(running[-1])
        if not begun:
            return
        if begun[0].done():
            yield begun.popleft().result()
        else:
            time.sleep(POLL_S)
