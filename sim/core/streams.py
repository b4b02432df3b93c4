"""Random streams, spawned from a seed by name.

A name decides the draws, so names are literals here and stay the same when code is renamed or moved.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

TRACE = "trace"
ARRIVALS = "arrivals"
IMAGES = "images of {}"
"""For a trace and its encoder; not for the run's seed, since modelled images belong to the trace."""
FRONT_END = {"embed_s": "door.embed_s", "search_s": "door.search_s", "fetch_s": "door.fetch_s"}
PREDICTOR = "predictor"
EVICTION = "eviction"
ROUTER = "router"
LATENCY = "latency {}"
"""For a model."""
FAILURES = "failures.{}"
"""For a GPU, by number."""
LORA_FETCHES = "fetch of LoRAs"
LORA_LOADS = "LoRAs before the first step"
PAIRS = "pairs"
HITS = "declared hits"
SCORES = "cascade.score"
DISPATCH = "scheduler.dispatch"
SERVICE = "service {}"
"""For a production service whose add-ons are drawn (mezzotint.sim.papers.addons)."""
CLIENT = "client"
CELL = "cell {} of {}"
"""For the seed of a cell, by its number."""


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random stream ``name`` of ``seed``; streams of different names are independent."""
    # By the bytes of the name: Python's hash of a text differs from process to process
    # (test_same_system_does_the_same_with_another_hash_seed).
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(name.encode())))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global random streams of Python and NumPy in the block: a part from outside may draw from them."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def seed_of(seed: int, name: str) -> int:
    """Return a seed for all streams of one part of a run, drawn from the stream ``name`` of ``seed``."""
    return int(stream(seed, name).integers(2**63))
