"""One thread, and a CLIP model that is built once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("diffusers")
pytest.importorskip("torchmetrics")

from tests.traces.lab import tiny_clip  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP model with random weights; treat as read-only."""
    folder = tmp_path_factory.mktemp("clip")
    tiny_clip(folder)
    return folder
