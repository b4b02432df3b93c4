"""Eviction: which item leaves a full cache. One policy per file."""

from sim.reuse.eviction.base import FINAL, K_BITS, K_MASK
from sim.reuse.eviction.fifo import Fifo
from sim.reuse.eviction.lcbfu import Lcbfu
from sim.reuse.eviction.lfu import Lfu
from sim.reuse.eviction.lru import Lru
from sim.reuse.eviction.optimum import Optimum
from sim.reuse.eviction.random import Random

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
