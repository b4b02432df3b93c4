"""The commands of README.md: every one is composed or parsed as it is written there; nothing is run or measured."""

import argparse
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from sim.cli import main
from sim.commands import function_of
from sim.config.settings import check
from sim.study.placement.command import parser
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def _commands() -> list[str]:
    """Commands of the blocks, and those in running text that have arguments."""
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    within = [
        " ".join(found.split()) for found in re.findall(r"`(mezzotint (?:run|list|plan|validate) [^`]+)`", README)
    ]
    return [line for line in [*blocks.splitlines(), *within] if line.startswith("mezzotint ")]


COMMANDS = _commands()


def test_the_readme_has_commands_of_every_verb() -> None:
    verbs = {command.split()[1] for command in COMMANDS}
    assert verbs == {"run", "list", "plan", "validate", "trace", "report", "scorecard", "calibrate"}
    assert len(COMMANDS) > 35


@pytest.fixture(scope="module")
def run_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, of which `--config-path out` says that it is run again."""
    folder = tmp_path_factory.mktemp("before") / "out"
    assert main(["run", "trace.requests=5", f"run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def composed(run_before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is composed or parsed instead of run, in a folder that has what the README's commands read."""
    monkeypatch.chdir(tmp_path)
    Path("out").symlink_to(run_before)
    for block in re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        name = re.search(r"my_conf/[\w/]+\.yaml", block)
        assert name is not None
        Path(name[0]).parent.mkdir(parents=True, exist_ok=True)
        Path(name[0]).write_text(block)
    Path("mine/selector").mkdir(parents=True)  # what `calibrate selector -o mine` writes
    Path("mine/selector/measured.yaml").write_text((REPOSITORY / "conf/selector/nirvana.yaml").read_text())
    done: list[str] = []

    def task(config: DictConfig) -> None:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        done.append(check({str(key): value for key, value in plain.items()}).run.dir)

    def find(asked: object, config: DictConfig, *_: object) -> list[str]:
        task(config)
        return []

    parse_args = argparse.ArgumentParser.parse_args

    def parsed(given: argparse.ArgumentParser, words: Sequence[str] | None = None) -> argparse.Namespace:
        found = parse_args(given, words)
        if callable(getattr(found, "run", None)):  # ours, and not Hydra's
            done.append(given.prog)
            found.run = lambda args: 0
        return found

    def accepting(words: str) -> Callable[..., int]:
        @functools.wraps(command := function_of(words))
        def accepted(*args: Any, **options: Any) -> int:
            assert inspect.signature(command).bind(*args, **options)
            done.append(words)
            return 0

        return accepted

    def placed(words: Sequence[str]) -> int:
        parser().parse_args(words)
        done.append("plan placement")
        return 0

    monkeypatch.setattr("sim.commands.function_of", accepting)
    monkeypatch.setattr("sim.verbs.job", task)
    monkeypatch.setattr("sim.verbs.validation", task)
    monkeypatch.setattr("sim.verbs.ended_points", lambda folder: len(done))
    monkeypatch.setattr("sim.study.rate.command.find", find)
    monkeypatch.setattr("sim.study.placement.command.find", placed)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    return done


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_is_accepted(
    command: str, composed: list[str], capsys: pytest.CaptureFixture[Any]
) -> None:
    words = shlex.split(command, comments=True)[1:]
    if "-m" in words:
        words.append("hydra/launcher=basic")
    assert main([word for word in words if word != "GROUP"]) == 0, capsys.readouterr().err
    assert composed or words[0] == "list" or "--cfg" in words
