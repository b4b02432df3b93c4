"""Random replacement."""

from dataclasses import dataclass, field

import numpy as np

from sim.engine import Engine
from sim.reuse.eviction.base import Item, decode, encode
from sim.reuse.selector import Selector
from traces.similarity import Space

DRAWN = 4096
"""Random numbers drawn at a time."""


@dataclass(slots=True)
class Random:
    """Every item in the cache is equally likely to go."""

    _rng: np.random.Generator = field(init=False, repr=False)
    _codes: list[int] = field(init=False, default_factory=list, repr=False)
    _drawn: list[float] = field(init=False, default_factory=list, repr=False)

    def bind(self, engine: Engine, space: Space, selector: Selector) -> None:
        """See Eviction.bind."""
        self._rng = engine.rng("eviction")

    def added(self, item: Item, row: int) -> None:
        """See Eviction.added."""
        self._codes.append(encode(item))

    def used(self, item: Item) -> None:
        """See Eviction.used."""

    def victim(self) -> Item:
        """See Eviction.victim. The last item takes its place, so that nothing else moves."""
        if not self._drawn:
            self._drawn = self._rng.random(DRAWN).tolist()
        codes = self._codes
        at = int(self._drawn.pop() * len(codes))
        code, codes[at] = codes[at], codes[-1]
        codes.pop()
        return decode(code)
