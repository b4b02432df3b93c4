"""What is in a trace: the numbers that decide how caches and schedulers will fare on it."""

from traces.describe.compare import Row, averaged, compare, side_by_side
from traces.describe.facts import Character, characterise, describe
from traces.describe.text import render
from traces.table.sessions import SESSION_GAP_S

__all__ = [
    "SESSION_GAP_S", "Character", "Row", "averaged", "characterise", "compare", "describe", "render", "side_by_side",
]  # fmt: skip
