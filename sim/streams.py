"""Random streams: every one is spawned from a seed by name."""

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """The random stream ``name`` of ``seed``; streams of different names are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(name.encode())))
