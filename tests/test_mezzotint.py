"""The Python interface gives what the command line writes."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mezzotint
from mezzotint.sim.cli import main

SMALL = ("system=nirvana", "cluster=h100", "arrivals.rate_rpm=20", "trace.requests=200")


def test_a_run_has_what_the_command_line_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = mezzotint.run(*SMALL, seed=3)
    assert main(["run", *SMALL, "seed=3", f"run.dir={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    again = mezzotint.load(tmp_path / "run")
    assert isinstance(again, mezzotint.Run)
    pd.testing.assert_frame_equal(run.requests, again.requests)
    pd.testing.assert_frame_equal(run.time_series, again.time_series)
    assert {**run.summary, "wall": None} == {**again.summary, "wall": None}
    assert len(run.requests) == 200
    assert run.config["seed"] == 3
    assert "nirvana" in run._repr_html_()


@pytest.mark.parametrize("name", ["latency", "slo", "hits", "throughput", "over_time"])
def test_every_plot_is_a_figure(name: str, nirvana: mezzotint.Run) -> None:
    assert "</svg>" in getattr(nirvana.plot, name)()._repr_svg_()


def test_figure_is_saved_by_its_suffix(nirvana: mezzotint.Run, tmp_path: Path) -> None:
    figure = nirvana.plot.slo()
    for name, start in (("a.svg", b"<svg"), ("a.png", b"\x89PNG")):
        figure.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(mezzotint.ConfigError, match=r"a\.pdf: found the suffix '\.pdf', expected \.svg or \.png"):
        figure.save(tmp_path / "a.pdf")


@pytest.fixture(scope="module")
def nirvana() -> mezzotint.Run:
    return mezzotint.run(*SMALL)


def test_a_sweep_is_a_table_of_runs_selected_by_what_it_chose_and_goes_on_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("system=nirvana", "eviction=fifo,lru", "cache.capacity=10,20", "hydra.launcher.n_jobs=1")
    sweep = mezzotint.sweep(*words, folder=tmp_path / "sweep", **{"trace.requests": 50})
    assert capsys.readouterr().out == ""
    assert sweep.metrics["throughput_rpm"].gt(0).all()
    assert sweep.metrics["quality_factor"].between(0, 1).all()
    stamps = [(run.folder / "summary.json").stat().st_mtime_ns for run in sweep]
    again = mezzotint.sweep(*words, folder=tmp_path / "sweep", **{"trace.requests": 50})
    assert [(run.folder / "summary.json").stat().st_mtime_ns for run in again] == stamps
    loaded = mezzotint.load(tmp_path / "sweep")
    assert isinstance(loaded, mezzotint.Sweep)
    pd.testing.assert_frame_equal(loaded.metrics, sweep.metrics)
    table = sweep.table
    assert len(table.columns) < 12
    assert list(table["eviction"]) == ["fifo", "fifo", "lru", "lru"]
    assert table["work"].str.contains("50 steps").all()
    assert list(table["verdict"]) == [run.summary["load"]["verdict"] for run in sweep]
    assert list(table["basis"]) == ["published"] * 4
    for runs in (sweep, loaded):
        assert list(runs.metrics["eviction"]) == ["fifo", "fifo", "lru", "lru"]
        assert list(runs.metrics["cache.capacity"]) == [10, 20, 10, 20]
        assert "trace.requests" not in runs.metrics
        (run,) = runs.where(eviction="lru", capacity=20)
        assert run.config["cache"]["capacity"] == 20
        assert run.choices["trace.requests"] == 50
        assert len(runs.where(requests=50)) == 4
    with pytest.raises(mezzotint.ConfigError, match=r"eviction=mru.*eviction, cache\.capacity"):
        sweep.where(eviction="mru")


def test_runs_of_a_folder_that_is_no_sweeps_have_no_choices_and_no_plot_without_data(tmp_path: Path) -> None:
    mezzotint.run("trace.requests=20", folder=tmp_path / "one")
    runs = mezzotint.load(tmp_path)
    assert isinstance(runs, mezzotint.Sweep)
    assert not runs[0].choices
    with pytest.raises(mezzotint.ConfigError, match="a sweep"):
        runs.where(system="vanilla")
    with pytest.raises(mezzotint.ConfigError, match="hits"):
        runs[0].plot.hits()


def test_a_sweep_whose_own_groups_are_gone_is_loaded_without_choices(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "system").mkdir(parents=True)
    for name in ("one", "two"):
        text = f"# @package _global_\n# {name}\ndefaults: [vanilla, _self_]\nsystem: {{name: {name}}}\n"
        (own / "system" / f"{name}.yaml").write_text(text)
    words = ("system=one,two", "trace.requests=20", "hydra.launcher.n_jobs=1")
    sweep = mezzotint.sweep(*words, folder=tmp_path / "sweep", config_dir=own)
    (run,) = sweep.where(system="two")
    assert run.summary["system"] == "two"
    shutil.rmtree(own)
    loaded = mezzotint.load(tmp_path / "sweep")
    assert isinstance(loaded, mezzotint.Sweep)
    assert [run.choices for run in loaded] == [{}, {}]
    assert list(loaded.metrics["system"]) == ["one", "two"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"door": "nirvana"}, "door"), ({"cluster": "h1"}, "h1"), ({"arrivals.rate_rpm": [1]}, "rate_rpm")],
)
def test_wrong_keys_are_named(keys: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        mezzotint.run(**keys)


def test_values_of_numpy_and_the_name_of_a_file_are_taken(tmp_path: Path) -> None:
    words = ("system=vanilla", "trace.requests=20")
    run = mezzotint.run(*words, seed=np.int64(3), slo=np.array([2, 4]))
    assert run.config["seed"] == 3
    assert {"2x", "4x"} <= {*run.summary["slo"]}
    log = tmp_path / "log.csv"
    log.write_text("time,prompt\n0,a fox\n9,a boat\n")
    assert len(mezzotint.run("system=vanilla", trace=str(log)).requests) == 2


@pytest.mark.parametrize(
    ("words", "keys", "message"),
    [
        ((["seed=3"],), {}, r"found list .*expected text such as \"seed=3\"; write a list as run\(\*words\)"),
        ((), {"seed": {1, 2}}, "seed: found set"),
        (("arrivals.rate_rpm=5,10",), {}, "arrivals.rate_rpm=5,10: found several values for one run"),
        (("slo=${nothing}",), {}, "nothing"),
        (("trace=runs/log.csv",), {}, "is a file; name it with trace=file trace.path=runs/log.csv"),
    ],
)
def test_what_cannot_be_read_is_a_config_error(words: tuple[Any], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(mezzotint.ConfigError, match=message):
        mezzotint.run(*words, **keys)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mezzotint.run(folder="a\0b"), "folder: found 'a"),
        (lambda: mezzotint.run(config_dir=3), "config_dir: found 3, expected a path"),
        (lambda: mezzotint.run(plugins="json\0"), "plugins: found 'json"),
        (lambda: mezzotint.run(plugins="no_such_module"), "--plugin: no_such_module cannot be imported"),
        (lambda: mezzotint.run(plugins=[3]), "plugins: found 3, expected a name or a list of names"),
        (lambda: mezzotint.sweep("seed=1,2", plugins=3), "plugins: found 3"),
        (lambda: mezzotint.load(3), "folder: found 3, expected a path"),
        (lambda: mezzotint.choices(3), "group: found 3, expected the name of a group"),
        (lambda: mezzotint.choices("system", 3), "config_dir: found 3"),
        (lambda: mezzotint.plan(target="p95<10s", model="sdxl", rate_rpm=5, runs="a\0b"), "runs: found 'a"),
        (lambda: mezzotint.plan(target="p95<10s", model="sdxl", rate_rpm=5, prices="a\0b"), "prices: found 'a"),
    ],
)
def test_argument_that_is_no_path_or_name_is_a_config_error(call: Any, message: str) -> None:
    with pytest.raises(mezzotint.ConfigError, match=message):
        call()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rate_rpm": float("nan")}, "rate_rpm: .*found nan"),
        ({"min_quality": 90}, "min_quality: input should be less than or equal to 1, found 90"),
        ({"cache": "cold"}, "cache: input should be 'empty', 'warm' or 'both', found 'cold'"),
        ({"prices": {"l40s": 1}}, "prices: found .*expected a path"),
        ({"max_gpus": np.int64(0)}, "max_gpus: input should be greater than or equal to 1"),
        ({"gpus": "l40z", "rate_rpm": 5}, "--gpu l40z: is no kind of GPU; did you mean l40s"),
    ],
)
def test_plan_has_the_ranges_of_the_command_line(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(mezzotint.ConfigError, match=message):
        mezzotint.plan(**{"model": "sdxl", "target": "p95<10s", "runs": tmp_path, **keys})


def test_choices_are_those_of_the_command_line() -> None:
    assert {"frontend", "eviction"} <= {*mezzotint.choices()["name"]}
    assert {"lru", "lcbfu"} <= {*mezzotint.choices("eviction")["name"]}
    with pytest.raises(mezzotint.ConfigError, match="no group"):
        mezzotint.choices("door")


def test_a_temporary_run_goes_with_its_object() -> None:
    run = mezzotint.run("trace.requests=20")
    folder = run.folder
    assert folder.is_dir()
    del run
    assert not folder.exists()


def test_importing_it_needs_only_the_base_install() -> None:
    code = "import mezzotint, sys; assert not {'torch', 'diffusers', 'transformers'} & {*sys.modules}"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, cwd=Path(__file__).parents[1])


def test_plan_gives_what_the_command_line_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["trace.requests=300", "trace.history=0"]
    plan = mezzotint.plan(
        *words, target="p95<10s", model="sdxl", gpus=["l40s"], designs=["vanilla"], rate_rpm=20, replications=2
    )
    assert plan.table["cluster"].tolist() == ["1 x l40s"]
    assert plan.table["p95_s"].tolist() == plan.clusters["p95_s"][plan.clusters["count"] == 1].tolist()
    assert {"work", "basis", "load", "verdict"} <= set(plan.table)
    assert len(plan.table.columns) < 12
    assert set(plan.clusters["meets"]) == {True}
    assert "</svg>" in plan.plot()._repr_svg_()
    assert plan.save("mine") == Path("mine/plan.html")
    assert main(shlex.split(plan.command)[1:]) == 0
    mine, theirs = ((tmp_path / each / "plan.json").read_text() for each in ("mine", "results/plan"))
    assert mine == theirs


def test_command_in_the_folder_of_another_configures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words choose values of points; they add no package to Hydra's search path, and read no environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/__init__.py").write_text("open('harm', 'w')\n")
    monkeypatch.setenv("SECRET", "fifo")
    mezzotint.sweep("trace.requests=20", "hydra.launcher.n_jobs=1", seed="1,2", folder="sweep")
    for words in (
        ["-m", "hydra.searchpath=[pkg://evil]", "seed=1,2"],
        ["-m", "++hydra.searchpath=[pkg://evil]", "seed=1,2"],
        ["-m", "system=${oc.env:SECRET}", "seed=1,2"],
    ):
        (tmp_path / "sweep/.sweep").write_text(json.dumps(words))
        assert [dict(run.choices) for run in mezzotint.load("sweep")] == [{"seed": 1}, {"seed": 2}]
    for text in ("5", "[1]", "null", "[" * 100_000, "{}"):
        (tmp_path / "sweep/.sweep").write_text(text)
        assert [dict(run.choices) for run in mezzotint.load("sweep")] == [{}, {}]
    assert not (tmp_path / "harm").exists()
