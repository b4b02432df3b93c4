"""Statistics of a trace: the numbers that decide how well caches and schedulers do on it."""

from mezzotint.traces.describe.compare import side_by_side
from mezzotint.traces.describe.statistics import TraceStatistics, describe_trace, render

__all__ = ["TraceStatistics", "describe_trace", "render", "side_by_side"]
