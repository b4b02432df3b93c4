"""Costs of a denoising step: profiled tables, or live pipelines on the device at hand."""
