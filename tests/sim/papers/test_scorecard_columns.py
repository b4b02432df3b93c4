"""The columns of the scorecard: a trace beside the built-in one, one column after the other, and no text of the
trace."""

from dataclasses import replace
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.papers import runs
from mezzotint.sim.papers.scorecard.columns import SYNTHETIC, ColumnTrace
from mezzotint.sim.papers.scorecard.measures import interpretations
from mezzotint.sim.papers.scorecard.measures.formulas import Formula
from mezzotint.sim.papers.scorecard.measures.interpretations import READINGS, SIZES, Interpretation
from mezzotint.sim.papers.scorecard.measures.observations import Observation
from mezzotint.sim.papers.scorecard.rows import LATER, Column, read_columns
from mezzotint.sim.papers.scorecard.scorecard import BUILT_IN, add_earlier_columns, make, write
from mezzotint.sim.papers.scorecard.study import Entry, Study, load_study
from mezzotint.sim.papers.scorecard.targets import Target
from mezzotint.sim.run import run_key as key
from mezzotint.traces.sources.file import File
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.trace import make as made_trace
from mezzotint.traces.table.trace import write as write_trace

COSTS, TABLE2 = "nirvana-figure13", "nirvana-table2"
TARGETS = {
    "one": [
        Target(id="A1", what="latency of vanilla [s]", role="predict", value=8.59, rel_tol=0.001),
        Target(id="A2", what="latency of nirvana [s]", role="predict", value=1.0),
    ]
}
ENTRIES = {
    "A1": Entry(
        measure=Formula(value="latency_s.mean", of={"system": "vanilla"}), experiments=(COSTS,), ground="trial"
    ),
    "A2": Entry(
        measure=Formula(value="latency_s.mean", of={"system": "nirvana"}),
        experiments=(COSTS,),
        ground="trial",
        reason={SYNTHETIC: "made up", "log": "real"},
    ),
}
SMALL = ("trace.requests=60", "trace.history=50", "preload=10", "arrivals=closed")
STUDY = Study(TARGETS, ENTRIES, {COSTS: SMALL}, "for trying out")
TWO = replace(
    STUDY,
    targets=TARGETS | {"two": [Target(id="B1", what="mean latency [s]", role="predict", value=2.0)]},
    entries=ENTRIES | {"B1": ENTRIES["A1"]},
)
SECRET = "heliotrope quince"


@pytest.fixture
def log(tmp_path: Path) -> ColumnTrace:
    """A trace of 80 requests in a file."""
    rows = range(80)
    columns = {
        "request_id": [f"r{n}" for n in rows],
        "arrival_s": [float(n) for n in rows],
        "prompt": [f"{SECRET} number {n % 20}" for n in rows],
    }
    write_trace(made_trace(columns, name="a log", source="a service"), tmp_path / "kept.parquet")
    return ColumnTrace("log", tmp_path / "kept.parquet")


def test_every_column_has_every_row_and_its_own_reasons(tmp_path: Path, log: ColumnTrace) -> None:
    card = make(STUDY, tmp_path / "work", traces=[ColumnTrace(), log])
    assert [column.name for column in card.columns] == [SYNTHETIC, "log"]
    ours, its = (column.rows for column in card.columns)
    assert [row.id for row in ours] == [row.id for row in its] == ["A1", "A2"]
    assert (ours[1].reason, its[1].reason) == ("made up", "real")
    assert ours[1].requests == its[1].requests == 50, "as many as the experiment asks for"
    assert ours[1].trace != its[1].trace
    write(card.columns, STUDY, tmp_path / "out", "scorecard")
    for kind in ("md", "json"):
        text = (tmp_path / f"out/scorecard.{kind}").read_text()
        assert "heliotrope" not in text
        assert str(tmp_path) not in text, "the page goes to others"


