"""Artifact cache: stores artifacts of earlier requests and finds similar ones."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np

from mezzotint.settings.ranges import Count, Seconds, Steps
from mezzotint.sim.cache.eviction import FINAL, K_BITS, K_MASK
from mezzotint.sim.cache.index import VectorIndex
from mezzotint.sim.cache.key import KeyPart, key_codes
from mezzotint.sim.core.culprit import class_name, is_ours
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import IMAGES, stream
from mezzotint.sim.protocols import Eviction, Partition, RequestColumn, Run, Selector, Watcher
from mezzotint.traces.similarity.scan import ScanFirst
from mezzotint.traces.similarity.similarities import SimilaritySource

LATENT_KEY: tuple[KeyPart, ...] = "size", "steps"
"""What a latent is bound to: it can be resumed at no other size or number of steps."""

MANY = 64
"""Partitions above which small ones are scanned: an index of many artifacts is costly to make for each."""


Match = tuple[int, int | None, float]
"""Most similar entry for a request, the trace row that made it (None if it is evicted but still indexed), and its
similarity. This and the next are plain tuples, since one is made for each request."""

StartState = tuple[int, float, float, Any]
"""State that a request starts from: K, its age in seconds, the seconds of resizing it, and a live backend's tensor."""


@dataclass(slots=True)
class CacheEntry:
    """Stored artifacts of an earlier request; ``artifact`` is a live backend's final image, or its latents by K."""

    row: int
    created_s: float
    partition: Partition
    artifact: Any


