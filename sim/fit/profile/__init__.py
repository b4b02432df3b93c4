"""Fit a profile of generation seconds to a service's own log."""
