"""Eviction: choose the items that leave a full cache. One policy per file."""

from sim.cache.eviction.base import FINAL, K_BITS, K_MASK
from sim.cache.eviction.fifo import Fifo
from sim.cache.eviction.lcbfu import Lcbfu
from sim.cache.eviction.lfu import Lfu
from sim.cache.eviction.lru import Lru
from sim.cache.eviction.optimum import Optimum
from sim.cache.eviction.random import Random

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
