"""What is in a trace: the numbers that decide how caches and schedulers will fare on it."""

from traces.describe.compare import side_by_side
from traces.describe.statistics import TraceStatistics, describe_trace
from traces.describe.text import render

__all__ = ["TraceStatistics", "describe_trace", "render", "side_by_side"]
