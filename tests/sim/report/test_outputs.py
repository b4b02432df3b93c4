"""An output replaces the same command's earlier files and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.files.atomic import check_ours
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.pages import write_page

Fabricate = Callable[..., Path]

NOTES = b"# My notes\nkeep these\n"


@pytest.fixture
def place(tmp_path: Path, fabricate: Fabricate, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a finished run, a trace and notes."""
    monkeypatch.chdir(tmp_path)
    fabricate("g", "vanilla", requests=30)
    assert main(["trace", "synth", "-o", "keep.parquet", "--requests", "30"]) == 0
    for name in ("notes.md", "g_m.yaml"):
        (tmp_path / name).write_bytes(NOTES)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "victim"),
    [
        (["report", "g", "-o", "g/requests.parquet"], "g/requests.parquet"),
        (["report", "g", "-o", "notes.md"], "notes.md"),
        (["report", "g", "--format", "vllm-omni", "-o", "g/summary.json"], "g/summary.json"),
        (["trace", "synth", "-o", "notes.md", "--requests", "5"], "notes.md"),
        (["trace", "pair", "keep.parquet", "keep.parquet", "-o", "g/config.yaml"], "g/config.yaml"),
        (["trace", "import", "prompts", "notes.md", "-o", "notes.md"], "notes.md"),
        (["trace", "export", "keep.parquet", "--format", "sglang", "-o", "keep.parquet"], "keep.parquet"),
        (["trace", "export", "keep.parquet", "--format", "vllm-omni", "-o", "notes.md"], "notes.md"),
        (["trace", "compare", "keep.parquet", "keep.parquet", "-o", "keep.parquet"], "keep.parquet"),
        (["calibrate", "log", "keep.parquet", "--gpu", "g", "--model", "m", "-o", "."], "g_m.yaml"),
        (["calibrate", "log", "keep.parquet", "--gpu=x", "--model=m", "-o", ".", "--page=notes.md"], "notes.md"),
        (["calibrate", "similarity-map", "--trace", "keep.parquet", "-o", "notes.md"], "notes.md"),
    ],
)  # fmt: skip
def test_output_never_overwrites_a_file_of_another_kind(
    words: list[str], victim: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (place / victim).read_bytes()
    capsys.readouterr()
    assert main(words) == 2
    assert (place / victim).read_bytes() == before
    error = capsys.readouterr().err
    assert "would be overwritten; name another path, or remove it first" in error
    assert Path(victim).name in error


def test_study_never_overwrites_another_page(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"notes\.md: is not a page of this study and would be overwritten"):
        write_page(place, "notes", {}, "# A study\n", {})
    assert (place / "notes.md").read_bytes() == NOTES


@pytest.mark.parametrize(
    "words",
    [
        ["report", "g", "-o", "page.html"],
        ["report", "g"],
        ["trace", "synth", "-o", "keep.parquet", "--requests", "5"],
        ["trace", "export", "keep.parquet", "--format", "sglang", "-o", "out.jsonl"],
        ["trace", "export", "keep.parquet", "--format", "vllm-omni", "-o", "out.txt"],
        ["trace", "compare", "keep.parquet", "keep.parquet", "-o", "page.md"],
    ],
)
def test_output_replaces_that_of_the_same_command(words: list[str], place: Path) -> None:
    assert main(words) == 0
    assert main(words) == 0


def test_empty_file_may_be_overwritten(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    check_ours(tmp_path / "made", ValueError, "a report", b"<")
    check_ours(tmp_path / "absent", ValueError, "a report", b"<")
    (tmp_path / "made").write_bytes(b"<other>")
    with pytest.raises(ValueError, match=r"made: is not a report and would be overwritten"):
        check_ours(tmp_path / "made", ValueError, "a report", b"<", b"mezzotint")
