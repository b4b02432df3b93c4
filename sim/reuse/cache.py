"""The cache of artifacts: what is stored of earlier requests, and what a search finds in it.

Find, get, insert and evict are separate: ``find`` names the best match, ``get`` takes the state to start from
(and counts as its use), ``insert`` stores what a request left behind, and eviction makes room before that.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sim.engine import Engine, stream
from sim.errors import ConfigError
from sim.request import Request
from sim.reuse.database import Database, Watcher
from sim.reuse.eviction import FINAL, Eviction, Item
from traces.similarity import Space


@dataclass(frozen=True, slots=True)
class Match:
    """The best artifact for a request: which entry, the trace row it came from, and how similar it is.

    ``row`` is None where the database still knows an entry that the cache no longer has.
    """

    entry: int
    row: int | None
    similarity: float


class State(NamedTuple):
    """What a request starts from: K, the age of the state in seconds, and, of a live backend, its tensor."""

    k: int
    age_s: float
    artifact: Any


@dataclass(slots=True)
class Entry:
    """What is held of one earlier request. ``held`` has a bit for every K whose state is still stored.

    ``artifact`` is what a live backend made: the final image, or the latents by K.
    """

    row: int
    created_s: float
    shape: tuple[int, int, int] | None
    held: int
    artifact: Any


@dataclass(slots=True)
class Cache:
    """Artifacts of earlier requests, up to ``capacity`` items.

    Args:
        capacity: items: final images, or states at one K each. None is unbounded.
        space: what "similar" means.
        eviction: which item leaves when room is needed.
        latents_at: the K whose latents are stored (NIRVANA: 5, 10, 15, 20, 25; an entry is as many items);
            empty to store the final image (MoDM; any model can refine it).

    A latent can only be resumed by a request of the same width, height and number of steps, so those are
    searched apart; a final image is resized, so all of them are searched together.

    Raises:
        ConfigError: a capacity that is not positive, or a K that is not.
    """

    capacity: int | None
    space: Space
    eviction: Eviction
    latents_at: tuple[int, ...] = ()
    items: int = field(init=False, default=0)
    _engine: Engine = field(init=False, repr=False)
    _entries: dict[int, Entry] = field(init=False, default_factory=dict, repr=False)
    _database: Database = field(init=False, repr=False)
    _next: int = field(init=False, default=0)
    _preload: int = field(init=False, default=0)
    _ks: tuple[int, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        if self.capacity is not None and self.capacity <= 0:
            raise ConfigError(f"cache.capacity: found {self.capacity}, expected a positive number of items or null")
        if any(k <= 0 for k in self.latents_at):
            raise ConfigError(f"cache.latents_at: found {self.latents_at}, expected positive steps")
        self._ks = tuple(sorted(set(self.latents_at))) or (FINAL,)

    def bind(
        self, engine: Engine, floor: float, database: Database | None = None, watcher: Watcher | None = None
    ) -> None:
        """Take the trace's embeddings. What is less similar than ``floor`` is never found.

        Without a ``database`` what is stored is found at once; else when it says so, and it tells ``watcher``.
        """
        self._engine = engine
        vectors = engine.embeddings()
        # Modelled images belong to the trace: another seed of the run must not change what they look like.
        self.space.bind(vectors, stream(0, f"images of {engine.content}"))
        for what, value, source in self.space.assumptions():
            engine.assume(what, value, source)
        self._preload = engine.preload
        index = engine.search.open(self.space, len(vectors), floor, engine.content)
        self._database = Database() if database is None else database
        self._database.open(index, watcher)
        if database is None:
            self._database.settle(0.0)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, request: Request) -> Match | None:
        """The most similar entry that a search finds for ``request`` when it arrives; None where none is."""
        found = self._database.best(self._shape(request), request.row + self._preload, request.arrival_s)
        if found is None:
            return None
        entry, similarity = found
        held = self._entries.get(entry)
        return Match(entry, None if held is None else held.row, similarity)

    def get(self, match: Match, k: int, now_s: float, request: Request) -> State | None:
        """Take the state of ``match`` to start from when ``k`` steps may be skipped.

        Its K' is the largest stored one not above ``k`` (NIRVANA, 5.4: holes); None where all of them are above.
        A final image serves any K. ``request.hole`` is set where a larger state than K' would have served.
        """
        entry = self._entries[match.entry]
        age_s = now_s - entry.created_s
        if self._ks[0] == FINAL:
            self.eviction.used(Item(match.entry, FINAL))
            return State(k, age_s, entry.artifact)
        best = max((at for bit, at in enumerate(self._ks) if at <= k and entry.held >> bit & 1), default=0)
        if best < max((at for at in self._ks if at <= k), default=0):
            request.hole = True
        if best == 0:
            return None
        self.eviction.used(Item(match.entry, best))
        return State(best, age_s, None if entry.artifact is None else entry.artifact[best])

    def insert(self, request: Request, now_s: float) -> None:
        """Store what ``request`` left behind, evicting what it takes to make room.

        A request that itself began at K leaves only the states after K. An entry of more items than the whole
        capacity is not stored.
        """
        ks = [k for k in self._ks if k == FINAL or k > request.k]
        size = len(ks)
        if size == 0:
            return
        if self.capacity is not None:
            if size > self.capacity:
                return
            while self.items + size > self.capacity:
                self._evict(self.eviction.victim(), now_s)
                self._engine.columns.evicted(request.row)
        entry = self._next
        self._next += 1
        shape = self._shape(request)
        row = request.row + self._preload
        held = sum(1 << self._ks.index(k) for k in ks)
        self._entries[entry] = Entry(row, now_s, shape, held, request.made)
        self._database.add(shape, entry, row, now_s)
        for k in ks:
            self.eviction.added(Item(entry, k))
        self.items += size

    def _evict(self, item: Item, now_s: float) -> None:
        entry = self._entries[item.entry]
        entry.held &= ~(1 << self._ks.index(item.k))
        self.items -= 1
        if entry.artifact is not None and item.k != FINAL:
            del entry.artifact[item.k]
        if not entry.held:
            self._database.remove(entry.shape, item.entry, entry.row, now_s)
            del self._entries[item.entry]

    def _shape(self, request: Request) -> tuple[int, int, int] | None:
        if self._ks[0] == FINAL:
            return None
        return request.width, request.height, request.steps
