"""Independent calls on every launcher. Ray and submitit are tested where they are installed."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.slo import parse_limit
from mezzotint.sim.run.pool import Launcher, check_launcher, lost_workers, run_calls
from mezzotint.sim.run.refusal import refusal

SBATCH = r"""#!/bin/sh
# Runs the script at once, also as an array.
for file; do :; done
export SLURM_JOB_ID=$$ SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=localhost
export SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$file")
for task in $(seq 0 "${last:-0}"); do
    [ -z "$last" ] || export SLURM_ARRAY_JOB_ID=$$ SLURM_ARRAY_TASK_ID=$task
    sh "$file" >/dev/null 2>&1 &
done
echo "Submitted batch job $$"
"""
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case "$1" in --output|--error) shift 2 ;; *) shift ;; esac; done
exec "$@"
"""

NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")
NEEDS_SUBMITIT = pytest.mark.skipif(find_spec("submitit") is None, reason="the extra slurm is not installed")
LAUNCHERS = [
    "joblib",
    pytest.param("ray", marks=NEEDS_RAY),
    pytest.param("submitit_local", marks=NEEDS_SUBMITIT),
    pytest.param("slurm", marks=NEEDS_SUBMITIT),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, with stand-ins for Slurm's commands; Ray starts a cluster of its own here."""
    monkeypatch.chdir(tmp_path)
    commands = tmp_path.parent / f"{tmp_path.name}-slurm"
    commands.mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "sacct": "#!/bin/sh\n", "scancel": "#!/bin/sh\n"}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    yield
    if (ray := sys.modules.get("ray")) is not None:
        ray.shutdown()


def after(wait_s: float, value: int) -> "partial[Any]":
    """A call of the standard library alone, which every worker can import."""
    return partial(eval, f"__import__('time').sleep({wait_s}) or {value}")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_results_come_in_the_order_of_the_calls(launcher: Launcher, tmp_path: Path) -> None:
    """Whichever ends first; also of no calls."""
    assert list(run_calls([], 2, launcher)) == []
    assert list(run_calls([after(0.5, 1), after(0, 2), after(0, 3)], 2, launcher)) == [1, 2, 3]
    assert list(tmp_path.iterdir()) == [], "submitit's files go with the calls"


@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
def test_workers_share_working_directory_and_our_variables(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "my_policies")
    calls = [partial(os.getcwd), partial(os.getenv, "MEZZOTINT_PLUGINS"), partial(os.getpid)]
    folder, variable, process = run_calls(calls, 2, launcher)
    assert (folder, variable) == (str(tmp_path), "my_policies")
    assert process != os.getpid()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_error_of_a_call_keeps_its_type_and_message(launcher: Launcher) -> None:
    with pytest.raises(ValueError) as here:
        parse_limit("soon")
    with pytest.raises(ValueError) as there:
        list(run_calls([after(0, 1), partial(parse_limit, "soon"), after(0, 3)], 2, launcher))
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)


@pytest.mark.parametrize("launcher", LAUNCHERS[:-1])
def test_killed_worker_ends_the_calls(launcher: Launcher) -> None:
    """Slurm's answer would be that of ``sacct``."""
    with pytest.raises(BrokenProcessPool):
        list(run_calls([after(0, 1), partial(os._exit, 3)], 2, launcher))


@pytest.mark.parametrize(
    ("launcher", "package"),
    [("ray", "ray"), ("slurm", "submitit"), ("submitit_local", "submitit"), ("submitit_slurm", "submitit")],
)
def test_absent_launcher_is_refused_with_its_package(
    launcher: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mezzotint.sim.run.pool.find_spec", lambda _: None)
    assert main(["run", "-m", "seed=1,2", f"hydra/launcher={launcher}", "run.dir=out"]) == 2
    assert f"mezzotint: error: hydra/launcher: {launcher} needs" in (error := capsys.readouterr().err)
    assert f"'{package}>=" in error


def test_slurm_is_refused_without_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.sim.run.pool.find_spec", lambda _: True)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="--launcher: slurm found no srun here"):
        check_launcher("slurm", "--launcher")


class RayError(Exception):
    """As Ray names the base of its errors."""


class RuntimeEnvSetupError(RayError):
    """As Ray raises where a worker's environment cannot be made."""


class FailedSubmissionError(RuntimeError):
    """As submitit raises where sbatch fails."""


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    """Install a module of that name with these attributes, for a package that need not be installed."""
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("mezzotint.sim.run.pool.find_spec", lambda _: True)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Exception("The current node timed out during startup.\nThis could happen"), "(The current node timed out"),
        (RuntimeError("Version mismatch: The cluster was started with:\n Ray: 2.9"), "(Version mismatch: The cluster"),
        (ValueError(), "(ValueError)"),
        (OSError(28, "No space left on device"), "No space left on device); free memory and disk"),
    ],
)
def test_ray_that_does_not_start_is_one_line(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "ray", is_initialized=lambda: False, init=raising(error), shutdown=lambda: None)
    for address, where in (
        (None, "cannot start here"),
        ("10.0.0.9:6379", "cannot be joined at RAY_ADDRESS=10.0.0.9:6379"),
    ):
        if address is not None:
            monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError) as refused:
            list(run_calls([after(0, 1)], 1, "ray"))
        line = refusal(refused.value)
        assert line.startswith(f"mezzotint: error: ray: {where} (")
        assert message in line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeEnvSetupError("no such folder"), "ray: the cluster cannot run the calls (no such folder); look at"),
        (
            FailedSubmissionError("sbatch: error: Batch job submission failed\nstdout"),
            "slurm: sbatch refused the jobs (sbatch",
        ),
    ],
)
def test_calls_that_a_cluster_does_not_take_are_one_line(error: Exception, message: str) -> None:
    with pytest.raises(ConfigError) as refused, lost_workers():
        raise error
    assert message in str(refused.value)


