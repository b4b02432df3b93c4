"""DiffServe's cascades beside their models alone: a study in small, its claims and its page."""

import json
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.papers.cascade import DESIGNS, comparisons


def test_quick_study_runs_every_design_and_is_checked_against_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--quick", "-o", str(tmp_path), "--work", str(tmp_path / "runs")]
    assert main(["reproduce", "cascade", *options]) == 0
    said = capsys.readouterr().out
    facts = json.loads((tmp_path / "cascade-quick.json").read_text())
    rows = {(row["design"], row["rate_rps"]): row for row in facts["rows"]}
    assert {design for design, _ in rows} == set(DESIGNS)
    assert all(name in said for name in comparisons(facts))
    assert rows["light alone", None]["light"] == 1.0
    assert rows["heavy alone", None]["light"] == 0.0
    assert rows["light alone", None]["fid"] == 22.77
    assert (tmp_path / "cascade-quick.svg").stat().st_size > 10_000
    assert main(["reproduce", "cascade", *options, "--check"]) == 0
    assert "0 lost" in capsys.readouterr().out
