"""Fixed clusters and autoscalers, compared over a day of changing load."""
