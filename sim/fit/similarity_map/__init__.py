"""Fit the map from an encoder's similarities to CLIP's on NIRVANA's published FIFO caches."""
