"""LoRA fetch from a remote cache behind one link, with a disk cache on each node."""

from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from mezzotint.backends.base import Asset
from mezzotint.settings.ranges import Count, Positive, Seconds
from mezzotint.sim.addons.fetch import FromDisk, Link
from mezzotint.sim.protocols import LoraFetch, Run, Worker
from mezzotint.traces.describe.loads import Cache, Policy

Key = tuple[int, str]
"""Worker id and LoRA name; a worker fetches a LoRA at most once at a time."""

ROUNDING_BYTES = 1e-3
"""A file with no more bytes than this left has arrived."""


@dataclass(slots=True)
class SharedLink(LoraFetch):
    """Fetch for all workers over one link whose rate is divided evenly among the files in transfer (processor sharing).

    A file fetched alone takes the same time as over `Link`.

    Args:
        latency_s: before the first byte; not shared.
        bytes_per_s: of the link.
    """

    shared: ClassVar[bool] = True
    latency_s: Seconds
    bytes_per_s: Positive
    _run: Run = field(init=False, repr=False)
    _left: dict[Key, float] = field(init=False, default_factory=dict, repr=False)
    _begins_s: dict[Key, float] = field(init=False, default_factory=dict, repr=False)
    _ends_s: dict[Key, float] = field(init=False, default_factory=dict, repr=False)
    _at_s: float = field(init=False, default=0.0)

    def bind(self, run: Run) -> None:
        self._run = run
        key = "fetching LoRAs over one link: seconds before the first byte, bytes per second of all"
        run.assume(key, [self.latency_s, self.bytes_per_s], "lora_fetch")

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        self._left, self._at_s = self._run_until(now_s)[0], now_s
        key = (worker.id, asset.name)
        self._left[key] = float(worker.backend.bytes(asset) or 0)
        self._begins_s[key] = now_s + self.latency_s
        self._ends_s |= self._run_until(inf)[1]
        seconds = self._ends_s[key] - now_s
        self._run.record_load(asset, seconds)
        return seconds

    def expected_s(self, worker: Worker, asset: Asset) -> float:
        return self._ends_s.get((worker.id, asset.name), -inf)

    def _run_until(self, until_s: float) -> tuple[dict[Key, float], dict[Key, float]]:
        """Return the bytes left of each file at ``until_s``, and the end times of the files that arrive by then."""
        left, ends, now_s = dict(self._left), dict[Key, float](), self._at_s
        while left and now_s < until_s:
            active = [key for key in left if self._begins_s[key] <= now_s]
            begins_s = min((self._begins_s[key] for key in left if self._begins_s[key] > now_s), default=inf)
            if active:
                rate = self.bytes_per_s / len(active)
                ends_s = now_s + min(left[key] for key in active) / rate
                next_s = min(ends_s, begins_s, until_s)
                for key in active:
                    left[key] -= rate * (next_s - now_s)
                    if left[key] <= ROUNDING_BYTES:
                        ends[key] = next_s
                        del left[key]
            else:
                next_s = min(begins_s, until_s)
            now_s = next_s
        return left, ends


@dataclass(slots=True)
class NodeDisk(LoraFetch):
    """Keep fetched LoRAs on a disk of each worker; fetch the others from ``remote``.

    Args:
        files: LoRAs that a disk keeps.
        eviction: ``lru`` evicts the least recently used LoRA, ``lfu`` the least frequently used since it was stored.
        disk: seconds of a read.
        remote: seconds of a fetch, reading included.
    """

    shared: ClassVar[bool] = True
    files: Count
    eviction: Policy = "lru"
    disk: LoraFetch = field(default_factory=FromDisk)
    remote: LoraFetch = field(default_factory=lambda: Link(0.115, 1 << 30))
    _disks: dict[int, Cache] = field(init=False, default_factory=dict, repr=False)
    """By worker id."""

    def bind(self, run: Run) -> None:
        run.assume("LoRAs that each worker's disk keeps, and which leave", [self.files, self.eviction], "lora_fetch")
        self.disk.bind(run)
        self.remote.bind(run)

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        is_on_disk = self._disks.setdefault(worker.id, Cache(self.files, self.eviction)).use(asset.name)
        return (self.disk if is_on_disk else self.remote).seconds(worker, asset, now_s)

    def expected_s(self, worker: Worker, asset: Asset) -> float:
        return self.remote.expected_s(worker, asset)
