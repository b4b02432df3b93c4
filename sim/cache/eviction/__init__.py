"""Eviction: choose the items that leave a full cache. One policy per file."""

from mezzotint.sim.cache.eviction.base import FINAL, K_BITS, K_MASK
from mezzotint.sim.cache.eviction.fifo import Fifo
from mezzotint.sim.cache.eviction.lcbfu import Lcbfu
from mezzotint.sim.cache.eviction.lfu import Lfu
from mezzotint.sim.cache.eviction.lru import Lru
from mezzotint.sim.cache.eviction.optimum import Optimum
from mezzotint.sim.cache.eviction.random import Random

__all__ = [
    "FINAL",
    "K_BITS",
    "K_MASK",
    "Fifo",
    "Lcbfu",
    "Lfu",
    "Lru",
    "Optimum",
    "Random",
]
