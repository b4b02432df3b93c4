"""Random streams: every one is spawned from a seed by name.

A name decides what is drawn, so names stand here as literals and stay as they are when code is renamed or moved.
"""

import numpy as np

TRACE = "trace"
ARRIVALS = "arrivals"
IMAGES = "images of {}"
"""Of a trace and its encoder, whatever the run's seed: modelled images belong to the trace."""
FRONT_END = {"embed_s": "door.embed_s", "search_s": "door.search_s", "fetch_s": "door.fetch_s"}
PREDICTOR = "predictor"
EVICTION = "eviction"
ROUTER = "router"
LATENCY = "latency {}"
"""Of a model."""
FAILURES = "failures.{}"
"""Of a GPU, by number."""
LORA_FETCHES = "fetch of LoRAs"
LORA_LOADS = "LoRAs before the first step"
PAIRS = "pairs"
SERVICE = "service {}"
"""Of a production service whose add-ons are drawn (sim.papers.addons)."""


def stream(seed: int, name: str) -> np.random.Generator:
    """The random stream ``name`` of ``seed``; streams of different names are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(name.encode())))
