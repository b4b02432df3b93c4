"""Statistics of traces as figures, one subject each; two traces share the axes."""

from mezzotint.traces.describe.figures.subjects import SUBJECTS, Subject, check_folder, draw, overview, write

__all__ = ["SUBJECTS", "Subject", "check_folder", "draw", "overview", "write"]
