"""What every room's tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("mezzotint", deadline=None)  # speed is never asserted by the clock
settings.load_profile("mezzotint")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real traces, which the project never contains."""
    folder = Path(os.environ.get("MEZZOTINT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real traces in {folder}; name their folder in MEZZOTINT_DATA")
    return folder


@pytest.fixture(autouse=True)
def remembered(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered on disk goes to a folder of this test session's own; classes of tests are plug-ins."""
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "tests")
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path_factory.getbasetemp() / "remembered"))
