"""Fetch times of LoRA files from disk, over a link, or drawn from measurements."""

from dataclasses import dataclass, field
from typing import cast

from mezzotint.backends.base import AddonBackend, Asset
from mezzotint.settings.ranges import Positive, Seconds
from mezzotint.sim.addons.quantiles import QuantileSampler
from mezzotint.sim.core.streams import LORA_FETCHES
from mezzotint.sim.protocols import LoraFetch, Run, Worker


@dataclass(slots=True)
class FromDisk(LoraFetch):
    """Read files in the seconds that the backend states."""

    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        read_s = cast(AddonBackend, worker.backend).read_lora(asset).seconds
        self._run.record_load(asset, read_s)
        return read_s


@dataclass(slots=True)
class Link(LoraFetch):
    """Fetch each file over a link of its own: a latency, then a constant rate.

    Args:
        latency_s: before the first byte; a list is quantiles, as of `QuantileSampler`, and each file draws its own.
        bytes_per_s: after that.

    Raises ConfigError for invalid quantiles.
    """

    latency_s: Seconds | list[Seconds]
    bytes_per_s: Positive
    _run: Run = field(init=False, repr=False)
    _draw: QuantileSampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.latency_s, list):
            self._draw = QuantileSampler("lora_fetch.latency_s", self.latency_s)

    def bind(self, run: Run) -> None:
        self._run, latency = run, self.latency_s
        if isinstance(latency, list):
            self._draw.rng, latency = run.rng(LORA_FETCHES), self._draw.ends
        assumed = [latency, self.bytes_per_s]
        run.assume("fetching a LoRA: seconds before the first byte, bytes per second after it", assumed, "lora_fetch")

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        latency_s = self._draw() if isinstance(self.latency_s, list) else self.latency_s
        seconds = latency_s + (worker.backend.bytes(asset) or 0) / self.bytes_per_s
        self._run.record_load(asset, seconds)
        return seconds


@dataclass(slots=True)
class MeasuredFetch(LoraFetch):
    """Draw each file's seconds from measured ``quantiles``, as of `QuantileSampler`, whatever its bytes.

    Raises ConfigError for invalid quantiles.
    """

    quantiles: list[float]
    _run: Run = field(init=False, repr=False)
    _draw: QuantileSampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._draw = QuantileSampler("lora_fetch.quantiles", self.quantiles)

    def bind(self, run: Run) -> None:
        self._run, self._draw.rng = run, run.rng(LORA_FETCHES)
        run.assume("seconds to fetch a LoRA", self._draw.ends, "lora_fetch.quantiles")

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        seconds = self._draw()
        self._run.record_load(asset, seconds)
        return seconds
