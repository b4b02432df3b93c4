"""The first hour of a new user: choices, their list, and two own policies, in a folder that happens to hold modules
named as our parts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

HERE = Path(__file__).parent
MODULES = ("backends/__init__.py", "conf/__init__.py", "sim.py", "traces.py")
FROM_PYTHON = """
import backends, conf, sim, traces
import mezzotint
assert all(module.MINE for module in (backends, conf, sim, traces))
sweep = mezzotint.sweep("system=vanilla,nirvana", "trace.requests=200", "hydra.launcher.n_jobs=2")
print(*(run.summary["requests"]["completed"] for run in sweep))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with two policies, and with modules of the user's under our names."""
    for name in ("their_policies.py", "their_conf"):
        (shutil.copytree if (HERE / name).is_dir() else shutil.copy)(HERE / name, tmp_path / name)
    for name in MODULES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("MINE = True\n")
    return tmp_path


def python(folder: Path, *words: str) -> str:
    """Return what Python prints in ``folder``, which it imports from before all others; it must succeed."""
    paths = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, **paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mezzotint(folder: Path, *words: str) -> str:
    """Return what the command prints; it must succeed."""
    return python(folder, "-m", "mezzotint.sim.cli", *words)


def test_newcomer_lists_chooses_and_adds_policies(folder: Path) -> None:
    groups = mezzotint(folder, "list")
    for group in ("eviction=", "scheduler=", "executor=", "admission=", "controller=", "selector=", "allocation="):
        assert group in groups
    ours = mezzotint(folder, "list", "eviction", "--config-dir", "their_conf")
    assert "lru" in ours
    assert "second-chance" in ours
    asked = ("system=modm-throughput", "cache.capacity=100", "trace.requests=1500", "shapes=model")
    mezzotint(folder, "run", *asked, "eviction=lru", "run.dir=lru")
    own = ("--plugin", "their_policies", "--config-dir", "their_conf", "eviction=second-chance")
    mezzotint(folder, "run", *own, *asked, "run.dir=own")
    short = (*own[:-1], "scheduler=shortest-first", "scheduler.longest=7", "trace.requests=300")
    mezzotint(folder, "run", *short, "run.dir=short")
    summaries = {name: json.loads((folder / name / "summary.json").read_text()) for name in ("lru", "own", "short")}
    assert all(each["requests"]["completed"] == each["requests"]["arrived"] > 0 for each in summaries.values())
    assert summaries["lru"]["cache"]["hit_rate"] != summaries["own"]["cache"]["hit_rate"]


def test_users_modules_named_as_our_parts_hide_none_of_ours(folder: Path) -> None:
    assert python(folder, "-c", FROM_PYTHON) == "200 200\n"
