"""Names of random streams: one frozen table."""

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from mezzotint.sim.core import streams
from tests.conftest import REPOSITORY

TABLE = [value for name, value in vars(streams).items() if name.isupper()]
NAMES = tuple(name for value in TABLE for name in (value.values() if isinstance(value, dict) else [value]))


@pytest.mark.invariant(1)
def test_stream_names_are_frozen() -> None:
    """Renaming a stream would change the random numbers of every run."""
    assert NAMES == (
        "trace", "arrivals", "images of {}", "door.embed_s", "door.search_s", "door.fetch_s", "predictor", "eviction",
        "router", "latency {}", "failures.{}", "fetch of LoRAs", "LoRAs before the first step", "pairs",
        "declared hits", "cascade.score", "scheduler.dispatch", "service {}", "client", "cell {} of {}",
    )  # fmt: skip


@pytest.mark.invariant(1)
def test_code_uses_only_streams_of_the_table() -> None:
    asked = {name for package in ("sim", "traces", "backends", "notebooks") for name in _asked(package)}
    assert asked == set(NAMES)


def _asked(package: str) -> Iterator[str]:
    """Yield the names of the streams that the code of ``package`` uses."""
    for path in (REPOSITORY / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            made = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if path.name not in ("engine.py", "streams.py") and made in ("rng", "stream", "seed_of"):
                yield from _names(node.args[-1])


def _names(node: Any) -> list[str]:
    """Return the names that a constant of mezzotint.sim.core.streams stands for."""
    if isinstance(node, ast.Call):  # NAME.format(...)
        return _names(node.func.value)
    if isinstance(node, ast.Subscript):
        return list(getattr(streams, node.value.id).values())
    return [getattr(streams, node.id)]
