"""A configuration builds parts and does nothing else: what it names is looked at before it is called."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from sim.cli import main
from sim.config.build import build
from sim.config.hydra_node import composed, refuse
from sim.config.theirs import at_hand
from sim.errors import ConfigError
from sim.parts import Allocation, Delay, Eviction, Scheduler, Steps
from sim.reuse.door import Reuse

BEFORE = "harm"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


HARM = [
    {"_target_": "os.system", "command": "touch harm"},
    {"_target_": "posix.system", "command": "touch harm"},
    {"_target_": "subprocess.Popen", "args": ["touch", "harm"]},
    {"_target_": "builtins.eval", "source": "open('harm', 'w')"},
    {"_target_": "builtins.open", "file": "harm", "mode": "w"},
    {"_target_": "pathlib.Path.touch", "self": "harm"},
    {"_target_": "pathlib.Path", "path": "harm"},
    {"_target_": "functools.partial", "func": "harm"},
    {"_target_": "joblib.dump", "value": 1, "filename": "harm"},
    {"_target_": "numpy.save", "file": "harm", "arr": [1]},
    {"_target_": "sim.verbs.run", "given": ["trace", "synth", "-o", "harm", "--requests", "10"]},
    {"_target_": "sim.run.Path", "path": "harm"},
    {"_target_": "sim.run.os", "path": "harm"},
    {"_target_": "conf.atomic.atomic_write", "path": "harm", "error": "x"},
    {"_target_": "__main__.exit"},
    {"_target_": "nowhere.at.all"},
    {"_target_": ".."},
]


@pytest.mark.parametrize("node", HARM, ids=lambda node: str(node["_target_"]))
@pytest.mark.parametrize("kind", [Scheduler, Eviction, Delay, Allocation, None])
def test_what_makes_no_part_is_not_called(node: dict[str, Any], kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also inside an argument of a part, in a list, and where nothing says what is expected."""
    with pytest.raises(ConfigError):
        build(node, "it", kind)
    with pytest.raises(ConfigError):
        build({"_target_": "sim.cluster.steps.StepByStep", "steps": node}, "it")
    with pytest.raises(ConfigError):
        build({"_target_": "sim.reuse.store.Store", "outages": [node]}, "it")
    assert not Path("harm").exists()


def test_a_class_of_another_kind_is_refused_before_it_is_made() -> None:
    """A part of ours, but not what belongs there: its constructor does not run."""
    made: list[str] = []

    class Counted:
        def __init__(self) -> None:
            made.append("made")

    sys.modules[__name__].Counted = Counted  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="is no Steps: it lacks"):
        build({"_target_": f"{__name__}.Counted"}, "it", Steps)
    with pytest.raises(ConfigError, match="is no Reuse"):
        build({"_target_": f"{__name__}.Counted"}, "it", Reuse)
    assert made == []


def test_modules_come_from_the_working_directory_by_name_only(tmp_path: Path) -> None:
    """The one that is named, what it imports from there, and no other."""
    Path("mine.py").write_text(
        "import beside\nclass Part:\n    def late(self):\n        import later\n        return later.X\n"
    )
    Path("beside.py").write_text("X = 1\n")
    Path("later.py").write_text("X = 2\n")
    Path("faiss_of_old.py").write_text("open('harm', 'w')\n")
    node = {"_target_": "mine.Part"}
    with at_hand(tmp_path, {"scheduler": node, "others": [{"_target_": "os.system"}]}):
        assert build(node, "it").late() == 2
        with pytest.raises(ModuleNotFoundError):
            __import__("faiss_of_old")
    assert "mine" not in sys.modules
    assert str(tmp_path) not in sys.path
    with pytest.raises(ConfigError, match="mine cannot be imported"):
        build(node, "it")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (5, "found 5, expected the dotted path of a class"),
        ("Fcfs", "found 'Fcfs', expected the dotted path of a class"),
        (
            "sim.rundir.SUMMARY",
            "found sim.rundir.SUMMARY, expected a class, or a function annotated with what it returns",
        ),
        ("__hello__.main", "__hello__ is an installed package, expected a class of ours"),
        ("os.system", "os is Python's own, expected a class of ours"),
        ("absent.Part", r"absent cannot be imported \(found no module absent\); put its file in the working directory"),
    ],
)
def test_a_target_that_names_no_class_is_told_by_its_key(target: Any, told: str, tmp_path: Path) -> None:
    with at_hand(tmp_path, {"it": {"_target_": target}}), pytest.raises(ConfigError, match=rf"^it\._target_: {told}"):
        build({"_target_": target}, "it")


