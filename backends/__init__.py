"""What a denoising step costs: profiled tables, and live pipelines where a GPU is at hand."""
