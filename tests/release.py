"""Install what `python -m build` made into new environments outside the clone, and use it there.

    python -m tests.release [--python python3.12 ...] [--outdir DIR] [--editable]

Each environment also has PyPI's `traces`, and the commands run in a folder with a `conf`, a `sim`, a `traces` and a
`backends` of the user's. Dependencies are the newest ones, as for a user, not the locked ones.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import REPOSITORY

SMALL = ("trace.requests=200", "arrivals.rate_rpm=10")
VERBS = {
    "list": ("list", "profiles"),
    "run": ("run", "-m", "system=vanilla,nirvana", *SMALL, "run.dir=sweep", "hydra.launcher.n_jobs=2"),
    "report": ("report", "sweep"),
    "plan": (
        *("plan", "--model", "sdxl", "--gpu", "l40s", "--design", "vanilla", "--rate-rpm", "20"),
        *("--target", "p95<20s", "--max-gpus", "8", "trace.requests=200", "-o", "plan", "--runs", "plan/runs"),
    ),
    "reproduce": ("reproduce", "cascade", "--quick", "-o", "reproduced"),
}
"""What a user does first, each within seconds; `reproduce` of a study that needs no file of others."""

IN_PYTHON = f"""
import backends, conf, sim, traces
import mezzotint
assert all(module.MINE for module in (backends, conf, sim, traces))
run = mezzotint.run("system=nirvana", *{SMALL})
assert run.summary["requests"]["completed"] == len(run.requests) == 200, run.summary["requests"]
"""

BESIDE_TRACES = f"""
import mezzotint, traces
assert traces.TimeSeries({{0: 1, 2: 3}}).mean(0, 4) == 2, traces.__file__
mezzotint.run(*{SMALL})
"""

INSTALLED = """
from importlib.metadata import files, version
names = sorted({file.parts[0] for file in files("mezzotint")} - {"..", "__pycache__"})
print(*names)
own = ("mezzotint", f"mezzotint-{version('mezzotint')}.dist-info")
assert all(name in own or name.startswith("__editable__") for name in names)
"""
"""Prints what site-packages gained; `..` is the folder of the command."""


def main() -> int:
    """Return 1 if a command failed in an environment."""
    parser = argparse.ArgumentParser(prog="python -m tests.release")
    parser.add_argument("--python", action="append", help="may be repeated [default: this one]")
    parser.add_argument("--outdir", type=Path, default=REPOSITORY / "dist", help="of python -m build [default: dist]")
    parser.add_argument("--editable", action="store_true", help="also `pip install --editable` of this clone")
    asked = parser.parse_args()
    ways: dict[str, list[Path | str]] = {
        "wheel": [*asked.outdir.glob("*.whl")],
        "sdist": [*asked.outdir.glob("*.tar.gz")],
    }
    if any(len(made) != 1 for made in ways.values()):
        parser.error(f"{asked.outdir}: found {ways}, expected one wheel and one sdist; run python -m build")
    if asked.editable:
        ways["editable"] = ["--editable", REPOSITORY]
    failed = False
    for python in asked.python or [sys.executable]:
        for way, made in ways.items():
            with TemporaryDirectory() as folder:
                for what, outcome in outcomes(python, list(map(str, made)), Path(folder)):
                    failed |= not outcome.startswith("ok")
                    print(f"{python:<12} {way:<9} {what:<14} {outcome}", flush=True)
    return int(failed)


def outcomes(python: str, made: list[str], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each step in a new environment of ``python`` with ``made``, and how it went."""
    venv, work, empty = folder / "venv", folder / "work", folder / "empty"
    for name in ("backends/__init__", "conf/__init__", "sim", "traces"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / f"{name}.py").write_text("MINE = True\n")
    empty.mkdir()
    inside = venv / "bin" / "python"
    steps = {
        "venv": ([python, "-m", "venv", venv], empty),
        "install": ([inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *made, "traces"], empty),
        "site-packages": ([inside, "-c", INSTALLED], empty),
        **{verb: ([venv / "bin" / "mezzotint", *words], work) for verb, words in VERBS.items()},
        "import": ([inside, "-c", IN_PYTHON], work),
        "PyPI's traces": ([inside, "-c", BESIDE_TRACES], empty),
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MEZZOTINT_"))}
    for what, (command, where) in steps.items():
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=where,
            env=kept | {"MEZZOTINT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        said = f": {done.stdout.strip()}" if what == "site-packages" else ""
        yield what, f"ok, {time.monotonic() - began:.1f} s{said}" if not done.returncode else done.stdout + done.stderr
        if done.returncode:
            return


if __name__ == "__main__":
    sys.exit(main())
