"""The columns of the scorecard: a trace beside the built-in one, one column after the other, and no text of the
trace."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers import runs as points
from mezzotint.sim.papers.runs import Runs
from mezzotint.sim.papers.scorecard.columns import SYNTHETIC, ColumnTrace, read_columns
from mezzotint.sim.papers.scorecard.measures.formulas import TargetMeasure, latency_s
from mezzotint.sim.papers.scorecard.measures.interpretations import CAPACITIES as READ_AT
from mezzotint.sim.papers.scorecard.measures.interpretations import EXPERIMENTS, READINGS, Interpretation, measure
from mezzotint.sim.papers.scorecard.measures.observations import Observation
from mezzotint.sim.papers.scorecard.scorecard import (
    BUILT_IN,
    Scorecard,
    Study,
    add_earlier_columns,
    load_study,
    make,
    write,
)
from mezzotint.sim.papers.scorecard.targets import Layers, Target
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
MEASURES = {
    "A1": TargetMeasure((COSTS,), latency_s("vanilla"), "C: a profile"),
    "A2": TargetMeasure((COSTS,), latency_s("nirvana"), "C: a profile"),
}
REASONS = {"A2": {SYNTHETIC: "made up", "log": "real"}}
SMALL = ("trace.requests=60", "trace.history=50", "preload=10")
GROUND = Layers(ground={target.id: "for trying out" for listed in TARGETS.values() for target in listed})
STUDY = Study(TARGETS, MEASURES, REASONS, {COSTS: SMALL}, "for trying out", layers=GROUND)
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
    write(card, tmp_path / "out", "scorecard")
    paths = [tmp_path / "out" / f"scorecard.{kind}" for kind in ("md", "json")]
    page = paths[0].read_text()
    for line in ("| one | synthetic | ground | 1 | 1 | 0 | 0 | 0 |", "| one | log | ground | 1 | 1 | 0 | 0 | 0 |"):
        assert line in page.splitlines()
    assert "- **A2 (synthetic)**: made up" in page
    for path in paths:
        text = path.read_text()
        assert "heliotrope" not in text
        assert str(tmp_path) not in text, "the page goes to others"


def test_columns_made_separately_equal_columns_made_together(
    tmp_path: Path, log: ColumnTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, folder = tmp_path / "work", tmp_path / "out"
    both = make(STUDY, work, traces=[ColumnTrace(), log])
    json_path = folder / "scorecard.json"
    for feed in (log, ColumnTrace()):
        whole, dropped = add_earlier_columns(make(STUDY, work, traces=[feed]), json_path)
        assert dropped == []
        write(whole, folder, "scorecard")
    assert read_columns(json_path) == both.columns
    write(both, tmp_path / "at-once", "scorecard")
    assert (tmp_path / "at-once/scorecard.md").read_bytes() == (folder / "scorecard.md").read_bytes()

    stricter = replace(STUDY, reasons={"A2": "found since"})
    whole, _ = add_earlier_columns(Scorecard(stricter, both.columns[:1], {}), json_path)
    assert whole.columns[1].rows[1].reason == "found since", "a kept column is judged anew"
    more = {"one": [*TARGETS["one"], Target(id="A3", what="new", role="order")]}
    layers = Layers(ground=GROUND.ground | {"A3": "new"})
    asked = replace(STUDY, targets=more, layers=layers)
    assert add_earlier_columns(Scorecard(asked, both.columns[:1], {}), json_path)[1] == ["log"]
    monkeypatch.setattr(key, "arithmetic", lambda: "another")
    whole, dropped = add_earlier_columns(make(STUDY, work), json_path)
    assert dropped == ["log"]
    assert [column.name for column in whole.columns] == [SYNTHETIC]


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
    [
        ("nirvana-table2", False), ("patchedserve-figure11", True), ("swiftdiffusion-figure11", True),
        ("swiftdiffusion-patch-step", True), ("swiftdiffusion-slow-storage", True), ("swiftdiffusion-production", True),
    ],
)  # fmt: skip
def test_experiment_with_sizes_or_addons_keeps_its_own_requests(experiment: str, keeps: bool, log: ColumnTrace) -> None:
    """A trace of prompts has neither; each of their points composes on it too."""
    own = ("seed=1",)
    overrides = log.overrides(experiment, own)
    assert (overrides == own) is keeps
    assert keeps or "trace=file" in overrides
    points.composed(points.sweep(experiment, overrides)[0])


def test_target_that_needs_real_prompts_runs_on_a_trace_only(tmp_path: Path, log: ColumnTrace) -> None:
    asked = Target(id="A2", what="latency of nirvana [s]", role="predict", value=1.0, needs="a reader")
    measures = {"A2": replace(MEASURES["A2"], real_prompts=True)}
    study = replace(STUDY, targets={"one": [asked]}, measures=measures)
    ours, its = (column.rows[0] for column in make(study, tmp_path / "work", traces=[ColumnTrace(), log]).columns)
    assert (ours.verdict, ours.reason) == ("not run", "needs prompts that people wrote; needs a reader")
    assert (its.verdict, its.reason, its.requests) == ("outside", "real", 50)


def test_observation_sentence_follows_from_its_numbers() -> None:
    seen = Observation("sessions", {"near": 0.5, "far": 0.3}, True)
    assert seen.sentence() == "as in the paper: near 0.500, far 0.300 (differences -0.200)"
    assert replace(seen, as_seen=False).sentence().startswith("not as in the paper: ")
    assert Observation("sessions", {}, None, "no users").sentence() == "not measured: no users"


def test_readings_and_observations_name_no_user_path(
    tmp_path: Path, log: ColumnTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing readings and observations give the reason, with a command that names the file."""
    monkeypatch.setattr("mezzotint.sim.papers.scorecard.scorecard.INTERPRETED", ())
    why = f"not simulated: mezzotint run trace.path={log.path}"
    monkeypatch.setattr(
        "mezzotint.sim.papers.scorecard.scorecard.measure", lambda runs: [Interpretation("a", "lru", None, None, why)]
    )
    table2 = {"A2": TargetMeasure((TABLE2,), latency_s("nirvana"), "")}
    looked = replace(
        STUDY, measures=table2, overrides={TABLE2: ("system=nirvana", "preload=80")}, with_interpretations=True
    )
    (column,) = make(looked, tmp_path / "work", traces=[log]).columns
    assert [one.reason for one in column.readings] == ["not simulated: mezzotint run trace.path=kept.parquet"]
    assert len(column.observations) == 3
    for seen in column.observations:
        assert "leave nothing of the 80 requests" in (seen.reason or "")
        assert "kept.parquet" in (seen.reason or "")
    assert str(tmp_path) not in json.dumps(asdict(column))


