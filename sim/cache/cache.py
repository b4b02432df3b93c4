"""The cache of artifacts: what is stored of earlier requests, and what a search finds in it."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn

from conf.ranges import Count, Steps
from sim.cache.eviction import FINAL, K_BITS, K_MASK
from sim.cache.index import VectorIndex
from sim.core.culprit import class_name
from sim.core.errors import ConfigError, SimulationError
from sim.core.request import Request
from sim.core.streams import IMAGES, stream
from sim.protocols import Eviction, RequestColumn, Run, Selector, Watcher
from traces.similarity.similarities import SimilaritySource


@dataclass(slots=True)
class Match:
    """The best artifact for a request: its entry, the trace row that left it, and how similar it is. ``row`` is None
    where the database still knows an entry that the cache no longer has."""

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
    """An earlier request of which something is held; ``artifact``: of a live backend, its final image or latents by
    K."""

    row: int
    created_s: float
    shape: tuple[int, int, int] | None
    artifact: Any


@dataclass(slots=True)
class ArtifactCache:
    """Artifacts of earlier requests, up to ``capacity`` items.

    Args:
        capacity: items: final images, or states at one K each. None is unbounded.
        similarity: what "similar" means.
        eviction: which item leaves when room is needed.
        latents_at: the K whose latents are stored (NIRVANA: 5, 10, 15, 20, 25; an entry is as many items);
            empty to store the final image (MoDM; any model can refine it).
        evict_by: how much leaves before an insertion that does not fit. ``items``: the worst items, as many as it takes
            for the new ones to fit (NIRVANA, 5.4: |K| for |K|). ``prompt``: the worst items until one entry has lost
            all of its own, again until it fits (MoDM's artifact), which leaves the cache somewhat below its capacity.

    An entry that has lost some of its states has holes: a request takes the largest K' that is left and not above
    its own K (5.4). Where there is none it is served as a miss and its states are stored as a new entry (MoDM's
    artifact; the paper has no rule for it). An entry that has lost all states leaves the index.

    A latent can only be resumed by a request of the same width, height and number of steps, so those are
    searched apart; a final image is resized, so all of them are searched together.
    """

    capacity: Count | None
    similarity: SimilaritySource
    eviction: Eviction
    latents_at: tuple[Steps, ...] = ()
    evict_by: Literal["items", "prompt"] = "items"
    items: int = field(init=False, default=0)
    _evictions: RequestColumn = field(init=False, repr=False)
    _holes: RequestColumn = field(init=False, repr=False)
    _entries: dict[int, Entry] = field(init=False, default_factory=dict, repr=False)
    _database: VectorIndex = field(init=False, repr=False)
    _ks: tuple[int, ...] = field(init=False, default=())
    """The K at which states are stored, from the smallest."""
    _bit: dict[int, int] = field(init=False, default_factory=dict, repr=False)
    """For each K its bit, from 1 on."""
    _held: list[int] = field(init=False, default_factory=list, repr=False)
    """For each entry there ever was, 8 bytes of memory each, the bits of the states that are still stored. In eviction
    order neighbours are beside each other: to look here seldom leaves the processor's cache."""
    _keeps: bool = field(init=False, default=False)
    """Whether entries have artifacts."""

    def __post_init__(self) -> None:
        self._ks = tuple(sorted(set(self.latents_at))) or (FINAL,)
        self._bit = {k: 1 << place for place, k in enumerate(self._ks)}

    def bind(
        self, run: Run, selector: Selector, database: VectorIndex | None = None, watcher: Watcher | None = None
    ) -> None:
        """Take the trace's embeddings; what is less similar than the floor of ``selector`` is never found. Without a
        ``database`` what is stored is found at once; else when it says so, and it tells ``watcher``."""
        alike = run.similarity
        vectors = alike.embeddings()
        self._holes = run.add_column("hole", bool, public=False, total="cache.holes")
        self._evictions = run.add_column("evictions", int, default=0, public=False, total="cache.evictions")
        self.similarity.bind(vectors, stream(0, IMAGES.format(alike.content)), alike.similarity_map)
        for said in self.similarity.assumptions():
            run.assume(said.what, said.value, said.source)
        product = self.similarity.product(selector.floor)
        index = alike.search.open(self.similarity, len(vectors), product, alike.content)
        self._database = VectorIndex() if database is None else database
        self._database.open(index, watcher)
        if database is None:
            self._database.settle(0.0)
        self.eviction.bind(run, self.similarity, selector)

    def refuse_unstored(self, selector: Selector) -> None:
        """Raise ConfigError for a ``selector`` whose K were chosen for latents where images are stored, or the other
        way, or for a K that is not stored: a smaller one would be served, and counted, in its place."""
        made_for, there = getattr(selector, "stored", None), "latents" if self.latents_at else "images"
        if made_for is not None and made_for != there:
            raise ConfigError(
                f"selector.stored: found {made_for}, which its thresholds were made for, and the cache stores {there} "
                f"(cache.latents_at: {list(self.latents_at)}); choose cache= and selector= of one kind, or say that "
                "the table fits both (selector.stored=null)"
            )
        asked = sorted(set(getattr(selector, "thresholds", ())) - set(self.latents_at))
        if asked and self.latents_at:
            raise ConfigError(
                f"selector.thresholds: found K = {', '.join(map(str, asked))}, and the cache stores the states after "
                f"{', '.join(map(str, self.latents_at))}; add it to cache.latents_at, or choose a selector without it"
            )

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, request: Request) -> Match | None:
        """The most similar entry that a search finds for ``request`` when it arrives; None where none is."""
        found = self._database.best(self._shape(request), request.row, request.arrival_s)
        if found is None:
            return None
        entry, product = found
        held = self._entries.get(entry)
        return Match(entry, None if held is None else held.row, self.similarity.similar(product))

    def get(self, match: Match, k: int, now_s: float, request: Request) -> State | None:
        """Take the state of ``match`` to start from when ``k`` steps may be skipped: its K' is the largest stored one
        not above ``k`` (NIRVANA, 5.4: holes), None where all are above. A final image serves any K."""
        entry = self._entries[match.entry]
        age_s = now_s - entry.created_s
        if self._ks[0] == FINAL:
            self.eviction.used(match.entry << K_BITS | FINAL)
            return State(k, age_s, entry.artifact)
        stored = bisect_right(self._ks, k)
        place = (self._held[match.entry] & (1 << stored) - 1).bit_length()
        if place < stored:
            self._holes[request.row] = True
        if place == 0:
            return None
        best = self._ks[place - 1]
        self.eviction.used(match.entry << K_BITS | best)
        return State(best, age_s, None if entry.artifact is None else entry.artifact[best])

    def insert(self, request: Request, now_s: float) -> None:
        """Store what ``request`` left behind, evicting what it takes to make room. A request that began at K leaves
        only the states after K; an entry of more items than the whole capacity is not stored."""
        # Of a full run all; a final image is one whatever the run skipped.
        ks = self._ks
        first = bisect_right(ks, request.k) if request.k and ks[0] != FINAL else 0
        if first:
            ks = ks[first:]
        size = len(ks)
        if size == 0:
            return
        if self.capacity is not None:
            if size > self.capacity:
                return
            if self.items + size > self.capacity:
                try:
                    self._make_room(self.capacity - size, request.row, now_s)
                except TypeError as error:
                    self._wrong(f"named what is no list of items ({error})")
        held = self._held
        entry = len(held)
        held.append((1 << len(self._ks)) - (1 << first))
        shape = self._shape(request)
        row = request.row
        self._entries[entry] = Entry(row, now_s, shape, request.made)
        if request.made is not None:
            self._keeps = True
        self._database.add(shape, entry, row, now_s)
        self.eviction.added(entry, ks, row)
        self.items += size

    def _make_room(self, most: int, row: int, now_s: float) -> None:
        """Evict until at most ``most`` items are left. Raises SimulationError for victims that are not held, or too
        few."""
        held, bit, by_prompt = self._held, self._bit, self.evict_by == "prompt"
        items, left = self.items, 0
        while items > most or (by_prompt and left):
            wanted = 1 if by_prompt else items - most
            victims = self.eviction.victims(wanted)
            if len(victims) != wanted:
                self._wrong(f"named {len(victims)} items when {wanted} had to go")
            items -= wanted
            for victim in victims:
                number = victim >> K_BITS
                its = bit.get(victim & K_MASK, 0)
                if not (0 <= number < len(held) and held[number] & its):
                    k = victim & K_MASK
                    self._wrong(f"named item {victim} (entry {number}, K = {k}), which is not in the cache")
                held[number] = left = held[number] ^ its
                if not left:
                    entry = self._entries.pop(number)
                    self._database.remove(entry.shape, number, entry.row, now_s)
                elif self._keeps:
                    artifact = self._entries[number].artifact
                    if artifact is not None:
                        del artifact[victim & K_MASK]
        self._evictions[row] = self.items - items
        self.items = items

    def _wrong(self, what: str) -> NoReturn:
        raise SimulationError(f"the eviction ({class_name(self.eviction)}) {what}")

    def _shape(self, request: Request) -> tuple[int, int, int] | None:
        if self._ks[0] == FINAL:
            return None
        return request.width, request.height, request.steps
