"""The committed targets and their entries: complete, consistent, and refused in one line if malformed."""

from pathlib import Path

import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import sweep
from mezzotint.sim.papers.scorecard.scorecard import BUILT_IN
from mezzotint.sim.papers.scorecard.study import load_study
from mezzotint.sim.papers.scorecard.targets import load_targets

IDS = {
    "nirvana": "N01a N01b N01c N02a N02b N02c N02d N02e N03a N03b N03c N04a N04b N05 N09 N10a N10b N17 N18 N19a N19b "
    "N07-fifo N07-lru N07-lfu N07-lcbfu N08-fifo N08-lru N08-lfu N08-lcbfu N07-most N08-most N08-order N12a N12b N16",
    "modm": "M01 M02 M03 M04 M05 M06 M07 M08 M10 M11 M12 M13 M14 M15 M15b M16 M17 M18 M19 M20 M21 M22a M22b M22c M23 "
    "M24 M26 M27 M30",
    "patchedserve": "P1 P2 P3 P4 P5 P5b P6 P6b P9 P10 P11 P15",
    "swiftdiffusion": "S1 S2 S3 S4 S5 S6 S7 S8 S13 S15 S16 S18 S21 S25 K1 K4",
    "tetriserve": "T3a T3b T3c T3d T3e T3f T3g T3h T5a T5b T5c T5d T5e T5f T5g T5h T5i T5j T5k T5l T5-latency1 "
    "T5-latency2 T5-latency3 T5-latency4 T5-order T7a T7b T7-uniform T7-skewed T7-rssp",
}

STUDY = load_study(None, quick=False)
TARGETS = {target.id: target for listed in STUDY.targets.values() for target in listed}


def test_every_target_of_every_system_is_present_once() -> None:
    listed = {system: [target.id for target in targets] for system, targets in STUDY.targets.items()}
    assert listed == {system: ids.split() for system, ids in IDS.items()}
    assert len(TARGETS) == sum(map(len, listed.values()))
    assert sum(target.role in ("predict", "order") for target in TARGETS.values()) == 106
    assert list(load_study("modm", quick=False).targets) == ["modm"]


def test_every_target_states_one_value_and_one_tolerance() -> None:
    for target in TARGETS.values():
        stated = [each for each in (target.value, target.at_least, target.at_most) if each is not None]
        allowed = [each for each in (target.rel_tol, target.abs_tol) if each is not None]
        assert len(stated) <= 1, target
        assert len(allowed) <= (target.value is not None), target
        assert target.role != "order" or not stated, target
        assert all(target.values) or target.abs_tol, "no error is relative to 0"


def test_every_entry_has_a_target_and_its_experiments_a_quick_form() -> None:
    assert set(STUDY.entries) <= set(TARGETS)
    quick = load_study(None, quick=True)
    named = {name for entry in quick.entries.values() for name in entry.experiments}
    assert named <= set(quick.overrides)
    assert all(
        "fitted" in STUDY.entry(target.id).fixed_by for target in STUDY.targets["nirvana"] if target.role == "fit"
    )


def test_each_tolerance_has_an_origin() -> None:
    toleranced = {target.id for target in TARGETS.values() if target.role == "predict" and target.tolerance}
    assert {name for name, entry in STUDY.entries.items() if entry.tolerance} == toleranced


def test_each_target_belongs_to_a_layer_and_those_of_both_to_two() -> None:
    mechanism, ground = (
        {target.id for listed in STUDY.in_column(column).values() for target in listed} for column in BUILT_IN
    )
    assert mechanism | ground == set(TARGETS)
    assert mechanism & ground == {"N08-order", "M12", "M14"}


def test_sweep_has_the_points_hydra_would_run() -> None:
    points = sweep("nirvana-figure13", ["trace.requests=10"])
    assert [point.choices for point in points] == [{"system": "vanilla"}, {"system": "nirvana"}]
    assert points[0].command == "mezzotint run experiment=nirvana-figure13 trace.requests=10 system=vanilla"
    (fixed,) = sweep("nirvana-figure13", ["system=vanilla"])
    assert fixed.overrides == ("experiment=nirvana-figure13", "system=vanilla")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("one: [{id: X1, what: a, role: predict, value: high}]", r"one\.0\.value\.float: .*, found 'high'"),
        ("one: [{id: X1, what: a, role: guess}]", r"one\.0\.role: .*found 'guess'"),
        ("one: [{id: X1, what: a, role: predict, worth: 1.0}]", r"one\.0\.worth: extra inputs"),
        ("one: [{what: a, role: predict, value: 1.0}]", r"one\.0\.id: field required"),
        ("one: [{id: X1, what: a, role: predict, value: 1.0, rel_tol: -0.1}]", r"rel_tol: .*greater than 0"),
        ("one: 3\n", "one: "),
        ("one: {", "not valid YAML"),
    ],
)
def test_malformed_target_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message) as error:
        load_targets(path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))
