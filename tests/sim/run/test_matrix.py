"""`mezzotint list matrix`: which models are known on which kinds of GPUs, in which engine."""

from pathlib import Path

import pytest

from mezzotint.backends.profile import shipped, within
from mezzotint.sim.cli import main
from mezzotint.sim.run.profiles import BASES, matrix

MINE = """
schema: 1
model: my-model
gpu: my-gpu
source: timed by hand
software: my-engine
date: '2026-11-01'
basis: measured
step: [{width: 512, height: 512, seconds: 0.1}]
"""


def test_every_profile_with_steps_is_in_one_cell_of_the_matrix() -> None:
    cells = [
        (row[0], row[1], basis, kind.partition(" (")[0])
        for row in matrix()[1:]
        for (basis, _), cell in zip(BASES, row[2:-1], strict=True)
        for kind in cell.split(", ")
        if kind != "-"
    ]
    names = {value: name for name, values in BASES for value in values}
    serving = [profile for profile in within(shipped()) if profile.step]
    assert sorted(cells) == sorted((of.model, of.software or "-", names[of.basis], of.gpu) for of in serving)


def test_own_profile_changes_the_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    assert main(["list", "matrix", "--folder", str(tmp_path)]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines() if line.startswith("my-model")]
    assert [[word.strip() for word in row if word] for row in rows] == [
        ["my-model", "my-engine", "measured here", "my-gpu (2026-11)"],
        ["my-model", "any", "unknown", f"{len_kinds() - 1} of {len_kinds()} kinds"],
    ]
    assert main(["list", "matrix", "--config-dir", str(tmp_path)]) == 2


def len_kinds() -> int:
    """Return the number of kinds with the user's own."""
    return 1 + int(matrix()[1][-1].split()[2])
