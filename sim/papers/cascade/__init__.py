"""The cascade of DiffServe beside its light and its heavy model alone."""
