"""The committed targets and their entries: complete, consistent, and refused in one line if malformed."""

from pathlib import Path

import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import sweep
from mezzotint.sim.papers.scorecard.scorecard import BUILT_IN
from mezzotint.sim.papers.scorecard.study import load_study
from mezzotint.sim.papers.scorecard.targets import load_targets

STUDY = load_study(None, quick=False)
TARGETS = {target.id: target for listed in STUDY.targets.values() for target in listed}


def test_every_target_has_its_own_id_one_value_and_one_tolerance() -> None:
    assert len(TARGETS) == sum(map(len, STUDY.targets.values()))
    assert list(load_study("modm", quick=False).targets) == ["modm"]
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
    assert toleranced <= {name for name, entry in STUDY.entries.items() if entry.tolerance}


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
        ("one: [{id: X1, what: a, role: predict, worth: 1.0}]", r"one\.0\.worth: there is no such key"),
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


def test_every_row_is_of_one_kind_and_each_paper_declares_its_inputs() -> None:
    for system, listed in STUDY.targets.items():
        assert STUDY.declared[system], system
        for target in listed:
            entry = STUDY.entry(target.id)
            assert [entry.algebra, entry.unprinted, entry.uninformed].count("") >= 2, target.id
            assert (
                target.role == "predict"
                or target.role == "order"
                or not (entry.algebra or entry.unprinted or entry.uninformed)
            )
    named = {name for entry in STUDY.entries.values() for name in entry.experiments}
    assert set(STUDY.seeds) < named
    assert all(len(seeds) >= 5 for seeds in STUDY.seeds.values())
