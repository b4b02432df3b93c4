"""The simulator: front end, cache, scheduling, cluster, execution, control, metrics and reports."""
