"""A configuration only builds parts: every target is checked before it is called."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.protocols import Allocation, Delay, Eviction, Scheduler, Steps
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.config.plugins import allow_plugins
from mezzotint.sim.run.simulate import saved_config


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


HARM = [
    {"_target_": "os.system", "command": "touch harm"},
    {"_target_": "subprocess.Popen", "args": ["touch", "harm"]},
    {"_target_": "builtins.eval", "source": "open('harm', 'w')"},
    {"_target_": "builtins.open", "file": "harm", "mode": "w"},
    {"_target_": "pathlib.Path.touch", "self": "harm"},
    {"_target_": "joblib.dump", "value": 1, "filename": "harm"},
    {"_target_": "mezzotint.sim.verbs.run", "given": ["trace", "synth", "-o", "harm", "--requests", "10"]},
    {"_target_": "mezzotint.sim.run.simulate.Path", "path": "harm"},
    {"_target_": "mezzotint.files.atomic.atomic_write", "path": "harm", "error": "x"},
    {"_target_": "nowhere.at.all"},
    {"_target_": ".."},
]


@pytest.mark.parametrize("node", HARM, ids=lambda node: str(node["_target_"]))
@pytest.mark.parametrize("kind", [Scheduler, Eviction, Delay, Allocation, None])
def test_target_that_is_no_part_is_not_called(node: dict[str, Any], kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check covers an argument of a part, a list, and untyped arguments."""
    with pytest.raises(ConfigError):
        build(node, "it", kind)
    with pytest.raises(ConfigError):
        build({"_target_": "mezzotint.sim.execution.continuous_batching.ContinuousBatching", "steps": node}, "it")
    with pytest.raises(ConfigError):
        build({"_target_": "mezzotint.sim.cache.store.ArtifactStore", "outages": [node]}, "it")
    assert not Path("harm").exists()


def test_class_of_another_protocol_is_refused_before_construction() -> None:
    """A part of ours in the wrong place: its constructor does not run."""
    made: list[str] = []

    class Counted:
        def __init__(self) -> None:
            made.append("made")

    sys.modules[__name__].Counted = Counted  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="is no Steps: it lacks"):
        build({"_target_": f"{__name__}.Counted"}, "it", Steps)
    with pytest.raises(ConfigError, match="is no CachedFrontEnd"):
        build({"_target_": f"{__name__}.Counted"}, "it", CachedFrontEnd)
    assert made == []


def test_plugin_modules_load_from_the_working_directory_only_if_named(tmp_path: Path) -> None:
    """A plug-in, its imports from there, also late ones; no other module, and none that shadows a library."""
    Path("mine.py").write_text(
        "import beside\nclass Part:\n    def late(self):\n        import later\n        return later.X\n"
    )
    Path("beside.py").write_text("X = 1\n")
    Path("later.py").write_text("X = 2\n")
    Path("evil.py").write_text("open('harm', 'w')\nclass Part: pass\n")
    with pytest.raises(ConfigError, match="found mine, expected a module of mezzotint or of a plug-in"):
        build({"_target_": "mine.Part"}, "it")
    with allow_plugins(["mine"]):
        assert build({"_target_": "mine.Part"}, "it").late() == 2
        with pytest.raises(ConfigError, match="found evil, expected a module of mezzotint or of a plug-in"):
            build({"_target_": "evil.Part"}, "it")
    with pytest.raises(ConfigError, match="found mine"):
        build({"_target_": "mine.Part"}, "it")
    with pytest.raises(ConfigError, match="--plugin: absent cannot be imported"), allow_plugins(["absent"]):
        pass
    assert not Path("harm").exists()


