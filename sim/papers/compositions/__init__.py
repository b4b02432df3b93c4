"""Untested combinations of designs, compared with their parts."""
