"""A trace's facts as figures, one subject each; two traces are drawn on the same axes."""

from traces.describe.figures.subjects import SUBJECTS, Subject, check_folder, draw, overview, write

__all__ = ["SUBJECTS", "Subject", "check_folder", "draw", "overview", "write"]