def test_installed_entry_point_offers_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("offered_policies.py").write_text("class Part: pass\n")
    Path("offered-1.dist-info").mkdir()
    Path("offered-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1\n")
    Path("offered-1.dist-info/entry_points.txt").write_text("[mezzotint.plugins]\nmine = offered_policies\n")
    with pytest.raises(ConfigError, match="found offered_policies"):
        build({"_target_": "offered_policies.Part"}, "it")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(build({"_target_": "offered_policies.Part"}, "it")).__name__ == "Part"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (5, "found 5, expected the dotted path of a class"),
        ("Fcfs", "found 'Fcfs', expected the dotted path of a class"),
        (
            "mezzotint.sim.core.run_folder.SUMMARY",
            "found mezzotint.sim.core.run_folder.SUMMARY, expected a class, or a function annotated with",
        ),
        ("os.system", "found os, expected a module of mezzotint or of a plug-in; name yours with --plugin os"),
        ("mezzotint.sim.nowhere.Part", r"mezzotint.sim.nowhere cannot be imported \(ModuleNotFoundError"),
    ],
)
def test_target_that_names_no_class_is_refused_by_its_key(target: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^it\._target_: {message}"):
        build({"_target_": target}, "it")


def test_run_config_cannot_name_a_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    """A module beside it does not run, nor one named like a library."""
    Path("out").mkdir()
    for file in ("out/__init__.py", "out/evil.py", "evil.py", "simpy.py"):
        Path(file).write_text("open('harm', 'w')\nclass Part: pass\n")
    for node in (*HARM, {"_target_": "evil.Part"}, {"_target_": "out.evil.Part"}):
        config: Any = OmegaConf.to_container(compose_config(["run.dir=out"]), resolve=True)
        Path("out/config.yaml").write_text(yaml.safe_dump({**config, "scheduler": node, "plugins": ["evil"]}))
        assert main(["run", "--config-path", "out", "run.dir=again"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("mezzotint: error: ")
        assert error.count("\n") == 1
    assert not Path("harm").exists()
    assert not Path("again").exists()


HYDRA = [
    {"callbacks": {"x": {"_target_": "os.system", "command": "touch harm"}}},
    {"job_logging": {"version": 1, "formatters": {"f": {"()": "os.system", "command": "touch harm"}}}},
    {"job": {"env_set": {"PATH": "here"}}},
    {"searchpath": ["pkg://evil"]},
    {"run": {"dir": "harm"}},
]


@pytest.mark.parametrize("node", HYDRA, ids=lambda node: next(iter(node)))
def test_shared_configuration_cannot_configure_hydra(
    node: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a run's own config.yaml, and as a choice in a folder of the user's."""
    Path("out").mkdir()
    Path("out/config.yaml").write_text(yaml.safe_dump({"hydra": node, "run": {"dir": "???"}, "seed": 1}))
    assert main(["run", "--config-path", "out", "--config-name", "config", "run.dir=again"]) == 2
    assert "hydra" in capsys.readouterr().err
    Path("mine/experiment").mkdir(parents=True)
    Path("mine/experiment/nice.yaml").write_text("# @package _global_\n" + yaml.safe_dump({"hydra": node}))
    if "searchpath" not in node:
        assert main(["run", "--config-dir", "mine", "experiment=nice", "run.dir=again"]) == 2
        assert capsys.readouterr().err.startswith("mezzotint: error: hydra.")
    assert not Path("harm").exists()
    assert not Path("again").exists()


READS = [
    "${oc.env:HOME}",
    "${hydra:runtime.cwd}",
    "${hydra.runtime.cwd}",
    "${oc.decode:x}",
    "${now:%Y}",
    "${${x}:HOME}",
]


@pytest.mark.parametrize("text", READS)
@pytest.mark.parametrize("place", ["value", "list", "defaults", "beside"])
def test_configuration_of_another_reads_no_environment(
    text: str, place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By no reference in a config.yaml, its list of defaults, or a file beside it that the list names."""
    monkeypatch.setenv("HOME", "secret-place")
    config = saved_config(resolve_config(compose_config(["system=nirvana", "run.dir=out"])))
    Path("out/extra").mkdir(parents=True)
    Path("out/extra/one.yaml").write_text(yaml.safe_dump({"name": text}))
    if place == "value":
        config["system"]["name"] = text
    elif place == "list":
        config["system"]["assumptions"].append({"what": text, "value": 1, "source": text})
    else:
        config["defaults"].insert(0, {"extra": text if place == "defaults" else "one"})
    Path("out/config.yaml").write_text(yaml.safe_dump(config))
    search = ["plan", "capacity", "--from", "1", "--to", "2", "-o", "again"]
    for words in (["run"], ["run", "--cfg", "job", "--resolve"], ["run", "-m"], ["validate"], search):
        folder = [] if words is search else ["run.dir=again"]
        assert main([*words, "--config-path", "out", "--config-name", "config", *folder]) == 2
        shown = capsys.readouterr()
        where = "defaults: found" if place in ("defaults", "beside") else "system."
        assert shown.err.startswith(f"mezzotint: error: out/config.yaml: {where}")
        assert shown.err.count("\n") == 1
        assert "secret-place" not in shown.err + shown.out
    assert not Path("again").exists()


def test_user_may_refer_to_the_environment_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    config = saved_config(resolve_config(compose_config(["system=vanilla", "trace.requests=20", "run.dir=out"])))
    Path("out").mkdir()
    Path("out/config.yaml").write_text(yaml.safe_dump(config))
    words = ["--config-path", "out", "--config-name", "config", "run.dir=${oc.env:PWD}/again"]
    assert main(["run", "--cfg", "job", *words]) == 0
    assert "${oc.env:PWD}/again" in capsys.readouterr().out


def test_configuration_of_another_names_no_folder_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    config = saved_config(resolve_config(compose_config(["system=vanilla", "trace.requests=20", "run.dir=out"])))
    Path("out").mkdir()
    Path("out/config.yaml").write_text(yaml.safe_dump(config | {"run": {"dir": "../escaped"}}))
    assert main(["run", "--config-path", "out", "--config-name", "config"]) == 2
    assert "name the new folder on the command line" in capsys.readouterr().err
    assert not Path("../escaped").exists()
