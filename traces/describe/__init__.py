"""What is in a trace: the numbers that decide how caches and schedulers will fare on it."""

from traces.describe.compare import side_by_side
from traces.describe.facts import Character, characterise
from traces.describe.text import render

__all__ = ["Character", "characterise", "render", "side_by_side"]
