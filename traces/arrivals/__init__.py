"""Arrival processes: the trace's own clock, or a process in its place; one file each."""
