"""The report as a file: whole, self-contained, repeatable, and clear about missing values."""

import base64
import re
import warnings
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mezzotint.figures.page import DASH
from mezzotint.files.printable import printable
from mezzotint.sim.cli import main
from mezzotint.sim.report.compare import beyond_noise, cells
from mezzotint.sim.report.report import write_report
from mezzotint.sim.report.runs import Run, load_runs
from mezzotint.sim.report.tables import Entry, assumptions, columns, comparison, verdicts

Fabricate = Callable[..., Path]


class Page(HTMLParser):
    """Collects the cells of the page's tables by row, and every attribute that could fetch something."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.text = ""
        self.tags: list[str] = []
        self.in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.in_cell &= tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.in_cell:
            self.rows[-1][-1] += data


@pytest.fixture
def four(fabricate: Fabricate, tmp_path: Path) -> Path:
    for system in ("vanilla", "pinecone", "nirvana", "modm-throughput"):
        fabricate(f"runs/{system}", system, rate_rpm=20.0, requests=400)
    return tmp_path / "runs"


def test_same_runs_give_the_same_report_bytes(four: Path, tmp_path: Path) -> None:
    first, second = (write_report([four], tmp_path / name / "r.html") for name in ("a", "b"))
    assert first[0].read_bytes() == second[0].read_bytes()
    assert [path.read_bytes() for path in first[1:]] == [path.read_bytes() for path in second[1:]]


def test_report_page_is_self_contained(four: Path) -> None:
    report = write_report([four])
    assert report[0] == four / "report.html"
    page = Page(report[0].read_text())
    assert len(page.links) == len(report[1:]) == page.tags.count("noscript") - 1 == 5
    for link, figure in zip(page.links, report[1:], strict=True):
        assert base64.b64decode(link.removeprefix("data:image/svg+xml;base64,")) == figure.read_bytes()
    assert not {"link", "iframe"} & set(page.tags)
    assert str(four) not in page.text
    assert sorted(path.name for path in four.iterdir() if path.is_file()) == ["report.html"]


def column(runs: Sequence[Run], title: str) -> dict[str, Entry]:
    """Return a column of the comparison, by series."""
    place = [each.title for each in columns(runs)].index(title)
    return {cell.series: entries[place] for cell, entries in comparison(runs)}


def test_source_ages_are_reported_on_both_clocks(four: Path) -> None:
    runs = load_runs([four])
    for title, minutes in (("Cached age p50", "1.33"), ("Cached age in trace", "2.5")):
        assert column(runs, title)["nirvana"].text == minutes
        assert column(runs, title)["vanilla"].text == DASH
    alone = [run for run in runs if run.system == "vanilla"]
    assert "Cached age p50" not in [each.title for each in columns(alone)]


def test_single_seed_marks_nothing_as_best(four: Path) -> None:
    runs = load_runs([four])
    assert not any(entry.best for _, entries in comparison(runs) for entry in entries)
    assert "With one seed the noise is unknown" in write_report([four])[0].read_text()


def test_best_of_each_load_is_marked_if_seeds_agree(fabricate: Fabricate, tmp_path: Path) -> None:
    for system in ("vanilla", "modm-throughput"):
        for seed in (1, 2, 3):
            fabricate(f"{system}-{seed}", system, rate_rpm=20.0, requests=400, seed=seed)
    runs = load_runs([tmp_path])
    for title in ("Throughput", "Latency p50"):
        assert [name for name, entry in column(runs, title).items() if entry.best] == ["modm-throughput"]
    assert not any(entry.best for entry in column(runs, "GPU busy").values()), "a busier GPU is not better"


def test_difference_within_seed_noise_is_not_marked(fabricate: Fabricate, tmp_path: Path) -> None:
    """The means differ by 0.1, the seeds of each by 2, but not together."""
    rates = {"vanilla": (9.0, 10.0, 11.0), "nirvana": (11.1, 9.0, 10.2)}
    for system, measured in rates.items():
        for seed, rate in enumerate(measured):

            def edit(summary: dict[str, Any], rate: float = rate) -> None:
                summary["throughput_rpm"] = rate

            fabricate(f"{system}-{seed}", system, seed=seed, requests=20, change=edit)
    runs = load_runs([tmp_path])
    assert not any(entry.best for entry in column(runs, "Throughput").values())
    one, other = cells(runs)
    assert not beyond_noise(one, other, "throughput_rpm")


@pytest.mark.parametrize("difference", [0.0, 0.5])
def test_any_difference_is_beyond_zero_noise(difference: float, fabricate: Fabricate, tmp_path: Path) -> None:
    for at, (system, rate) in enumerate((("vanilla", 2.0), ("nirvana", 2.0 + difference)) * 2):
        fabricate(
            str(at), system, seed=at, requests=10, change=lambda summary, rate=rate: summary.update(throughput_rpm=rate)
        )
    one, other = cells(load_runs([tmp_path]))
    assert beyond_noise(one, other, "throughput_rpm") == (difference > 0)


def test_repeated_seed_counts_once(fabricate: Fabricate, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fabricate(name, "vanilla", seed=seed, requests=50)
    runs = load_runs([tmp_path])
    ((cell, _),) = comparison(runs)
    assert len(cell.runs) == 2
    assert "1 of the runs repeat the configuration and seed" in write_report([tmp_path])[0].read_text()


def test_growing_backlog_is_marked(fabricate: Fabricate, tmp_path: Path) -> None:
    def edit(summary: dict[str, Any]) -> None:
        summary["backlog"] = {"grows": True, "per_hour": 9.0, "at_last_arrival": 70}
        summary["throughput_until_last_arrival_rpm"] = 8.5

    runs = load_runs([fabricate("r", "vanilla", requests=50, change=edit)])
    assert column(runs, "Latency p99")["vanilla"].unstable
    assert not column(runs, "Cost per image")["vanilla"].unstable
    assert column(runs, "Throughput to last arrival")["vanilla"].text == "8.5"
    assert "backlog grows for as long" in write_report([tmp_path / "r"])[0].read_text()


def test_quality_is_reported_beside_speed(fabricate: Fabricate, tmp_path: Path) -> None:
    def edit(summary: dict[str, Any]) -> None:
        known = summary["system"] == "small-model"
        summary["quality"] = {"factor_mean": 0.93} if known else {"factor_mean": None, "reason": "another selector"}

    for system in ("small-model", "nirvana"):
        fabricate(system, system, requests=50, change=edit)
    runs = load_runs([tmp_path])
    assert {name: entry.text for name, entry in column(runs, "Quality").items()} == {
        "nirvana": "–",
        "small-model": "0.93",
    }
    assert "Quality is unknown for nirvana: another selector." in write_report([tmp_path])[0].read_text()


def test_mean_over_seeds_lies_in_its_range(fabricate: Fabricate, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        fabricate(str(seed), "vanilla", seed=seed, rate_rpm=9.0, requests=200)
    ((cell, _),) = comparison(load_runs([tmp_path]))
    assert len(cell.runs) == 3
    entry = column(load_runs([tmp_path]), "Latency mean")["vanilla"]
    low, high = (float(part.replace(",", "")) for part in entry.range.split(" to "))
    assert low <= float(entry.text.replace(",", "")) <= high


def test_shared_assumptions_are_listed_once(fabricate: Fabricate, four: Path) -> None:
    def more(summary: dict[str, Any]) -> None:
        summary["assumptions"] = [{"what": "extrapolated", "value": [1, {"a": 2}], "source": None}]

    fabricate("runs/other", "small-model", change=more, requests=400)
    rows = assumptions(load_runs([four]))
    assert ("extrapolated", '[1, {"a": 2}]', "–", "small-model") in rows
    assert [row[3] for row in rows if row[0] == "model switch time"] == ["modm-throughput, nirvana, pinecone, vanilla"]
    assert len(rows) == 3


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
    """A control character is shown escaped; a script missing from the font gives no warning, and the page has the
    name."""
    configs = [{"frontend": {"role": role}} for role in (name, "large")]
    runs = [fabricate(f"{name}-{at}", requests=20, config=frontend) for at, frontend in enumerate(configs)]
    runs.append(fabricate("own", requests=20, change=lambda summary: summary.update(system=name)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = write_report(runs, tmp_path)[0].read_text(encoding="utf-8")
    shown = printable(name)
    assert shown.isprintable()
    assert f"frontend.role={shown}" in page
    assert f'<th class="name" scope="row">{shown}' in page
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
    verdict = ["–"] * 8
    assert [row for row in page.rows if row][1:3] == [["nothing"], verdict]
    assert ["nothing", "–"] in page.rows, "quality, which is asked for beside speed"
    assert not re.search(r"\bNone\b|\bnan\b|\bnull\b", page.text)


def test_unknown_quantity_has_no_column(fabricate: Fabricate) -> None:
    def unpriced(summary: dict[str, Any]) -> None:
        summary["cost_usd"] = None

    one, other = fabricate("one", change=unpriced), fabricate("other")
    for paths, shown in (([one], False), ([one, other], True)):
        page = Page(write_report(paths)[0].read_text())
        assert ("Cost per image" in page.text) == shown


@pytest.mark.parametrize("section", ["latency_s", "queue_s", "slo", "cache", "gpu", "energy_j", "cost_usd", "trace"])
def test_any_summary_section_may_be_null(fabricate: Fabricate, section: str) -> None:
    def forget(summary: dict[str, Any]) -> None:
        summary[section] = None

    def hollow(summary: dict[str, Any]) -> None:
        summary[section] = {
            key: dict.fromkeys(value) if isinstance(value, dict) else None for key, value in summary[section].items()
        }

    for name, change in (("null", forget), ("hollow", hollow)):
        runs = load_runs([fabricate(name, change=change, requests=10)])
        assert comparison(runs)
        assert verdicts(runs)


def test_run_without_requests_parquet_is_named(four: Path) -> None:
    (four / "nirvana" / "requests.parquet").unlink()
    assert "because they have no requests.parquet: runs/nirvana." in write_report([four])[0].read_text()


def test_figures_of_an_earlier_report_are_removed(four: Path) -> None:
    write_report([four])
    for path in four.glob("*/cluster.parquet"):
        path.unlink()
    report = write_report([four])
    assert sorted(report[1:]) == sorted((four / "figures").iterdir())
    assert len(report[1:]) == 4


def test_reproduction_table_has_seed_trace_and_choices(fabricate: Fabricate) -> None:
    page = Page(write_report([fabricate("r", seed=7, requests=10)])[0].read_text())
    row = next(row for row in page.rows if row[0] == "r")
    assert row[1:5] == ["nirvana", "10 rpm", "7", "synthetic"]
    assert row[5].startswith("sha256:")


def test_report_command_prints_its_files(four: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(four), "-o", str(tmp_path / "new" / "page.html"), "--title", "T"]) == 0
    lines = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == tmp_path / "new" / "page.html"
    assert all(line.is_file() for line in lines)
    assert len(lines) == 6


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


def test_assumption_stated_twice_by_a_run_is_listed_once(fabricate: Fabricate, tmp_path: Path) -> None:
    def twice(summary: dict[str, Any]) -> None:
        summary["assumptions"] = [{"what": "switch time", "value": 1, "source": "a table"}] * 2

    fabricate("one", "vanilla", requests=10, change=twice)
    fabricate("other", "nirvana", requests=10, change=lambda summary: summary.update(assumptions=None))
    assert assumptions(load_runs([tmp_path])) == [("switch time", "1", "a table", "vanilla")]


def test_report_of_many_systems_says_how_many_it_shows(
    fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More systems than a title names, and more strips than fit over time."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, file, **_: file.write(b"rendered"))
    for index in range(13):
        fabricate(f"runs/{index}", f"system-{index}", rate_rpm=9.0, requests=10)
    fabricate("runs/again", "system-0", rate_rpm=9.0, requests=10, seed=2)
    text = Page(write_report([tmp_path / "runs"])[0].read_text()).text
    assert "13 serving systems compared" in text
    assert "12 of 13 series, evenly spaced." in text
    assert text.count("Means over seeds, with their range.") == 4
    assert text.count("Bars are means over seeds.") == 1
