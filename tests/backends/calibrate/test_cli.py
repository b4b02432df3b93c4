"""`mezzotint calibrate` from the command line: its files, and one clear error for each bad input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.calibrate.bench import Bench  # noqa: E402
from mezzotint.backends.profile import read  # noqa: E402
from mezzotint.extras import remedy  # noqa: E402
from mezzotint.sim.cli import main  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402

QUICK = [
    "--scale",
    "tiny",
    "--device",
    "cpu",
    "--sizes",
    "64",
    "--batches",
    "1",
    "--repeats",
    "1",
    "--steps-timed",
    "1",
    "--warmup",
    "0",
]
QUICK += ["--controlnets", "0", "--no-loras"]


def test_calibrate_writes_a_profile_a_page_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "sana", *QUICK, "--sizes", "64,96x64", "-o", str(tmp_path / "new" / "folder")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [file.name for file in written] == ["cpu_sana-tiny.yaml", "cpu_sana-tiny.md", "cpu_sana-tiny_step.png"]
    assert all(file.stat().st_size > 0 for file in written)
    assert [(p.width, p.height) for p in read(written[0]).step] == [(64, 64), (96, 64)]
    assert read(written[0]).basis == "measured"
    assert "![" in written[1].read_text()


def test_interrupted_calibration_prints_one_line_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    real = Bench.__call__

    def counted(self: Bench, cell: Any) -> Any:
        asked.append(cell)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(self, cell)

    monkeypatch.setattr(Bench, "__call__", counted)
    words = ["calibrate", "flux", *QUICK, "-o", str(tmp_path)]
    assert main(words) == 130
    lines = [line for line in capsys.readouterr().err.splitlines() if "mezzotint" in line]
    journal = tmp_path / "cpu_flux-tiny.journal.jsonl"
    assert lines == [f"mezzotint: interrupted; 2 of 5 cells are kept in {journal}, and the same command goes on"]
    assert main(words) == 0
    assert len(asked) == 6, "five cells, and the one that was cut"
    assert asked[2] == asked[3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sdxl", "--sizes", "64,6y4"], r"--sizes: found '64,6y4', expected .*512,768x1024"),
        (["sdxl", "--sizes", "60"], "sdxl makes images whose sides are multiples of 8, not 60x60"),
        (["sdxl", "--repeats", "0"], "'--repeats'.*greater than or equal to 1"),
        (["sdxl", "--weights", "nowhere"], "weights 'nowhere' is not a folder"),
        (["sdxl", "--variant", "sdxl_huge"], "has no tiny variant 'sdxl_huge'"),
        (["sdxl", "--device", "tpu9"], "no device is called 'tpu9'"),
        (["sd9"], "found sd9, did you mean sd3"),
        (["sdxl", "--gpu", "my gpu"], "'my gpu' cannot name a profile file"),
    ],
)
def test_invalid_calibrate_option_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", words[0], *QUICK, *words[1:], "-o", str(tmp_path / "out")]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mezzotint")]
    assert len(lines) == 1
    assert re.search(message, lines[0])


WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Lacking(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] == sys.argv[1] else PathFinder.find_spec(name, path, target)

sys.meta_path = [Lacking if each is PathFinder else each for each in sys.meta_path]
from mezzotint.sim.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("lacking", ["torch", "pynvml"])
def test_missing_package_is_named_with_what_to_install(lacking: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, lacking, "calibrate", "sdxl", *QUICK, "-o", "out"]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"mezzotint: error: the live backend needs {lacking}; {remedy('live')}\n"
    assert list(tmp_path.iterdir()) == []