def test_columns_made_separately_equal_columns_made_together(
    tmp_path: Path, log: ColumnTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, folder = tmp_path / "work", tmp_path / "out"
    both = make(STUDY, work, traces=[ColumnTrace(), log])
    earlier: list[Column] = []
    for trace in (log, ColumnTrace()):
        earlier, older = add_earlier_columns(make(STUDY, work, traces=[trace]), earlier, STUDY)
        assert older == {}
        write(earlier, STUDY, folder, "scorecard")
    assert read_columns(folder / "scorecard.json") == earlier == both.columns

    one = replace(both, columns=both.columns[:1])
    found_since = ENTRIES | {"A2": ENTRIES["A2"].model_copy(update={"reason": "found since"})}
    whole, _ = add_earlier_columns(one, earlier, replace(STUDY, entries=found_since))
    assert whole[1].rows[1].reason == "found since", "a kept column is judged anew"
    more = {"one": [*TARGETS["one"], Target(id="A3", what="new", role="order")]}
    asked = replace(STUDY, targets=more, entries=ENTRIES | {"A3": Entry(ground="new")})
    whole, _ = add_earlier_columns(one, earlier, asked)
    assert (whole[1].rows[2].verdict, whole[1].rows[2].reason) == ("not run", LATER)
    monkeypatch.setattr(key, "arithmetic", lambda: "another")
    whole, older = add_earlier_columns(make(STUDY, work), earlier, STUDY)
    assert older == {"log": ["one"]}
    assert [column.name for column in whole] == [SYNTHETIC, "log"]
    assert whole[1].follows_from == both.columns[1].follows_from != whole[0].follows_from


def test_one_paper_leaves_the_rows_of_the_others(
    tmp_path: Path, log: ColumnTrace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In every column, in the order of the whole, with readings and observations, and each row says how old it is."""

    def asked(system: str | None, *, quick: bool) -> Study:
        return TWO if system is None else replace(TWO, targets={system: TWO.targets[system]})

    def rows() -> dict[str, dict[str, tuple[object, str]]]:
        columns = read_columns(folder / "scorecard.json")
        return {column.name: {row.id: (row.ours, row.made) for row in column.rows} for column in columns}

    monkeypatch.setattr("mezzotint.sim.papers.scorecard.study.load_study", asked)
    folder, trace = tmp_path / "out", ["--trace", str(log.path), "--name", "log"]
    words = ["-o", str(folder), "--work", str(tmp_path / "work")]
    whole = make(TWO, tmp_path / "work", traces=[ColumnTrace(), log]).columns
    reading = Interpretation("a reading", "lru", [0.5], [0.1])
    seen = Observation("what is seen", {"share": 0.5}, True)
    whole = [replace(column, readings=[reading], observations=[seen]) for column in whole]
    write(whole, TWO, folder, "scorecard")
    first = rows()
    assert [*first["log"]] == ["A1", "A2", "B1"]

    assert main(["reproduce", "two", *words, *trace]) == 0
    assert rows() == first
    for column in read_columns(folder / "scorecard.json"):
        assert (column.readings, column.observations) == ([reading], [seen])
    monkeypatch.setattr(key, "arithmetic", lambda: "another")
    capsys.readouterr()
    assert main(["reproduce", "two", *words, *trace, "--only-trace"]) == 0
    printed = capsys.readouterr()
    assert "the rows of one in the column log are kept and come from other code" in printed.err
    assert "the rows of one, two in the column synthetic are kept" in printed.err
    now, age = rows(), f"{whole[0].made}, code and settings {whole[0].follows_from}"
    assert now["synthetic"] == first["synthetic"]
    assert now["log"] == {name: (ours, age if name != "B1" else "") for name, (ours, _) in first["log"].items()}
    assert f"- **log** ({age})" in (folder / "scorecard-one-ground.md").read_text()
    assert f"- **log** ({age})" not in (folder / "scorecard-two-ground.md").read_text()
    assert f"rows of one are of {age}): the requests" in (folder / "scorecard.md").read_text()
    assert main(["reproduce", "one", *words, *trace]) == 0
    assert {made for _, made in rows()["log"].values()} == {""}, "all of it is of the present code now"

    write_trace(File(path=log.path, requests=70).load(None), tmp_path / "log.parquet")  # type: ignore[arg-type]
    before = (folder / "scorecard.json").read_bytes()
    capsys.readouterr()
    assert main(["reproduce", "one", *words, "--trace", str(tmp_path / "log.parquet")]) == 2
    assert "the column 'log', whose rows of two are of the requests of a trace file (80" in capsys.readouterr().err
    (folder / "scorecard.json").write_text("{}")
    assert main(["reproduce", "one", *words]) == 2
    assert "found no scorecard of this version; move it away" in capsys.readouterr().err
    (folder / "scorecard.json").write_bytes(before)


def test_trace_key_depends_on_content_and_not_on_path(tmp_path: Path, log: ColumnTrace) -> None:
    assert log.path is not None
    config = {"trace": {"path": str(log.path), "requests": 9}}
    moved = tmp_path / "moved.parquet"
    moved.write_bytes(log.path.read_bytes())
    assert key.digest(config) == key.digest({"trace": {"path": str(moved), "requests": 9}})
    assert key.digest(config) != key.digest({"trace": {"path": str(moved), "requests": 8}})
    write_trace(File(path=log.path, requests=70).load(None), moved)  # type: ignore[arg-type]
    assert key.digest(config) != key.digest({"trace": {"path": str(moved), "requests": 9}})


def test_target_that_a_short_trace_cannot_give_is_not_run(tmp_path: Path, log: ColumnTrace) -> None:
    assert log.path is not None
    short: Trace = File(path=log.path, requests=8).load(None)  # type: ignore[arg-type]
    write_trace(short, tmp_path / "short.parquet")
    (column,) = make(STUDY, tmp_path / "work", traces=[ColumnTrace("log", tmp_path / "short.parquet")]).columns
    assert [row.verdict for row in column.rows] == ["not run", "not run"]
    assert "leave nothing of the 8 requests" in (column.rows[0].reason or "")


@pytest.mark.parametrize(
    ("experiment", "keeps"),
    [("nirvana-table2", False), ("patchedserve-figure11", True), ("swiftdiffusion-production", True)],
)
def test_experiment_with_sizes_or_addons_keeps_its_own_requests(experiment: str, keeps: bool, log: ColumnTrace) -> None:
    """A trace of prompts has neither; each of their points composes on it too."""
    own = ("seed=1",)
    overrides = log.overrides(experiment, own)
    assert (overrides == own) is keeps
    assert keeps or "trace=file" in overrides
    runs.compose_point(runs.sweep(experiment, overrides)[0])


def test_target_that_needs_real_prompts_runs_on_a_trace_only(tmp_path: Path, log: ColumnTrace) -> None:
    asked = Target(id="A2", what="latency of nirvana [s]", role="predict", value=1.0, needs="a reader")
    entries = {"A2": ENTRIES["A2"].model_copy(update={"real_prompts": True})}
    study = replace(STUDY, targets={"one": [asked]}, entries=entries)
    ours, its = (column.rows[0] for column in make(study, tmp_path / "work", traces=[ColumnTrace(), log]).columns)
    assert (ours.verdict, ours.reason) == ("not run", "needs prompts that people wrote; needs a reader")
    assert (its.verdict, its.reason, its.requests) == ("outside", "real", 50)


def test_readings_and_observations_name_no_user_path(tmp_path: Path, log: ColumnTrace) -> None:
    """Missing readings and observations give the reason, with a command that names the file."""
    entries = {"A2": ENTRIES["A2"].model_copy(update={"experiments": (TABLE2,)})}
    words = ("system=nirvana", "preload=80", "eviction=lru", "cache.capacity=50")  # one point of each experiment
    overrides = dict.fromkeys((TABLE2, *interpretations.EXPERIMENTS), words)
    study = replace(STUDY, entries=entries, overrides=overrides, with_interpretations=True)
    (column,) = make(study, tmp_path / "work", traces=[log]).columns
    assert len(column.observations) == 3
    for listed in (column.readings, column.observations):
        for result in listed:
            assert "kept.parquet" in (result.reason or "")
            assert str(tmp_path) not in (result.reason or "")


def test_every_reading_is_a_point_of_its_experiment() -> None:
    """The page lists exactly the runs: each policy at each capacity, once."""
    listed = [
        (experiment, policy, str(size)) for _, experiment, policies in READINGS for policy in policies for size in SIZES
    ]
    points = [point for experiment in interpretations.EXPERIMENTS for point in runs.sweep(experiment)]
    swept = [(point.experiment, point.choices["eviction"], point.choices["cache.capacity"]) for point in points]
    assert set(listed) <= set(swept)
    assert len(swept) == len(set(swept))


def test_the_mechanism_declares_the_hits_of_the_systems_that_have_them() -> None:
    whole = load_study("modm", quick=False)
    asked = {"modm-figure7", "modm-figure7-mjhq"}
    few = [target for target in whole.targets["modm"] if asked.issuperset(whole.entry(target.id).experiments)]
    study = replace(whole, targets={"modm": few})
    assert asked <= set(study.experiments(BUILT_IN[0]))
    points = study.points(BUILT_IN[0])
    declared = {(point.experiment, point.choices.get("system")): "hits=modm" in point.overrides for point in points}
    assert declared["modm-figure7", "modm-throughput"]
    assert not declared["modm-figure7", "vanilla"]
    mjhq = [point for point in points if point.experiment == "modm-figure7-mjhq"]
    assert mjhq
    assert not any("hits=" in word for point in mjhq for word in point.overrides), "it declares its own"
    assert not any("hits=" in word for point in study.points(BUILT_IN[1]) for word in point.overrides)


def test_another_encoder_is_a_column_of_the_systems_that_compare_texts(log: ColumnTrace) -> None:
    study = load_study(None, quick=False)
    column = replace(log, name="log minilm", encoder="minilm")
    assert list(study.in_column(column)) == ["nirvana"]
    points = study.points(column)
    assert points
    own = {"nirvana-table5-bert", "nirvana-table2-gpt-cache"}
    assert all(("encoder=minilm" in point.overrides) == (point.experiment not in own) for point in points)
    assert not any("trace.requests=" in word for point in points for word in point.overrides)
