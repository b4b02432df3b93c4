"""The first hour of a new user: choices, their list, and two own policies, in a folder that happens to hold modules
named as our parts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from tests.conftest import REPOSITORY

HERE = Path(__file__).parent
FROM_PYTHON = """
import backends, conf, sim, traces
import mezzotint
assert all(module.MINE for module in (backends, conf, sim, traces))
sweep = mezzotint.sweep("system=vanilla,nirvana", "trace.requests=50", "hydra.launcher.n_jobs=2")
print(*(run.summary["requests"]["completed"] for run in sweep))
"""


def test_newcomer_lists_chooses_and_adds_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(HERE / "their_policies.py", tmp_path)
    shutil.copytree(HERE / "their_conf", tmp_path / "their_conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "their_policies", raising=False)
    assert main(["list", "eviction", "--config-dir", "their_conf"]) == 0
    assert {"lru", "second-chance"} <= {*capsys.readouterr().out.split()}
    theirs = ("run", "--plugin", "their_policies", "--config-dir", "their_conf", "system=modm-throughput", "seed=1")
    cached = ("-m", "eviction=lru,second-chance", "cache.capacity=50", "trace.requests=500", "hydra.launcher.n_jobs=1")
    assert main([*theirs, *cached, "run.dir=runs"]) == 0
    assert (
        main([*theirs, "scheduler=shortest-first", "scheduler.longest=7", "trace.requests=100", "run.dir=short"]) == 0
    )
    lru, own, short = (json.loads(Path(f"{name}/summary.json").read_text()) for name in ("runs/0", "runs/1", "short"))
    assert all(run["requests"]["completed"] == run["requests"]["arrived"] > 0 for run in (lru, own, short))
    assert lru["cache"]["hit_rate"] != own["cache"]["hit_rate"]


def test_users_modules_named_as_our_parts_hide_none_of_ours(tmp_path: Path) -> None:
    for name in ("backends/__init__.py", "conf/__init__.py", "sim.py", "traces.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("MINE = True\n")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FROM_PYTHON]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "50 50\n"), done.stderr
