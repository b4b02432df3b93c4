"""Tiny live models, built once per session: building is deterministic and nothing that runs changes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("transformers")
pytest.importorskip("peft")

FAMILIES = ("sd15", "sdxl", "sd3", "flux", "sana")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """One tiny model per family; treat as read-only."""
    from mezzotint.backends.diffusers_ import ModelSpec, build

    return {family: build(ModelSpec(family, scale="tiny", seed=7)) for family in FAMILIES}


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, tiny: dict[str, Any]) -> Any:
    """Each family's tiny model in turn; treat as read-only."""
    return tiny[request.param]
