"""Run independent calls in worker processes: on this machine (joblib), a Ray cluster, or Slurm (submitit).

Beyond this machine, workers need the same environment, and the working directory on a shared file system.
"""

import itertools
import logging
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, TypeVar

from mezzotint.extras import remedy
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.termination import ending_without, workers_end_with_us

Launcher = Literal["joblib", "ray", "slurm", "submitit_local"]
"""Where calls run; ``submitit_local`` starts jobs as ``slurm`` does, but as processes of this machine."""

SWEEP_LAUNCHERS: dict[str, tuple[Launcher, dict[str, int]]] = {
    "basic": ("joblib", {"n_jobs": -1}),
    "joblib": ("joblib", {"n_jobs": -1}),
    "ray": ("ray", {}),
    "submitit_local": ("submitit_local", {"array_parallelism": 256}),
    "submitit_slurm": ("slurm", {"array_parallelism": 256}),
}
"""The choices of ``hydra/launcher``, as Hydra's own plug-ins call them, with the defaults of ``hydra.launcher.*``.

``basic`` is what Hydra takes if nobody chooses one. config.yaml does not choose: its choice would hide that of an
experiment, which is refused.
"""

T = TypeVar("T")

POLL_S = 0.2
"""Seconds between two looks at submitted calls."""

JOB = {"name": "mezzotint", "timeout_min": 60, "cpus_per_task": 1}
"""Parameters of a job of submitit; the environment variable SBATCH_TIMELIMIT overrides the limit of 60 minutes."""

OF_ALL_CLUSTERS = {*JOB, "gpus_per_node", "mem_gb", "nodes", "stderr_to_stdout", "tasks_per_node"}
"""Parameters that submitit has under one name for every cluster; those of Slurm alone begin with ``slurm_``."""

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
    "submitit_slurm": ("submitit", "slurm"),
    "submitit_local": ("submitit", "slurm"),
}
"""The package of a launcher, and our extra that installs it."""


def run_calls(
    calls: Sequence[Callable[[], T]],
    jobs: int = 1,
    launcher: Launcher = "joblib",
    *,
    options: Mapping[str, Any] | None = None,
    folder: Path = Path(),
) -> Generator[T, None, None]:
    """Run ``calls``, at most ``jobs`` at a time (-1: one for each core), and yield their results in the calls' order.

    Each runs in the working directory of this process, whatever its worker ran before. If a call raises or the iterator
    is closed, unfinished calls are cancelled.

    Args:
        options: of ``ray.remote``, or parameters of submitit's jobs.
        folder: where submitit keeps its files; a job ends when they are removed.

    Raises:
        ConfigError: the launcher cannot be used here.
        BrokenProcessPool: a worker was killed.
        Exception: the error of a call.
    """
    calls = [partial(_call_in, os.getcwd(), call) for call in calls]
    if launcher == "joblib":
        from joblib import Parallel, delayed

        workers_end_with_us()
        yield from Parallel(n_jobs=jobs, return_as="generator")(delayed(call)() for call in calls)
        return
    check_launcher(launcher, "--launcher")
    with lost_workers():
        tasks = _on_ray(options or {}) if launcher == "ray" else _as_jobs(launcher, options or {}, folder)
        with tasks as submit:
            for value, error in _outcomes(calls, jobs, submit):
                if error is not None:
                    raise error
                yield value


def _call_in(folder: str, call: Callable[[], T]) -> T:
    os.chdir(folder)
    return call()


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
        named = os.environ.get("RAY_ADDRESS", "")
        raise ConfigError(
            f"RAY_ADDRESS: found no Ray cluster at {named!r} that lets this command in; run `ray start --head` there, "
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
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & LOST:
            raise BrokenProcessPool(str(error)) from error
        for name in names & REFUSING.keys():
            raise ConfigError(REFUSING[name].format(_first_line(error))) from None
        raise


def _first_line(error: Exception) -> str:
    """Return the first line of a message, at most 200 characters of it; the name of the error's type if it is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


Outcome = tuple[Any, Exception | None]
"""The result or the error of a call; Ray and submitit would turn an error into text."""


def _attempt(call: Callable[[], Any], alive: Path | None = None) -> Outcome:
    """Return the outcome of ``call``. The process ends without the file ``alive``, if one is named."""
    try:
        with ending_without(alive):
            return call(), None
    except Exception as error:
        error.add_note(traceback.format_exc())  # which is lost on the way to the driver
        return None, error


class _Task(Protocol):
    """A call under way: a future of Ray's, or a job of submitit's."""

    def done(self) -> bool: ...

    def result(self) -> Any: ...


Submit = Callable[[Callable[[], Any]], _Task]


@contextmanager
def _on_ray(options: Mapping[str, Any]) -> Iterator[Submit]:
    """Yield the function that submits a call to Ray; cancel what is unfinished when the block ends."""
    import ray

    join_ray()
    attempt = ray.remote(**{"num_cpus": 1, **options})(_attempt)
    references: list[Any] = []

    def submit(call: Callable[[], Any]) -> _Task:
        references.append(attempt.remote(call))
        future: _Task = references[-1].future()
        return future

    try:
        yield submit
    finally:
        for reference in references:
            ray.cancel(reference, force=True)  # a finished one is left alone


@contextmanager
def _as_jobs(launcher: Launcher, options: Mapping[str, Any], folder: Path) -> Iterator[Submit]:
    """Yield the function that submits a call as a job of submitit; end what is unfinished when the block ends."""
    import submitit

    submitted: list[Any] = []
    with TemporaryDirectory(prefix=".submitit-", dir=folder.absolute(), ignore_cleanup_errors=True) as files:
        executor = submitit.AutoExecutor(files, cluster=launcher.removeprefix("submitit_"))
        parameters = {key if key in OF_ALL_CLUSTERS else f"slurm_{key}": value for key, value in options.items()}
        try:
            executor.update_parameters(**{**JOB, **parameters})
        except (NameError, TypeError, ValueError) as error:  # an unknown parameter, or a wrong value
            raise ConfigError(f"hydra.launcher: {_first_line(error)}; see submitit's documentation") from None

        def submit(call: Callable[[], Any]) -> _Task:
            submitted.append(executor.submit(_attempt, call, Path(files)))
            job: _Task = submitted[-1]
            return job

        try:
            yield submit
        finally:
            for job in submitted:
                if launcher == "slurm" and not job.done():
                    job.cancel(check=False)  # processes of this machine end with the folder


def _outcomes(calls: Sequence[Callable[[], Any]], jobs: int, submit: Submit) -> Iterator[Outcome]:
    """Submit ``calls`` so that ``jobs`` of them are under way, and yield their outcomes in order."""
    left, tasks = iter(calls), list[_Task]()
    while True:
        running = sum(not task.done() for task in tasks)
        for call in itertools.islice(left, jobs - running):
            tasks.append(submit(call))
        if not tasks:
            return
        if tasks[0].done():
            yield tasks.pop(0).result()
        else:
            time.sleep(POLL_S)
