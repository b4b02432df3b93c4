"""The report as a file: whole, self-contained, repeatable, and clear about missing values."""

import base64
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.files.printable import printable
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.report import write_report
from tests.sim.report.conftest import Page

Fabricate = Callable[..., Path]


@pytest.fixture
def four(fabricate: Fabricate, tmp_path: Path) -> Path:
    for system in ("vanilla", "pinecone", "nirvana", "modm-throughput"):
        fabricate(f"runs/{system}", system, rate_rpm=20.0, requests=400)
    return tmp_path / "runs"


def test_report_is_self_contained_and_has_the_same_bytes_again(four: Path, tmp_path: Path) -> None:
    first, second = (write_report([four], tmp_path / name / "r.html") for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert [path.stem for path in first[1:]] == ["cost", "latency", "slo", "throughput", "hits", "over_time"]
    page = Page(first[0].read_text())
    for link, figure in zip(page.fetched, first[1:], strict=True):
        assert base64.b64decode(link.removeprefix("data:image/svg+xml;base64,")) == figure.read_bytes()
    assert not {"link", "iframe"} & set(page.tags)
    assert str(four) not in page.text
    assert first[0].stat().st_size < 2e6


def test_report_command_prints_its_files(four: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(four), "--title", "T"]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0].startswith("work: "), "the header goes to the terminal"
    lines = [Path(line) for line in printed.out.splitlines()]
    assert lines[0] == four / "report.html"
    assert all(line.is_file() for line in lines)
    assert len(lines) == 7


def test_page_has_answer_figures_tables_assumptions_and_command_in_this_order(fabricate: Fabricate) -> None:
    page = write_report([fabricate("r", requests=50)])[0].read_text()
    parts = ['<p class="answer">', 'class="legend"', "<figure", 'class="cards"', "Assumptions", "run --config-path"]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_hostile_strings_stay_text(fabricate: Fabricate) -> None:
    def page_of(folder: str, word: str) -> Page:
        def edit(summary: dict[str, Any]) -> None:
            summary["system"] = word
            summary["trace"] |= {"name": word, "digest": word}
            summary["assumptions"] = [{"what": word, "value": word, "source": word}]
            summary["slo"] = {word: {"limit_s": 1.0, "violation_rate": 0.5}}

        path = fabricate(folder, change=edit, requests=20, config={"system": {"name": word}})
        return Page(write_report([path], title=word)[0].read_text())

    evil = "<script>alert('x')</script>\"&"
    page = page_of("evil", evil)
    assert page.tags == page_of("plain", "harmless").tags
    assert evil in page.text


@pytest.mark.parametrize("name", ["\x1b[31m", "\u202enaiv", "\u7cfb\u7d71"])
def test_control_characters_are_escaped_and_missing_glyphs_give_no_warning(
    name: str, fabricate: Fabricate, tmp_path: Path
) -> None:
    configs = [{"frontend": {"role": role}} for role in (name, "large")]
    runs = [fabricate(f"{name}-{at}", requests=20, config=frontend) for at, frontend in enumerate(configs)]
    runs.append(fabricate("own", requests=20, change=lambda summary: summary.update(system=name)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = write_report(runs, tmp_path)[0].read_text(encoding="utf-8")
    shown = printable(name)
    assert shown.isprintable()
    assert f"frontend.role={shown}" in page
    assert name in page if name.isprintable() else name not in page


def test_report_of_an_all_null_summary_renders(fabricate: Fabricate) -> None:
    def forget(summary: dict[str, Any]) -> None:
        for key in summary.keys() - {"schema"}:
            summary[key] = None

    path = fabricate("nothing", change=forget, requests=20)
    for file in ("requests.parquet", "cluster.parquet", "config.yaml"):
        (path / file).unlink()
    report = write_report([path])
    assert report[1:] == []
    page = Page(report[0].read_text())
    assert "Not drawn, because no run has the data: Cost and the latency limit, Latency distribution" in page.text
    assert '<th scope="col">Quality' in report[0].read_text(), "which is asked for beside speed"
    assert not re.search(r"\bNone\b|\bnan\b|\bnull\b", page.text.partition("Comparison")[2])


def test_run_without_requests_parquet_is_named(four: Path) -> None:
    (four / "nirvana" / "requests.parquet").unlink()
    assert "because they have no requests.parquet: runs/nirvana." in write_report([four])[0].read_text()


def test_points_of_a_sweep_without_a_run_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ["system=vanilla", "seed=1,2,3", "trace.requests=20", "hydra.launcher.n_jobs=1", f"run.dir={folder}"]
    assert main(["run", "-m", *words]) == 0
    for path, said in ((folder / "0/summary.json", False), (folder / "1/summary.json", True)):
        assert main(["report", str(folder)]) == 0
        assert ("have no run" in (folder / "report.html").read_text()) is said
        path.unlink()
    assert main(["report", str(folder)]) == 0
    assert "Of 3 points of the sweep in sweep, 2 have no run, such as 0 (" in (folder / "report.html").read_text()


def test_figures_of_an_earlier_report_are_removed(four: Path) -> None:
    write_report([four])
    for path in four.glob("*/cluster.parquet"):
        path.unlink()
    report = write_report([four])
    assert sorted(report[1:]) == sorted((four / "figures").iterdir())
    assert len(report[1:]) == 5
    for name in ("latency.svg", "over_time.svg"):  # one that the report has, and one that it has not
        path = four / "figures" / name
        path.write_text("<svg>by hand</svg>")
        with pytest.raises(ConfigError, match=rf"{name}: is not a figure of a report"):
            write_report([four])
        path.unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone"], "gone: no such directory"),
        ([".", "--reruns-s", "-1"], "--reruns-s"),
        ([".", "--format", "pdf"], "'vllm-omni'"),
    ],
)
def test_invalid_report_option_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_report_of_many_systems_says_how_many_it_shows(
    fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More systems than a title names, and more lines than fit over time. A repeated run is not counted."""
    monkeypatch.setattr("mezzotint.sim.report.report.svg", lambda spec: b"<svg/>")
    for index in range(13):
        fabricate(f"runs/{index}", f"system-{index}", rate_rpm=9.0, requests=10)
    fabricate("runs/again", "system-0", rate_rpm=9.0, requests=10, seed=2)
    fabricate("runs/repeated", "system-0", rate_rpm=9.0, requests=10, seed=2)
    text = Page(write_report([tmp_path / "runs"])[0].read_text()).text
    for words in ("13 serving systems compared", "12 of 13 series", "Means over seeds", "1 of the runs repeat the"):
        assert words in text