def test_a_package_of_the_working_directory_brings_what_any_of_its_files_imports(tmp_path: Path) -> None:
    Path("pack/deep").mkdir(parents=True)
    for file in ("pack/__init__.py", "pack/deep/__init__.py"):
        Path(file).write_text("")
    Path("pack/part.py").write_text("from .deep import other\nclass Part:\n    x = other.X\n")
    Path("pack/deep/other.py").write_text("import beside\nfrom further.on import Y\nX = beside.X + Y\n")
    Path("beside.py").write_text("X = 1\n")
    Path("further").mkdir()
    Path("further/on.py").write_text("Y = 2\n")
    with at_hand(tmp_path, {"_target_": "pack.part.Part"}):
        assert build({"_target_": "pack.part.Part"}, "it").x == 3
    assert not {"pack", "pack.deep.other", "beside", "further.on"} & set(sys.modules)


def test_the_folder_of_a_run_holds_data(tmp_path: Path) -> None:
    """Neither as the working directory nor as a package below it."""
    Path("out").mkdir()
    for file in ("out/__init__.py", "out/evil.py", "evil.py"):
        Path(file).write_text("open('harm', 'w')\nclass Part: pass\n")
    for target, data in (("out.evil.Part", "out"), ("evil.Part", ".")):
        node = {"_target_": target}
        with at_hand(tmp_path, node, Path(data)), pytest.raises(ConfigError, match="cannot be imported"):
            build(node, "it")
    assert not Path("harm").exists()


LAUNCHER = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("launcher", None, "hydra.launcher: found None, expected one that `hydra/launcher=` on the command line names"),
        ("launcher", {"_target_": "os.system"}, "hydra.launcher: found .*os.system.*, expected one that"),
        ("sweeper", {"_target_": LAUNCHER}, "hydra.sweeper: found .*JoblibLauncher.*, expected one that"),
        (
            "launcher",
            {"_target_": LAUNCHER, "x": {"_args_": [1]}},
            r"hydra.launcher.x._args_: found \[1\], expected plain",
        ),
        ("launcher", {"_target_": LAUNCHER, "x": [0, [{"_target_": "y"}]]}, r"launcher.x.1.0._target_: found 'y'"),
        ("launcher", {"_target_": LAUNCHER, "n_jobs": 3, "x": [{"y": "_z"}]}, ""),
    ],
)
def test_a_launcher_or_sweeper_calls_nothing_by_the_way(key: str, value: Any, told: str) -> None:
    node: Any = OmegaConf.to_container(composed(["run.dir=x"], hydra_too=True).hydra, resolve=False)
    plain = OmegaConf.create({**node, key: value})
    if told:
        with pytest.raises(ConfigError, match=told):
            refuse(plain)
    else:
        refuse(plain)


HYDRA = [
    {"callbacks": {"x": {"_target_": "os.system", "command": "touch harm"}}},
    {"job_logging": {"version": 1, "formatters": {"f": {"()": "os.system", "command": "touch harm"}}}},
    {"launcher": {"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher", "n_jobs": 1}},
    {"sweeper": {"params": {"+hydra.callbacks.x._target_": "os.system"}}},
    {"job": {"env_set": {"PATH": "here"}}},
    {"searchpath": ["pkg://evil"]},
    {"output_subdir": "harm"},
    {"run": {"dir": "harm"}},
]


@pytest.mark.parametrize("node", HYDRA, ids=lambda node: next(iter(node)))
def test_a_shared_configuration_has_no_say_in_hydra(
    node: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run's own config.yaml, and as a choice in a folder of the user's."""
    Path("out").mkdir()
    Path("out/config.yaml").write_text(yaml.safe_dump({"hydra": node, "run": {"dir": "???"}, "seed": 1}))
    assert main(["run", "--config-path", "out", "--config-name", "config", "run.dir=again"]) == 2
    assert "hydra" in capsys.readouterr().err
    Path("mine/experiment").mkdir(parents=True)
    Path("mine/experiment/nice.yaml").write_text("# @package _global_\n" + yaml.safe_dump({"hydra": node}))
    if next(iter(node)) not in ("launcher", "sweeper", "searchpath"):
        assert main(["run", "--config-dir", "mine", "experiment=nice", "run.dir=again"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("mezzotint: error: hydra.")
        assert said.count("\n") == 1
    assert not Path("harm").exists()
    assert not Path("again").exists()
