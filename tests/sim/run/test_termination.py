"""A command that gets a signal to stop."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from omegaconf.errors import ConfigAttributeError

from mezzotint.sim.cli import main
from mezzotint.sim.run.termination import Terminated, end_workers, interruptible

POINTS = 4
MARK = "MEZZOTINT_TEST"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are counted in /proc")
def test_terminated_sweep_stops_its_processes_and_resumes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ["run", "-m", f"seed={','.join(map(str, range(POINTS)))}", "trace.requests=2000", "hydra.launcher.n_jobs=2"]
    words.append(f"run.dir={folder}")
    mark = f"{os.getpid()}-{tmp_path.name}"
    command = subprocess.Popen(
        [sys.executable, "-P", "-m", "mezzotint.sim.cli", *words],
        env=os.environ | {MARK: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(folder.glob("*/summary.json")):
        assert command.poll() is None
        time.sleep(0.02)
    command.send_signal(signal.SIGTERM)
    _, error = command.communicate(timeout=60)
    assert command.returncode == 143
    assert error.startswith("mezzotint: interrupted\n")
    assert not _with(mark)
    done = {path: path.read_bytes() for path in folder.glob("*/summary.json")}
    assert 1 <= len(done) < POINTS
    assert main(words) == 0
    assert len(list(folder.glob("*/summary.json"))) == POINTS
    assert all(path.read_bytes() == was for path, was in done.items())


@pytest.mark.parametrize(("number", "stop"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_signal_in_a_finalizer_is_not_lost(number: int, stop: type[KeyboardInterrupt]) -> None:
    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)
            time.sleep(0.1)  # the handler's exception is raised in here, and dropped

    def drop() -> None:
        with interruptible():
            Finalized()
            time.sleep(5)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
    try:
        with pytest.raises(stop):
            drop()
    finally:
        signal.signal(signal.SIGINT, before)


def test_termination_is_told_although_a_library_raises_an_interrupt_of_its_own() -> None:
    """As Ray does, whose calls in C++ drop the exception of a signal's handler."""

    def call() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            pass
        raise KeyboardInterrupt

    with pytest.raises(Terminated), interruptible():
        call()


def in_a_library(stop: type[KeyboardInterrupt]) -> None:
    """As in OmegaConf, whose cleanup fails on work begun before the signal."""
    try:
        try:
            raise stop
        finally:
            raise AttributeError("_invalidate_flags_cache")
    except AttributeError as error:
        raise ConfigAttributeError(str(error)) from None


@pytest.mark.parametrize(("stop", "status"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_interruption_inside_a_library_has_its_exit_status(
    stop: type[KeyboardInterrupt], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mezzotint.sim.cli.run_command", lambda words, options: in_a_library(stop))
    assert main(["run"]) == status
    assert capsys.readouterr().err == "mezzotint: interrupted\n"


KILLED = """
import os, signal
from joblib import Parallel, delayed
from mezzotint.sim.run.termination import workers_end_with_us
workers_end_with_us()
Parallel(n_jobs=2)(delayed(abs)(n) for n in range(4))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are counted in /proc")
def test_joblib_workers_end_with_their_killed_parent(tmp_path: Path) -> None:
    """Also those that wait for work and cannot see their parent."""
    mark = f"{os.getpid()}-{tmp_path.name}"
    ended = subprocess.run([sys.executable, "-c", KILLED], env=os.environ | {MARK: mark}, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    until = time.monotonic() + 30
    while _with(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _with(mark)


def _with(mark: str) -> list[str]:
    """Return the processes whose environment contains ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return found


def test_workers_that_are_gone_already_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once one is killed, joblib kills the others of its pool, at the same time as we do."""
    worker = multiprocessing.Process(target=time.sleep, args=(60,))
    worker.start()
    kill = os.kill

    def kill_twice(process: int, signal_number: int) -> None:
        kill(process, signal_number)
        os.waitpid(process, 0)
        kill(process, signal_number)

    monkeypatch.setattr(os, "kill", kill_twice)
    end_workers()
