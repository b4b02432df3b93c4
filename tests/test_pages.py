"""The pages of docs: settings as composed, and the tests of each invariant."""

import ast
import re
from collections.abc import Iterator

import pytest
from omegaconf import OmegaConf

from mezzotint.sim.run.config.compose import compose_config
from tests.conftest import REPOSITORY

PAGES = sorted((REPOSITORY / "docs" / "systems").glob("*.md"))
HARDWARE = {"patchedserve": ["cluster=h100", "models=sdxl"], "orca": ["cluster=h100", "models=sdxl"]}
OF_PAGE = {"modm": "modm-throughput"}


def _settings() -> Iterator[tuple[str, str, str]]:
    """Yield system, key and default of each row of a table of settings."""
    for page in PAGES:
        for cells in re.findall(r"^\| (?:`([\w-]+)` \| )?`([a-z_.]+)` \| `(.+?)` \|", page.read_text(), re.MULTILINE):
            yield cells[0] or OF_PAGE.get(page.stem, page.stem), cells[1], cells[2]


SETTINGS = list(_settings())


@pytest.mark.parametrize(("system", "key", "default"), SETTINGS, ids=[f"{row[0]}-{row[1]}" for row in SETTINGS])
def test_stated_default_is_the_composed_one(system: str, key: str, default: str) -> None:
    config = compose_config([f"system={system}", *HARDWARE.get(system, [])])
    value = OmegaConf.select(config, key, throw_on_missing=True)
    assert str(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value) == default


def test_page_of_invariants_names_the_tests_marked_with_each_number() -> None:
    """Every invariant has a test, marked ``@pytest.mark.invariant(number)``."""
    page = (REPOSITORY / "docs" / "trust" / "invariants.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    named = [(int(number), test) for number, text in sections for test in re.findall(r"^- `(.+)`$", text, re.MULTILINE)]
    assert sorted(named) == sorted(_marked())
    assert [int(number) for number, _ in sections] == list(range(1, 14))
    assert {number for number, _ in named} == set(range(1, 14))


def _marked() -> Iterator[tuple[int, str]]:
    """Yield the number of each invariant marker, with file and name of its test."""
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        for test in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in test.decorator_list if isinstance(test, ast.FunctionDef) else []:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.invariant":
                    name = path.relative_to(REPOSITORY / "tests").as_posix()
                    yield ast.literal_eval(mark.args[0]), f"{name}::{test.name}"
