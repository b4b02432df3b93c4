"""The targets: all are present, and a malformed file is refused in one line."""

from pathlib import Path

import pytest
import yaml

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import sweep
from mezzotint.sim.papers.scorecard.scorecard import MEASURES, load_study
from mezzotint.sim.papers.scorecard.targets import load_reasons, load_targets

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


def written(tmp_path: Path, *entries: str) -> Path:
    path = tmp_path / "targets.yaml"
    path.write_text("one:\n" + "".join(f"- {{{entry}}}\n" for entry in entries))
    return path


def test_every_target_of_every_system_is_present() -> None:
    targets = load_study(None, quick=False).targets
    assert {system: [target.id for target in listed] for system, listed in targets.items()} == {
        system: ids.split() for system, ids in IDS.items()
    }
    scored = [target for listed in targets.values() for target in listed if target.role in ("predict", "order")]
    assert len(scored) == 106


def test_every_measure_has_a_target_and_its_experiments_a_quick_form() -> None:
    assert set(MEASURES) <= {each for ids in IDS.values() for each in ids.split()}
    quick = load_study(None, quick=True)
    assert set(quick.experiments()) <= set(quick.overrides)
    fits = {target.id for target in quick.targets["nirvana"] if target.role == "fit"}
    assert all("fitted" in MEASURES[name].fixed_by for name in fits)


def test_unknown_system_is_refused() -> None:
    assert list(load_study("modm", quick=False).targets) == ["modm"]
    with pytest.raises(ConfigError, match="found the system 'niravna', expected one of nirvana, modm"):
        load_study("niravna", quick=False)


def test_sweep_has_the_points_hydra_would_run() -> None:
    points = sweep("nirvana-figure13", ["trace.requests=10"])
    assert [point.choices for point in points] == [{"system": "vanilla"}, {"system": "nirvana"}]
    assert points[0].command == "mezzotint run experiment=nirvana-figure13 trace.requests=10 system=vanilla"
    (fixed,) = sweep("nirvana-figure13", ["system=vanilla"])
    assert fixed.overrides == ("experiment=nirvana-figure13", "system=vanilla")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("id: X1, what: a, role: predict, value: high", r"one\.0\.value\.float: .*, found 'high'"),
        ("id: X1, what: a, role: guess, value: 1.0", r"one\.0\.role: .*found 'guess'"),
        ("id: X1, what: a, role: predict, worth: 1.0", r"one\.0\.worth: extra inputs"),
        ("what: a, role: predict, value: 1.0", r"one\.0\.id: field required"),
        ("id: X1, what: a, role: predict, value: 1.0, rel_tol: -0.1", r"rel_tol: .*greater than 0"),
        ("id: X1, what: a, role: predict, value: 1.0, rel_tol: 0.1, abs_tol: 0.1", "rel_tol and abs_tol exclude"),
        ("id: X1, what: a, role: predict, value: 1.0, at_least: 0.5", "value and at_least exclude"),
        ("id: X1, what: a, role: predict, at_least: 0.5, abs_tol: 0.1", "abs_tol does not go with at_least"),
        ("id: X1, what: a, role: predict, value: 0.0", "a value of 0 needs abs_tol"),
        ("id: X1, what: a, role: order, value: 1.0", "an ordering is true or false and has no value"),
    ],
)
def test_malformed_target_is_refused(tmp_path: Path, entry: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load_targets(written(tmp_path, entry))
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path))


@pytest.mark.parametrize("content", ["- a\n", "one: 3\n", "one: [3]\n", "one: {", "\x00", ""])
def test_malformed_targets_file_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        load_targets(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_targets(tmp_path / "absent.yaml")


def test_duplicate_target_id_is_refused(tmp_path: Path) -> None:
    entry = "id: X1, what: a, role: order"
    with pytest.raises(ConfigError, match="found the id X1 twice"):
        load_targets(written(tmp_path, entry, entry))


def test_reasons_must_name_existing_targets(tmp_path: Path) -> None:
    targets = load_targets(written(tmp_path, "id: X1, what: a, role: order"))
    path = tmp_path / "reasons.yaml"
    path.write_text("X1: >-\n  because\n  of that\n")
    assert load_reasons(path, targets) == {"X1": "because of that"}
    for wrong, message in (
        ({"X2": "why"}, "found X2, expected a target's id"),
        ({"X1": 3}, r"X1\.str: input should be a valid string, found 3"),
        ([1], "valid dictionary"),
    ):
        path.write_text(yaml.safe_dump(wrong))
        with pytest.raises(ConfigError, match=message):
            load_reasons(path, targets)
    path.write_text("")
    assert load_reasons(path, targets) == {}


def test_each_tolerance_has_an_origin() -> None:
    study = load_study(None, quick=False)
    toleranced = {
        each.id for listed in study.targets.values() for each in listed if each.role == "predict" and each.tolerance
    }
    assert set(study.tolerances) == toleranced
