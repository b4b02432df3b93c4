"""Fixtures of the trace tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.traces.table.trace import Trace, make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def columns() -> dict[str, Any]:
    """Three valid requests, with every kind of null."""
    return {
        "request_id": ["a", "b", "c"],
        "arrival_s": [0.0, 1.5, 1.5],
        "user_id": ["u", None, "u"],
        "prompt": ["a red fox", "", None],
        "width": [512, 768, None],
        "height": [512, 512, 640],
        "steps": [50, None, 150],
        "images": [1, 1, 4],
        "base_model": [None, "sdxl", "sdxl"],
        "controlnets": [[], None, ["canny", "depth"]],
        "loras": [["papercut"], [], None],
        "seed": [0, 2**32 - 1, None],
    }


@pytest.fixture
def trace(columns: dict[str, Any]) -> Trace:
    return make(columns, name="three", source="a test")


@pytest.fixture
def text_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write text to a file and give its path."""

    def write(text: str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
