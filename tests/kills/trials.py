"""A command killed at a random moment leaves nothing wrong, and resumes to the bytes of an undisturbed one."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

RUN = "trace=file trace.path=given/t.parquet arrivals=poisson system=nirvana"
RATED = f"{RUN} arrivals.rate_rpm=9"
LEAVE_S = 10.0
"""Seconds within which all processes of a stopped command must end."""
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Command:
    """What is killed.

    Attributes:
        words: of the command line, in a folder that has ``given/`` in it.
        out: what it writes, by name.
        once: pattern of the files that stand for its finished runs, which the same command leaves as they are.
        launcher: options that have its runs made beyond this process, with the launcher's name left open.
    """

    name: str
    words: str
    out: tuple[str, ...]
    once: str = ""
    launcher: str = ""


COMMANDS = (
    Command("run", f"run {RATED} run.dir=out", ("out",)),
    Command("rerun", f"run {RATED} run.dir=given/old", ("given/old",)),
    Command("sweep", f"run -m {RATED} seed=1,2,3,4 run.dir=sweep", ("sweep",), "sweep/*/summary.json",
            "hydra/launcher={}"),
    Command("rate", f"plan capacity {RUN} --jobs 2 -o rate --from 1 --to 60 --replications 2 --tolerance 1", ("rate",),
            "rate/**/summary.json", "--launcher {}"),
    Command("plan", "plan --model sdxl --gpu l40s --gpu h100-sxm --rate-rpm 90 --target p95<10s --jobs 2 --runs runs "
            "-o plan --replications 2 --rank 2 --max-gpus 16 trace.requests=600 trace.history=0", ("plan", "runs"),
            "runs/*.json", "--launcher {}"),
    Command("import", "trace import csv given/log.csv -o mine.parquet", ("mine.parquet",)),
    Command("report", "report given/old -o page/report.html", ("page",)),
    Command("describe", "trace describe given/t.parquet --figures figures", ("figures",)),
)  # fmt: skip

SCORECARD = Command("scorecard", "reproduce nirvana --quick -o card --work work", ("card", "work"))
"""The quick scorecard of one paper; minutes, so only by hand."""


def on(command: Command, launcher: str) -> Command:
    """Return ``command`` with its runs on ``launcher``; a command without such runs as it is."""
    if not command.launcher:
        return command
    return replace(command, words=f"{command.words} {command.launcher.format(launcher)}")


def prepare(home: Path) -> None:
    """Make the inputs of the commands."""
    given = home / "given"
    given.mkdir(parents=True)
    (home / "page").mkdir()
    for words in ("trace synth -o given/t.parquet --requests 300 --seed 1", f"run {RATED} seed=9 run.dir=given/old"):
        _complete(words, home)
    rows = [f"{i},{i * 0.5},prompt {i} of many" for i in range(40_000)]
    (given / "log.csv").write_text("request_id,arrival_s,prompt\n" + "\n".join(rows) + "\n")


def undisturbed(given: Path, home: Path, command: Command) -> tuple[dict[str, str], float]:
    """Return the digests of what an undisturbed command writes, and its seconds."""
    shutil.copytree(given, home)
    began = time.monotonic()
    _complete(command.words, home)
    return digests(home, command), time.monotonic() - began


def trial(
    given: Path,
    home: Path,
    command: Command,
    expected: dict[str, str],
    moment_s: float,
    sign: signal.Signals,
    runs: int,
) -> tuple[bool, int]:
    """Kill ``command``, check what it left, and run it again.

    Args:
        moment_s: seconds after which it is killed, from the moment at which it has kept ``runs`` runs.

    Returns:
        True if it was killed before its end, and the number of runs that it had finished and kept.

    Raises:
        AssertionError: a wrong file was left, a finished one was lost, or the bytes differ.
    """
    shutil.copytree(given, home)
    before = digests(home, command)
    with subprocess.Popen(
        _command(command.words), cwd=home, env=_environment(home), stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        while process.poll() is None and len(_stamps(home, command)) < runs:
            time.sleep(0.01)
        try:
            process.wait(moment_s)
        except subprocess.TimeoutExpired:
            process.send_signal(sign)
        code = process.wait(LIMIT_S)
        until = time.monotonic() + LEAVE_S
        while (left := _of_session(process.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        for each in left:
            os.kill(each, signal.SIGKILL)
        said = process.stderr.read() if process.stderr else ""
    where = f"{command.name}, signal {sign.name} after {runs} runs and {moment_s:.3f} s, status {code}"
    assert not left, f"{where}: {len(left)} processes are still there after {LEAVE_S} s"
    assert code in (0, -sign, 128 + sign), f"{where}: {said}"
    assert "Traceback" not in said or sign == signal.SIGKILL, f"{where}: {said}"
    kept = digests(home, command)
    lost = [name for name in before if name not in kept]
    assert not lost, f"{where}: lost {lost}"
    for name, digest in kept.items():
        assert digest in (expected.get(name), before.get(name)), (
            f"{where}: {name} is neither as it was nor as it will be"
        )
    for folder in _runs(home):
        _whole(folder)
    finished = _stamps(home, command)
    _complete(command.words, home, where)
    assert digests(home, command) == expected, f"{where}: other bytes than those of an undisturbed command"
    after = _stamps(home, command)
    for file, stamp in finished.items():
        assert after[file] == stamp, f"{where}: {file} was run twice"
    parts = [path for name in (".", *command.out) for path in (home / name).glob(".*.part")]
    assert not parts, f"{where}: {parts}"
    shutil.rmtree(home)
    return code != 0, len(finished)


def trials(
    folder: Path, commands: Sequence[Command], moments: int, seed: int, launcher: str = "joblib"
) -> Iterator[tuple[str, bool]]:
    """Kill the commands in turn at ``moments`` random moments; see ``trial``.

    A command that keeps runs is killed after a random number of them, another within its undisturbed time.

    On another launcher than joblib they must write what they write on joblib.
    """
    draw = random.Random(seed)
    prepare(folder / "given")
    known = {each.name: undisturbed(folder / "given", folder / each.name, on(each, launcher)) for each in commands}
    if launcher != "joblib":
        for each in commands:
            here, _ = undisturbed(folder / "given", folder / f"{each.name}-joblib", on(each, "joblib"))
            assert here == known[each.name][0], f"{each.name}: other bytes on {launcher} than on joblib"
    commands = [on(each, launcher) for each in commands]
    for number in range(moments):
        command = commands[number % len(commands)]
        expected, takes_s = known[command.name]
        sign = draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT))
        runs = draw.randint(0, len(_stamps(folder / command.name, command)))
        if runs:
            moment_s = draw.uniform(0.0, 1.0)
        else:  # the first half of a short command is imports, which write nothing: test the rest more often
            moment_s = takes_s * draw.choice((draw.uniform(0.0, 1.0), draw.uniform(0.5, 1.0)))
        where = folder / f"{number}"
        killed, kept = trial(folder / "given", where, command, expected, moment_s, sign, runs)
        after = f"{runs} runs and {moment_s:.2f} s, {kept} runs kept" if runs else f"{moment_s:.2f} of {takes_s:.2f} s"
        yield f"{command.name} {sign.name} after {after}", killed


def digests(home: Path, command: Command) -> dict[str, str]:
    """Return the SHA-256 of every file that a command writes; of summaries, without the wall times."""
    found = {}
    for out in command.out:
        place = home / out
        files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
        for path in files:
            inner = path.relative_to(home)
            if any(part.startswith(".") for part in inner.parts) or path.name == "multirun.yaml":
                continue
            data = path.read_bytes()
            if path.name == "summary.json":
                data = json.dumps({k: v for k, v in json.loads(data).items() if k != "wall"}).encode()
            # the files beside it may name the folder of the trial
            data = data.replace(str(home).encode(), b"HOME")
            found[str(inner)] = hashlib.sha256(data).hexdigest()
    return found


def _runs(home: Path) -> list[Path]:
    """Return the directories that hold any part of a run."""
    kinds = ("summary.json", "requests.parquet")
    found = {path.parent for kind in kinds for path in home.rglob(kind)}
    return [each for each in found if not any(part.startswith(".mezzotint-") for part in each.parts)]


def _stamps(home: Path, command: Command) -> dict[Path, int]:
    """Return when each finished run of a command was written."""
    files = home.glob(command.once) if command.once else ()
    written = (path for path in files if not any(part.startswith(".") for part in path.relative_to(home).parts))
    return {path: path.stat().st_mtime_ns for path in written}


def _whole(folder: Path) -> None:
    said = json.loads((folder / "summary.json").read_text())
    rows = pq.read_table(folder / "requests.parquet").num_rows
    assert rows == said["requests"]["arrived"], folder
    assert (folder / "config.yaml").is_file(), folder
    assert pq.read_table(folder / "cluster.parquet").num_rows, folder


def _complete(words: str, home: Path, where: str = "undisturbed") -> None:
    """Run a command to its end, which must be a success."""
    how = {"cwd": home, "env": _environment(home), "capture_output": True, "text": True, "timeout": LIMIT_S}
    done = subprocess.run(_command(words), **how)
    assert done.returncode == 0, f"{where}: {words}: {done.stderr}"


def _command(words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "mezzotint.sim.cli", *words.split()]


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "MEZZOTINT_CACHE": str(home / ".cache"), "OMP_NUM_THREADS": "1"}


def _of_session(leader: int) -> list[int]:
    """Return the live processes of a session without joblib's resource tracker, which ends with the last pipe."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(each.name))
    return found
