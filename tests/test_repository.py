"""What stands in two places is equal: the version, CI's commands, ruff's version; release notes can be built."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY


def text(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def loaded(name: str) -> Any:
    return yaml.safe_load(text(name))


PYPROJECT = tomllib.loads(text("pyproject.toml"))
VERSION = PYPROJECT["project"]["version"]


def test_version_and_date_are_those_of_the_newest_release_notes() -> None:
    citation = loaded("CITATION.cff")
    assert citation["version"] == VERSION
    newest, *_ = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert newest == f"{VERSION} ({citation['date-released']})"
    assert f"\nmezzotint {VERSION}\n" in text("docs/start/install.md")


def test_notes_of_the_next_release_have_a_type_and_a_sentence() -> None:
    """`ISSUE.TYPE.md` or `+WORDS.TYPE.md`; the types are those of pyproject.toml, which changelog.d/README.md lists."""
    types = [each["directory"] for each in PYPROJECT["tool"]["towncrier"]["type"]]
    readme = text("changelog.d/README.md")
    assert re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE) == types
    for note in (REPOSITORY / "changelog.d").iterdir():
        if note.name != "README.md":
            assert re.fullmatch(rf"(\d+|\+[\w-]+)\.({'|'.join(types)})\.md", note.name), note.name
            assert note.read_text(encoding="utf-8").strip(), f"{note.name} is empty"


def test_workflow_runs_the_make_targets_of_ci_run_and_a_release() -> None:
    steps = loaded(".github/workflows/ci.yml")["jobs"]["check"]["steps"]
    theirs = [target for step in steps for target in re.findall(r"^make (\w+)", step.get("run", ""), re.MULTILINE)]
    assert theirs == [*re.findall(r"^make (\w+)", text(".ci/run"), re.MULTILINE), "release"]


def test_workflow_runs_every_python_from_the_oldest_that_is_supported() -> None:
    pythons = loaded(".github/workflows/ci.yml")["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert PYPROJECT["project"]["requires-python"] == f">={pythons[0]}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == pythons[0]
    minors = [int(python.removeprefix("3.")) for python in pythons]
    assert minors == list(range(minors[0], minors[-1] + 1))


@pytest.mark.parametrize(
    ("purpose", "extras"),
    [("base", ()), ("docs", ("docs",)), ("test", ("ann", "dev", "hub", "live", "notebooks", "text"))],
)
def test_dependencies_are_locked_for_their_purpose(purpose: str, extras: Sequence[str]) -> None:
    """After a change of dependencies, `make lock`."""
    of_extra = PYPROJECT["project"]["optional-dependencies"]
    needed = [*PYPROJECT["project"]["dependencies"], *(each for extra in extras for each in of_extra[extra])]
    locked = re.findall(r"^([\w.-]+)==", text(f"requirements/{purpose}.txt"), re.MULTILINE)
    names = {re.split(r"[^\w.-]", each)[0].lower().replace("_", "-") for each in needed}
    assert names <= set(locked), names - set(locked)


def test_pre_commit_runs_the_pinned_ruff() -> None:
    (pinned,) = re.findall(r"^ruff==(.+)$", text("requirements/test.txt"), re.MULTILINE)
    revisions = {each["repo"]: each["rev"] for each in loaded(".pre-commit-config.yaml")["repos"]}
    assert revisions["https://github.com/astral-sh/ruff-pre-commit"] == f"v{pinned}"
