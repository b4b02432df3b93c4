"""Runs with policies from outside the project: their module on the path, their YAML beside ours."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.sim.run.simulate import Outcome
from tests.sim.lab import simulated

HERE = Path(__file__).parent


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """One simulation, as ``mezzotint run --plugin their_policies --config-dir their_conf`` makes it."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "their_policies")
    monkeypatch.delitem(sys.modules, "their_policies", raising=False)  # another test may have imported such a module
    return lambda *overrides: simulated(f"hydra.searchpath=[file://{HERE / 'their_conf'}]", *overrides)
