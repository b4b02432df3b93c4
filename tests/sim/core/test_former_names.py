"""Former names: a run of an earlier version is read, and runs again, in present names."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.former_names import present_config, table
from mezzotint.sim.metrics.run_files import read_config
from mezzotint.sim.run.config.choices import choices, groups

RUNS = Path(__file__).with_name("former_runs")
EXPECTED = json.loads((RUNS / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_former_config_yaml_gives_same_results(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", f"--config-path={RUNS}", f"--config-name={name}", f"run.dir={tmp_path / 'run'}"]
    assert main(words) == 0, capsys.readouterr().err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    found = {key: summary["latency_s"][key] for key in ("mean", "p99")}
    found |= {"hit_rate": summary["cache"]["hit_rate"], "energy_j": summary["energy_j"]["per_image"]}
    known = {key: value for key, value in EXPECTED[name].items() if value is not None}
    assert {key: found[key] for key in known} == pytest.approx(known, rel=1e-12)


def test_report_reads_a_former_run_in_present_names(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((RUNS / "nirvana.yaml").read_text())
    config = read_config(tmp_path)
    assert config["frontend"]["_target_"] == "mezzotint.sim.frontend.cached.CachedFrontEnd"
    assert config["cache"]["evict_by"] == "prompt"
    assert not {*table()["groups"]} & {*config}
    assert present_config(config) == config


@pytest.mark.parametrize("package", ["mezzotint.sim", "sim"])
def test_former_value_of_a_setting_is_read_as_the_present_one(package: str) -> None:
    target = f"{package}.execution.stages.Stages"
    former = {"executor": {"_target_": target, "stages": "apart", "handover": "background"}}
    executor = present_config(former)["executor"]
    assert executor == {
        "_target_": "mezzotint.sim.execution.stages.Stages",
        "stages": "disaggregated",
        "handover": "background",
    }
    assert former["executor"]["stages"] == "apart"
    stages = [{"component": "denoiser", "steps": 1, "max_degree": 1}]
    assert present_config({"executor": executor | {"stages": stages}})["executor"]["stages"] == stages


def test_setting_that_is_gone_is_dropped_if_it_asked_for_nothing() -> None:
    target = "mezzotint.sim.execution.sequential.Sequential"
    assert present_config({"executor": {"_target_": target, "speedup": {}}}) == {"executor": {"_target_": target}}
    asked = {"executor": {"_target_": target, "speedup": {2: 1.5}}}
    assert present_config(asked) == asked


def test_run_with_a_plugin_of_a_former_name_stays() -> None:
    """A plug-in may be called as our folders once were; a run of the present version has a class of ours."""
    config = {
        "scheduler": {"_target_": "mezzotint.sim.scheduling.fcfs.Fcfs"},
        "eviction": {"_target_": "sim.mine.Best"},
    }
    assert present_config(config) == config
    assert present_config({"eviction": {"_target_": "sim.cache.eviction.Lru"}}) == {
        "eviction": {"_target_": "mezzotint.sim.cache.eviction.Lru"}
    }


def test_every_present_name_of_the_table_exists() -> None:
    assert {*table()["groups"].values()} <= {*groups()}
    for group, names in table()["choices"].items():
        assert {*names.values()} <= {choice.name for choice in choices(group)}
    for path in table()["classes"].values():
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path
