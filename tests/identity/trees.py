"""Checkouts of two commits beside one another, and runs of the simulator as it was in each."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.identity.forms import Form, class_names, form_of, package_dir

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = "."
"""Names the working tree in place of a commit."""

RUNNER = Path(__file__).with_name("runner.py")

LIMIT_S = 1200
"""A longer run is taken to hang, and ended by SIGALRM."""


class Failed(Exception):
    """The request cannot be run, or did not succeed; the message is the last line of its output."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a commit, apart from every other, and where what it remembers is kept.

    ``work`` is the working directory of its runs, so that relative paths in their overrides are the same in every tree.
    """

    code: Path
    work: Path
    remembered: Path
    entry: str
    form: Form
    class_names: Form
    of_runs: tuple[str, ...] = ()
    """Words that every run needs in this tree."""

    def mezzotint(self, *words: str) -> float:
        """Run one command line as ``mezzotint`` was in this tree; return its CPU-seconds. Raises Failed."""
        ((_, failure, cpu_s),) = self.runs([words], jobs=1)
        if failure is not None:
            raise Failed(failure)
        return cpu_s

    def runs(self, commands: Sequence[Sequence[str]], jobs: int) -> Iterator[tuple[int, str | None, float]]:
        """Run command lines, ``jobs`` at a time, each in a process of its own.

        Yields the number of each as it ends, None where it succeeded and else the last line of its output, and its
        CPU-seconds without the imports. Raises Failed where none can be run.
        """
        commands = [[*words, *(self.of_runs if words[0] == "run" else ())] for words in commands]
        order = {"entry": self.entry, "code": str(self.code), "jobs": jobs, "limit_s": LIMIT_S, "commands": commands}
        for line in self.script(RUNNER, order=json.dumps(order)):
            number, status, cpu_s = line.split()
            yield int(number), _last(self.work / f"{number}.log", int(status)) if int(status) else None, float(cpu_s)

    def script(self, path: Path, *words: str, order: str = "") -> Iterator[str]:
        """Run a script of this repository, in this tree's names, that imports this tree alone. ``order`` is its input.

        Yields the lines of its output. Raises Failed if it does not succeed.
        """
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("MEZZOTINT", "PYTHON"))},
            "PYTHONPATH": str(self.code),
            "MEZZOTINT_CACHE": str(self.remembered),
            "OMP_NUM_THREADS": "1",
        }
        script_log, own = self.work / f"{path.stem}.log", self.work / path.name
        own.write_text(self.class_names(path.read_text(encoding="utf-8")), encoding="utf-8")
        with script_log.open("w") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            with subprocess.Popen(
                [sys.executable, "-P", str(own), *words], cwd=self.work, env=environment, text=True, **pipes
            ) as script:
                script.stdin.write(order)
                script.stdin.close()
                yield from script.stdout
        if script.returncode:
            raise Failed(_last(script_log, script.returncode))


def _last(log: Path, status: int) -> str:
    """Return the last line of ``log``, of a process that ended with ``status``."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    how = f"status {status}" if status > 0 else f"ended by {signal.Signals(-status).name}"
    return f"{lines[-1] if lines else 'no output'} ({how})"


def commit(revision: str) -> str | None:
    """The hash of the commit that ``revision`` names; None for the working tree. Raises Failed for no commit."""
    if revision == HERE:
        return None
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError:
        raise Failed(f"{revision} is no commit of {REPOSITORY}") from None


def checkout(revision: str, folder: Path) -> Tree:
    """Put the files of ``revision`` into ``folder``; of the working tree, all that git does not ignore."""
    code, work, remembered = (folder / name for name in ("code", "work", "remembered"))
    for made in (code, work, remembered):
        made.mkdir(parents=True)
    found = commit(revision)
    if found is None:
        for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0"):
            if name and (REPOSITORY / name).is_file():
                (code / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, code / name)
    else:
        with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", found))) as files:
            files.extractall(code, filter="data")
    project = tomllib.loads((code / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, part in package_dir(code).items():  # as make lays them
        (code / name.replace(".", "/")).symlink_to(code / part)
    # The launcher of an earlier version is a package that the present one does not install.
    is_theirs = "hydra/launcher: joblib" in (code / "conf" / "config.yaml").read_text(encoding="utf-8")
    launcher = ("hydra/launcher=basic",) if is_theirs else ()
    return Tree(code, work, remembered, project["scripts"]["mezzotint"], form_of(code), class_names(code), launcher)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, check=True).stdout