def test_process_that_cannot_be_started_is_no_full_disk() -> None:
    line = refusal(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
    assert line.startswith(
        "mezzotint: error: no process can be started (Resource temporarily unavailable); raise `ulimit"
    )


WATCHED = """
import sys, time
from pathlib import Path
from mezzotint.sim.run.termination import ending_without
with ending_without(Path(sys.argv[1])):
    print("begun", flush=True)
    time.sleep(60)
"""


def test_worker_ends_with_the_file_of_its_command(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    alive.touch()
    with subprocess.Popen([sys.executable, "-c", WATCHED, str(alive)], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"begun\n"
        alive.unlink()
        assert worker.wait(30) == 1


BEYOND = [
    pytest.param("ray", marks=NEEDS_RAY),
    pytest.param("submitit_local", marks=NEEDS_SUBMITIT),
    pytest.param("submitit_slurm", marks=NEEDS_SUBMITIT),
]


@pytest.mark.parametrize("launcher", BEYOND)
def test_interrupted_sweep_resumes_to_the_bytes_of_joblib(launcher: str, tmp_path: Path) -> None:
    """No worker writes after the command ended, and no finished point is run again."""
    words = ["run", "-m", "trace.requests=300,60000,60001,60002"]
    command = [sys.executable, "-P", "-m", "mezzotint.sim.cli", *words, f"hydra/launcher={launcher}", "run.dir=sweep"]
    folder = tmp_path / "sweep"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as interrupted:
        while not list(folder.glob("*/summary.json")):
            assert interrupted.poll() is None
            time.sleep(0.02)
        interrupted.send_signal(signal.SIGTERM)
        _, error = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 143
    assert error.splitlines()[0] == "mezzotint: interrupted"
    time.sleep(2)
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*/summary.json")}
    assert 1 <= len(done) < 4
    assert subprocess.run(command, timeout=120, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert all(path.stat().st_mtime_ns == was for path, was in done.items())
    assert main([*words, "hydra.launcher.n_jobs=1", "run.dir=here"]) == 0
    for number in range(4):
        for name in ("requests.parquet", "cluster.parquet", "config.yaml"):
            assert (folder / f"{number}" / name).read_bytes() == Path("here", f"{number}", name).read_bytes()


@pytest.mark.parametrize("launcher", LAUNCHERS[1:-1])
def test_plan_is_the_same_on_every_launcher(launcher: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model=sdxl", "--gpu=l40s", "--design=vanilla", "--rate-rpm=60", "--target=p95<10s"]
    words += ["trace.requests=200", "trace.history=0", "--rank=1", "--replications=2"]
    assert main([*words, "--runs=here", "--output=a"]) == 0
    assert main([*words, "--runs=there", "--output=b", "--jobs=2", f"--launcher={launcher}"]) == 0
    first, second = (out.split("\n") for out in capsys.readouterr().out.split("a/plan.html\n"))
    assert second[: len(first) - 1] == first[:-1]
    kept = sorted(path.name for path in Path("here").iterdir() if path.suffix == ".json")
    assert kept == sorted(path.name for path in Path("there").iterdir() if path.suffix == ".json")
    for name in kept:
        assert Path("here", name).read_bytes() == Path("there", name).read_bytes()


@pytest.mark.parametrize("launcher", LAUNCHERS[1:-1])
def test_capacity_is_the_same_on_every_launcher(launcher: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "capacity", "trace.requests=100", "--replications=2", "--tolerance=1", "--from=8", "--to=20"]
    assert main([*words, "--jobs", "2", "--launcher", launcher, "-o", "there"]) == 0
    printed = capsys.readouterr().out.replace("there", "here")
    assert main([*words, "-o", "here"]) == 0
    assert capsys.readouterr().out == printed
    assert Path("there/rate.json").read_bytes() == Path("here/rate.json").read_bytes()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_calls_run_in_the_folder_of_their_caller(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has run calls from another folder is used again."""
    for name in ("first", "second"):
        Path(name).mkdir()
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir(name)
            assert {Path(found).name for found in run_calls([os.getcwd] * 4, 2, launcher)} == {name}
