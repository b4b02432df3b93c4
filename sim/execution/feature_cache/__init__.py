"""Feature caches: a denoiser reuses blocks, or whole steps, of what it computed a step before."""
