"""The committed numbers of the studies' quick forms are what the code makes: a page that is out of date fails here."""

import json
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.cli import main
from tests.conftest import REPOSITORY

RESULTS = REPOSITORY / "results"

NAMES = sorted(
    path.stem.removesuffix("-quick") for path in RESULTS.glob("*-quick.json") if "scorecard" not in path.stem
)
"""Those with a quick form; that of the scorecard is compared by its verdicts (test_scorecard_quick.py)."""


def leaves(facts: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of nested lists and mappings, with its place."""
    if isinstance(facts, dict | list):
        for key, below in facts.items() if isinstance(facts, dict) else enumerate(facts):
            yield from leaves(below, f"{at}.{key}")
    else:
        yield at, facts


def is_same(kept: Any, made: Any) -> bool:
    """Return True for equal values; the last bits of a number depend on the machine's algebra."""
    return kept == made or (isinstance(kept, float) and isinstance(made, float) and isclose(kept, made, rel_tol=1e-9))


@pytest.mark.parametrize("name", NAMES)
def test_committed_quick_form_is_what_the_code_makes(name: str, tmp_path: Path) -> None:
    """After an intended change `mezzotint reproduce NAME --quick` writes them anew; the page itself has others."""
    assert main(["reproduce", name, "--quick", "-o", str(tmp_path), "--work", str(tmp_path / "runs")]) == 0
    kept, made = (
        dict(leaves(json.loads((folder / f"{name}-quick.json").read_bytes()))) for folder in (RESULTS, tmp_path)
    )
    assert made.keys() == kept.keys()
    assert {at: (kept[at], found) for at, found in made.items() if not is_same(kept[at], found)} == {}


def test_studies_with_a_quick_form_are_compared() -> None:
    assert NAMES == ["addons", "autoscaling", "cascade", "compositions", "fleets"]