def test_duplicate_or_missing_column_name_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["reproduce", "swiftdiffusion", "-o", str(tmp_path), "--work", str(tmp_path / "work")]
    for more, message in (
        (["--only-trace"], "add --trace FILE"),
        (["--name", "log"], "without a trace"),
        (["--trace", "a.parquet", "--name", "synthetic"], "the columns that need no trace"),
        (["--trace", "a.parquet", "--trace", "b/a.parquet"], "each once"),
        (["--trace", "a.parquet", "--check"], "leave it out"),
        (["--trace", str(tmp_path / "absent.parquet")], "absent.parquet"),
    ):
        assert main([*words, *more]) == 2
        assert message in capsys.readouterr().err


def test_scorecard_of_an_earlier_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"rows": []}))
    with pytest.raises(ConfigError, match="make it again"):
        read_columns(tmp_path / "old.json")


def test_every_reading_is_a_point_of_its_experiment() -> None:
    """The page lists exactly the runs: each policy at each capacity, once."""
    for experiment in EXPERIMENTS:
        points_of = [each.choices for each in points.sweep(experiment)]
        listed = {policy for _, of, policies in READINGS if of == experiment for policy in policies}
        wanted = {(policy, str(capacity)) for policy in listed for capacity in READ_AT}
        found = [(choice["eviction"], choice["cache.capacity"]) for choice in points_of]
        assert wanted <= set(found)
        assert len(found) == len(set(found))
    made = [
        (points.Point(of, {"eviction": policy, "cache.capacity": str(size)}, ()), f"{policy} failed")
        for _, of, policies in READINGS
        for policy in policies
        for size in READ_AT
    ]
    readings = measure(Runs(tuple(made)))
    assert len(readings) == sum(len(policies) for _, _, policies in READINGS)
    assert all(one.hit_rate is None and f"{one.policy} failed" in (one.reason or "") for one in readings)


def test_each_target_belongs_to_a_layer_and_those_of_both_to_two() -> None:
    study = load_study(None, quick=False)
    mechanism, ground = (
        {each.id for listed in column.targets(study.targets, study.layers).values() for each in listed}
        for column in BUILT_IN
    )
    assert mechanism | ground == {each.id for listed in study.targets.values() for each in listed}
    assert mechanism & ground == {"N08-order", "M12", "M14"}
    assert study.layers.described("N09") == "ground: holes"
    assert study.layers.described("M14") == "both: its cache fills"
    assert study.layers.described("P1") == "mechanism"


def test_the_mechanism_declares_the_hits_of_the_systems_that_have_them() -> None:
    whole = load_study("modm", quick=False)
    asked = {"modm-figure7", "modm-figure7-mjhq", "modm-figure9", "modm-figure9-nirvana", "modm-figure11"}
    few = [each for each in whole.targets["modm"] if each.id in whole.measures]
    few = [each for each in few if asked.issuperset(whole.measures[each.id].experiments)]
    study = replace(whole, targets={"modm": few})
    assert asked <= set(study.experiments(BUILT_IN[0]))
    points = study.points(BUILT_IN[0])
    declared = {(point.experiment, point.choices.get("system")): "hits=modm" in point.overrides for point in points}
    assert declared["modm-figure7", "modm-throughput"]
    assert not declared["modm-figure7", "vanilla"]
    assert not any(of for (experiment, _), of in declared.items() if experiment in ("modm-figure11", "modm-figure9"))
    mjhq = [point for point in points if point.experiment == "modm-figure7-mjhq"]
    assert mjhq
    assert not any("hits=" in word for point in mjhq for word in point.overrides), "it declares its own"
    assert not any("hits=" in word for point in study.points(BUILT_IN[1]) for word in point.overrides)


def test_another_encoder_is_a_column_of_the_systems_that_compare_texts(log: ColumnTrace) -> None:
    study = load_study(None, quick=False)
    column = replace(log, name="log minilm", encoder="minilm")
    assert list(column.targets(study.targets, study.layers)) == ["nirvana"]
    points = study.points(column)
    assert points
    assert all(("encoder=minilm" in point.overrides) == (point.experiment != "nirvana-table5-bert") for point in points)
    assert not any("trace.requests=" in word for point in points for word in point.overrides)
