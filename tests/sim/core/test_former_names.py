"""Former names: a former override is answered with the present one, and an old run still runs."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.former_names import present_config, present_word, table
from mezzotint.sim.metrics.run_files import read_config
from mezzotint.sim.run.config.choices import choices, groups
from tests.identity.forms import former_word

RUNS = Path(__file__).with_name("former_runs")
EXPECTED = json.loads((RUNS / "expected.json").read_text())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("door=nirvana", "door= is now frontend=; write frontend=nirvana"),
        ("door.search_s=0.2", "door.search_s= is now frontend.search_s=; write frontend.search_s=0.2"),
        ("executor=whole-batch", "executor=whole-batch is now executor=static-batch"),
        ("executor=step-by-step", "executor=step-by-step is now executor=continuous-batching"),
        ("executor.limit=4", "executor.limit= is now executor.max_batch="),
        ("space=image", "space= is now similarity=; write similarity=text-to-image"),
        ("~predictor", "predictor= is now match_predictor="),
        (
            "system=nirvana selector.alpha_for.at_least={5:0.7}",
            "selector.alpha_for.at_least= is now selector.alpha_for.thresholds=",
        ),
    ],
)
def test_former_name_is_refused_with_the_present_one(
    word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *word.split()]) == 2
    assert message in capsys.readouterr().err


def test_a_plugin_may_use_a_former_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(
        "from mezzotint.sim.execution.sequential import Sequential\n\n\n"
        "class Theirs(Sequential):\n"
        "    def __init__(self, limit: int = 1) -> None:\n"
        "        super().__init__()\n"
        "        self.limit = limit\n"
    )
    (tmp_path / "executor").mkdir()
    (tmp_path / "executor" / "whole-batch.yaml").write_text("# Theirs.\n_target_: theirs.Theirs\nlimit: 1\n")
    monkeypatch.chdir(tmp_path)
    options = ["--plugin", "theirs", "--config-dir", str(tmp_path)]
    words = ["executor=whole-batch", "executor.limit=4", "trace.requests=5", "run.dir=run"]
    assert main(["run", *options, *words]) == 0
    assert read_config(tmp_path / "run")["executor"] == {"_target_": "theirs.Theirs", "limit": 4}


@pytest.mark.parametrize("word", ["frontend=nirvana", "executor=sequential", "+trace.service=A", "~cache", "seed=1,2"])
def test_present_override_stays(word: str) -> None:
    assert present_word(word) == word


@pytest.mark.parametrize("word", ["door=nirvana", "executor.limit=4", "executor=step-by-step", "space=text", "seed=3"])
def test_former_and_present_overrides_are_inverse(word: str) -> None:
    assert former_word(present_word(word)) == word


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


def test_every_present_name_of_the_table_exists() -> None:
    assert {*table()["groups"].values()} <= {*groups()}
    for group, names in table()["choices"].items():
        assert {*names.values()} <= {choice.name for choice in choices(group)}
    for path in table()["classes"].values():
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path
