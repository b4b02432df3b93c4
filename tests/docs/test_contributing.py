"""The page on adding parts: its classes, files and commands work as written."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "contributing" / "add-a-part.md").read_text(encoding="utf-8")


def test_page_on_adding_parts_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    policies, traces = _blocks("python")
    for name, text in (("my_policies", policies), ("my_traces", traces)):
        Path(f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    for text in _blocks("yaml"):
        file = Path(re.findall(r"my_conf/[\w/-]+\.yaml", text)[0])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    commands = [line for block in _blocks("sh") for line in block.splitlines()]
    own_system = commands[0].replace("system=nirvana eviction=most-recent", "system=nirvana-recent")
    for command in (*commands, own_system):
        assert main(shlex.split(command)[1:]) == 0


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
