"""The pages for contributors: their classes, files, tests and commands work as written."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from mezzotint.sim.cache import eviction
from mezzotint.sim.cli import main
from tests.conftest import REPOSITORY


def test_policy_of_contributing_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are laid in a folder, which the package of evictions is extended by."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(eviction, "__path__", [*eviction.__path__, str(tmp_path / "sim" / "cache" / "eviction")])
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example = page[page.index("## Add a policy") : page.index("## Keep results identical")]
    for before, text in re.findall(
        r"((?:^[^\n]+\n)+)\n```(?:python|yaml|md)\n(.*?)^```", example, re.MULTILINE | re.DOTALL
    ):
        file = Path(re.findall(r"`([\w/.+-]+\.\w+)`", before)[0])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    laws = [law for name, law in runpy.run_path("tests/sim/cache/test_mru.py").items() if name.startswith("test_")]
    assert laws
    for law in laws:
        law()
    (case,) = yaml.safe_load(Path("tests/identity/cases.yaml").read_text()).values()
    assert "eviction=mru" in case
    assert main(["run", "--config-dir", "conf", *shlex.split(case), "trace.requests=300", "run.dir=out"]) == 0
    del sys.modules[f"{eviction.__name__}.mru"]


def test_source_of_add_a_part_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_traces", raising=False)
    page = (REPOSITORY / "docs" / "contributing" / "add-a-part.md").read_text(encoding="utf-8")
    (source,), (file,), (command,) = (
        re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for language in ("python", "yaml", "sh")
    )
    Path("my_traces.py").write_text(source)
    Path("my_conf/trace").mkdir(parents=True)
    Path("my_conf/trace/batches.yaml").write_text(file)
    assert main(shlex.split(command)[1:]) == 0