@dataclass(slots=True)
class ArtifactCache:
    """Artifacts of earlier requests, up to ``capacity`` items.

    Args:
        capacity: number of items: final images, or states at one K each. None is unbounded.
        similarity: which embeddings are compared, and how.
        eviction: which item leaves a full cache.
        latents_at: K of the stored latents (NIRVANA: 5, 10, 15, 20, 25), one item each. Empty stores the final image
            (MoDM; any model can refine it).
        evict_by: unit of eviction if an insertion does not fit. ``items`` evicts the worst items until it fits
            (NIRVANA, 5.4: |K| for |K|). ``prompt`` evicts the worst items until one entry has none left, and repeats
            until it fits (MoDM's artifact); this leaves the cache somewhat below its capacity.
        key: what a request and the one that made an artifact must have in common, besides similar prompts
            (mezzotint.sim.cache.key). None is size and steps for latents, and nothing for final images.
        lifetime_s: seconds after which an artifact is deleted; None keeps it until it is evicted.
        resize_s: seconds in which a worker resizes a final image for a request of another size.

    An entry that has lost some states has holes: a request takes the largest stored K' up to its own K (5.4). If there
    is none, the request is a miss and its states become a new entry (MoDM's artifact; the paper has no rule). An entry
    without states leaves the index.

    The artifacts of each key are searched on their own. Only a request of the same width, height, frames and number of
    steps can resume a latent. A final image can be resized.

    Raises ConfigError: the key of latents lacks size or steps, or that of resized images has the size.
    """

    capacity: Count | None
    similarity: SimilaritySource
    eviction: Eviction
    latents_at: tuple[Steps, ...] = ()
    evict_by: Literal["items", "prompt"] = "items"
    key: tuple[KeyPart, ...] | None = None
    lifetime_s: Seconds | None = None
    resize_s: Seconds = 0.0
    items: int = field(init=False, default=0)
    _evictions: RequestColumn = field(init=False, repr=False)
    _holes: RequestColumn = field(init=False, repr=False)
    _entries: dict[int, CacheEntry] = field(init=False, default_factory=dict, repr=False)
    _index: VectorIndex = field(init=False, repr=False)
    _outside_search: str = field(init=False, repr=False)
    """The class of a search from outside the package, whose results are checked; empty for one of ours."""
    _ks: tuple[int, ...] = field(init=False, default=())
    """K of the stored states, ascending."""
    _bits: dict[int, int] = field(init=False, default_factory=dict, repr=False)
    """K -> its bit in ``_stored_bits``."""
    _stored_bits: list[int] = field(init=False, default_factory=list, repr=False)
    """Bits of the states still stored, for each entry ever made (8 bytes each). Entries evicted in turn are neighbours,
    so a look seldom leaves the processor's cache."""
    _has_artifacts: bool = field(init=False, default=False)
    _codes: "array[int] | None" = field(init=False, default=None, repr=False)
    """Code of the key of every trace row; None if all are equal."""
    _sizes: "array[int] | None" = field(init=False, default=None, repr=False)
    """Code of the size of every trace row, if resizing takes time; else None."""
    _expired: int = field(init=False, default=0)
    """Entries before this one are past their lifetime, or evicted."""

    def __post_init__(self) -> None:
        if self.key is None:
            self.key = LATENT_KEY if self.latents_at else ()
        lacking = [part for part in LATENT_KEY if part not in self.key]
        if self.latents_at and lacking:
            raise ConfigError(
                f"cache.key: found [{', '.join(self.key)}] without {' and '.join(lacking)}, and the cache stores "
                "latents, which no request of another size or number of steps can resume; add "
                f"{' and '.join(lacking)}, or store final images (cache.latents_at=[])"
            )
        if self.resize_s and "size" in self.key:
            raise ConfigError(
                f"cache.resize_s: found {self.resize_s:g} beside a key with size, and no image of another size is "
                "reused; leave one of them out"
            )
        self._ks = tuple(sorted(set(self.latents_at))) or (FINAL,)
        self._bits = {k: 1 << bit for bit, k in enumerate(self._ks)}

    def bind(
        self, run: Run, selector: Selector, index: VectorIndex | None = None, watcher: Watcher | None = None
    ) -> None:
        """Bind the parts to the trace's embeddings. Artifacts below the floor of ``selector`` are never found; without
        an ``index`` all others are found at once."""
        assert self.key is not None
        codes = key_codes(run.workload, self.key)
        partitions = int(codes.max(initial=0)) + 1
        self._codes = array("i", codes.astype(np.int32).tobytes()) if partitions > 1 else None
        self._assume_sharing(run, self.key)
        inputs = run.similarity
        vectors = inputs.embeddings()
        self._holes = run.add_column("hole", bool, public=False, total="cache.holes")
        self._evictions = run.add_column("evictions", int, default=0, public=False, total="cache.evictions")
        # Seed 0, not the run's: modelled images belong to the trace, so a sweep over seeds compares the same images.
        self.similarity.bind(vectors, stream(0, IMAGES.format(inputs.content)), inputs.similarity_map)
        for assumption in self.similarity.assumptions():
            run.assume(assumption.what, assumption.value, assumption.source)
        min_product = self.similarity.product(selector.floor)
        if min_product != min_product:
            raise SimulationError(
                f"{class_name(selector)} has the floor {selector.floor}, and {class_name(self.similarity)} with "
                f"{class_name(inputs.similarity_map)} the product nan for it; expected numbers, or -inf for no floor"
            )
        search = class_name(inputs.search)
        self._outside_search = "" if is_ours(search) else search
        make = inputs.search.open(self.similarity, len(vectors), min_product, inputs.content)
        make_index = make if partitions <= MANY else lambda: ScanFirst(self.similarity, min_product, make)
        self._index = VectorIndex() if index is None else index
        self._index.open(make_index, watcher)
        if index is None:
            # Of an index of its own nobody else starts: what fills the cache before the run is found at once.
            self._index.start_serving()
        self.eviction.restrict(codes, self.lifetime_s)
        self.eviction.bind(run, self.similarity, selector)

    def _assume_sharing(self, run: Run, key: tuple[KeyPart, ...]) -> None:
        """List the key, the lifetime and the cost of another size; take the sizes, if resizing takes time."""
        equal = "a request starts from an artifact only if these are equal" if key else "similar prompts are enough"
        run.assume("cache key", ", ".join(key) or "none", f"cache.key: {equal}")
        forever = "for ever" if self.lifetime_s is None else self.lifetime_s
        run.assume("lifetime of an artifact [s]", forever, "cache.lifetime_s; besides evictions")
        if "size" in key:
            return
        sizes = key_codes(run.workload, ("size",))
        if sizes.any():
            run.assume("seconds to resize an image of another size", self.resize_s, "cache.resize_s")
            self._sizes = array("i", sizes.astype(np.int32).tobytes()) if self.resize_s else None

    def refuse_unstored(self, selector: Selector) -> None:
        """Raise ConfigError if ``selector`` was made for other artifacts than are stored, or has a K that is not
        stored: a smaller K would be served, and counted, in its place."""
        made_for, stored = getattr(selector, "stored", None), "latents" if self.latents_at else "images"
        if made_for is not None and made_for != stored:
            raise ConfigError(
                f"selector.stored: found {made_for}, which its thresholds were made for, and the cache stores {stored} "
                f"(cache.latents_at: {list(self.latents_at)}); choose cache= and selector= of one kind, or "
                "selector.stored=null for a table that fits both"
            )
        missing = sorted(set(getattr(selector, "thresholds", ())) - set(self.latents_at))
        if missing and self.latents_at:
            raise ConfigError(
                f"selector.thresholds: found K = {', '.join(map(str, missing))}, and the cache stores the states after "
                f"{', '.join(map(str, self.latents_at))}; add it to cache.latents_at, or choose a selector without it"
            )

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, request: Request) -> Match | None:
        """Return the most similar entry that a search finds when ``request`` arrives; None if there is none."""
        if self.lifetime_s is not None:
            self._expire(request.arrival_s, self.lifetime_s)
        row = request.row
        nearest = self._index.find(0 if self._codes is None else self._codes[row], row, request.arrival_s)
        if nearest is None:
            return None
        if self._outside_search:
            self._check_found(nearest, row)
        entry_id, product = nearest
        entry = self._entries.get(entry_id)
        return entry_id, None if entry is None else entry.row, self.similarity.similar(product)

    def _check_found(self, found: Any, row: int) -> None:
        """Raise SimulationError if an index of others did not find an entry that is there, and its product."""
        is_pair = isinstance(found, Sequence) and len(found) == 2 and np.isfinite(found[1])
        entry = found[0] if is_pair else None
        # With updates in batches an entry may be found that is gone.
        if entry not in self._entries and (entry not in range(len(self._stored_bits)) or self._index.is_immediate):
            raise SimulationError(
                f"{self._outside_search} found {found!r:.100} for row {row}; expected None, or an entry that was "
                "added and not removed, and its product with the prompt"
            )

    def get(self, entry_id: int, k: int, now_s: float, request: Request) -> StartState | None:
        """Return the state of an entry with the largest stored K' up to ``k`` (NIRVANA, 5.4: holes), or None. A final
        image serves any K."""
        entry = self._entries[entry_id]
        age_s = now_s - entry.created_s
        if self._ks[0] == FINAL:
            self.eviction.used(entry_id << K_BITS | FINAL)
            is_resized = self._sizes is not None and self._sizes[entry.row] != self._sizes[request.row]
            return k, age_s, self.resize_s if is_resized else 0.0, entry.artifact
        # bisect_right: a state at K itself is usable (test_artifact_cache_matches_a_linear_search_of_a_list).
        usable = bisect_right(self._ks, k)
        # The highest of the usable bits that is set: the largest stored K' up to K.
        rank = (self._stored_bits[entry_id] & (1 << usable) - 1).bit_length()
        if rank < usable:
            self._holes[request.row] = True
        if rank == 0:
            return None
        largest_k = self._ks[rank - 1]
        self.eviction.used(entry_id << K_BITS | largest_k)
        return largest_k, age_s, 0.0, None if entry.artifact is None else entry.artifact[largest_k]

    def insert(self, request: Request, now_s: float) -> None:
        """Store the artifacts of ``request``, after evicting items if needed. A request that started at K leaves only
        the states after K. An entry larger than the capacity is not stored."""
        ks = self._ks
        k = request.plan.k
        # The state at K itself was read, not made: it stays with the entry that it came from.
        first = bisect_right(ks, k) if k and ks[0] != FINAL else 0
        if first:
            ks = ks[first:]
        size = len(ks)
        if size == 0:
            return
        if self.lifetime_s is not None:
            self._expire(now_s, self.lifetime_s)
        if self.capacity is not None:
            if size > self.capacity:
                return
            if self.items + size > self.capacity:
                try:
                    # Before the entry exists, so that no policy can name it as its own victim.
                    self._evict_to(self.capacity - size, request.row, now_s)
                except TypeError as error:
                    self._refuse_victims(f"named what is no list of items ({error})")
        stored_bits = self._stored_bits
        entry = len(stored_bits)
        stored_bits.append((1 << len(self._ks)) - (1 << first))
        row = request.row
        partition = 0 if self._codes is None else self._codes[row]
        self._entries[entry] = CacheEntry(row, now_s, partition, request.made)
        if request.made is not None:
            self._has_artifacts = True
        self._index.add(partition, entry, row, now_s)
        self.eviction.added(entry, ks, row)
        self.items += size

    def _evict_to(self, max_items: int, row: int, now_s: float) -> None:
        """Evict until ``max_items`` items are left. Raises SimulationError for victims that are not stored, or a wrong
        number of them."""
        stored_bits, bits, by_prompt, expired = self._stored_bits, self._bits, self.evict_by == "prompt", self._expired
        items, left_bits = self.items, 0
        while items > max_items or (by_prompt and left_bits):
            # One by one with ``prompt``, since only the state after an eviction tells if its entry is empty.
            wanted = 1 if by_prompt else items - max_items
            victims = self.eviction.victims(wanted)
            # Before anything is removed, so that the error leaves the cache as the policy saw it.
            if len(victims) != wanted:
                self._refuse_victims(f"named {len(victims)} items when {wanted} had to go")
            items -= wanted
            for victim in victims:
                entry_id, k = victim >> K_BITS, victim & K_MASK
                bit = bits.get(k, 0)
                stored = stored_bits[entry_id] if 0 <= entry_id < len(stored_bits) else 0
                if not stored & bit:
                    self._refuse_victims(f"named item {victim} (entry {entry_id}, K = {k}), which is not in the cache")
                if entry_id < expired:
                    # It expired, which the policy was not told: another item is evicted in its place.
                    stored_bits[entry_id] = stored ^ bit
                    items += 1
                    continue
                stored_bits[entry_id] = left_bits = stored ^ bit
                if not left_bits:
                    entry = self._entries.pop(entry_id)
                    self._index.remove(entry.partition, entry_id, entry.row, now_s)
                elif self._has_artifacts:
                    artifact = self._entries[entry_id].artifact
                    if artifact is not None:
                        del artifact[k]
        self._evictions[row] = self.items - items
        self.items = items

    def _expire(self, now_s: float, lifetime_s: float) -> None:
        """Delete the entries of ``lifetime_s`` or older. Their bits stay until the eviction names them, which it is not
        told of."""
        # Entries are numbered as they come, so the first one that is young enough ends the search.
        for entry_id in range(self._expired, len(self._stored_bits)):
            entry = self._entries.get(entry_id)
            if entry is not None:
                if now_s - entry.created_s < lifetime_s:
                    self._expired = entry_id
                    return
                del self._entries[entry_id]
                self.items -= self._stored_bits[entry_id].bit_count()
                self._index.remove(entry.partition, entry_id, entry.row, now_s)
        self._expired = len(self._stored_bits)

    def _refuse_victims(self, what: str) -> NoReturn:
        raise SimulationError(f"the eviction ({class_name(self.eviction)}) {what}")
