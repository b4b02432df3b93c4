"""The key of a finished run follows from its configuration, its inputs and what the code computes, not the code's
text."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.papers import runs as points
from mezzotint.sim.run import run_key as key
from tests.conftest import REPOSITORY

PARTS = ("backends", "conf", "sim", "traces")

POOLS = [{"gpu": "h100-sxm", "count": 1}, {"gpu": {"name": "l40s"}, "count": 1}]

DIGEST = "from mezzotint.sim.run.run_key import digest; print(digest({'seed': 1}))"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Copy the simulator's folders for a test to edit."""
    own = tmp_path / "mezzotint"
    shutil.copytree(REPOSITORY / "mezzotint", own, ignore=shutil.ignore_patterns("__pycache__", *PARTS))
    for part in PARTS:
        shutil.copytree(REPOSITORY / part, own / part, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def key_of(folder: Path) -> str:
    """Return the key of one configuration by the code in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-c", DIGEST], cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_comment_changes_no_key_and_changed_arithmetic_changes_every_key(copied: Path) -> None:
    ours = key.digest({"seed": 1})
    for file in copied.rglob("*.py"):
        file.write_text(file.read_text() + "\n# a comment\n")
    for file in (copied / "mezzotint" / "conf").rglob("*.yaml"):
        file.write_text(file.read_text() + "\n# a comment\n")
    assert key_of(copied) == ours
    steps = copied / "mezzotint" / "backends" / "profiled.py"
    steps.write_text(
        steps.read_text().replace("extrapolate, self.service_factor, folders)", "extrapolate, 1.001, folders)")
    )
    assert key_of(copied) != ours, "although nobody raised RESULTS_VERSION"


def test_arithmetic_version_is_in_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key.arithmetic.__wrapped__()
    assert before == key.arithmetic()
    monkeypatch.setattr(key, "RESULTS_VERSION", key.RESULTS_VERSION + 1)
    assert key.arithmetic.__wrapped__() != before


def test_key_covers_the_configuration_without_the_run_folder() -> None:
    config = points.compose_point(points.sweep("nirvana-figure13")[0])
    assert key.digest(config | {"run": {"dir": "elsewhere"}}) == key.digest(config)
    assert key.digest(config | {"seed": 2}) != key.digest(config)


@pytest.mark.parametrize(
    ("config", "profile"),
    [
        ({"backend": {"gpu": "a10g"}}, "a10g_nirvana-large"),
        ({"cluster": {"pools": POOLS}, "backend": {"gpu": None}}, "h100-sxm_sdxl-mlperf"),
        ({"cluster": {"pools": POOLS}, "backend": {"gpu": None}}, "l40s_sdxl-mlperf"),
    ],
)
def test_key_covers_the_profiles_of_each_kind_of_gpu(config: dict[str, Any], profile: str, tmp_path: Path) -> None:
    text = (REPOSITORY / f"backends/profiles/{profile}.yaml").read_text()
    digests = []
    for name, own in (("same", text), ("slower", text.replace("seconds: ", "seconds: 1"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.yaml").write_text(own)
        backend = config["backend"] | {"folder": str(tmp_path / name)}
        digests.append(key.digest(config | {"backend": backend}))
    same, slower = digests
    assert same == key.digest(config | {"backend": config["backend"] | {"folder": None}})
    assert slower != same


def test_keys_of_different_types_have_a_digest() -> None:
    mixed = {"selector": {"thresholds": {5: 0.65, "10": 0.75}}}
    assert key.digest(mixed) == key.digest({"selector": {"thresholds": {"5": 0.65, 10: 0.75}}})
