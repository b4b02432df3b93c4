"""A plan on a short built-in trace, whose runs the tests of this folder share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.plan.answer import Plan
from mezzotint.sim.plan.command import answer_plan
from mezzotint.sim.plan.options import Options

REQUESTS = 1500

Ask = Callable[..., Plan]


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of runs that the tests of all processes share."""
    folder = tmp_path_factory.getbasetemp()
    kept = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "kept"
    kept.mkdir(exist_ok=True)
    return kept


@pytest.fixture
def ask(kept: Path) -> Ask:
    """Answer a plan: vanilla on L40S at two requests a second, unless options say otherwise."""

    def answer(**options: Any) -> Plan:
        given: dict[str, Any] = {
            "target": ["p95<10s"],
            "model": "sdxl-mlperf",
            "gpu": ["l40s"],
            "design": ["vanilla"],
            "rate_rpm": 120.0,
            "max_gpus": 16,
            "replications": 3,
            "rank": 1,
            "runs": kept,
            "overrides": [f"trace.requests={REQUESTS}", "trace.history=0"],
        }
        return answer_plan(Options(**given | options))

    return answer
