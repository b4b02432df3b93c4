"""Where the files of LoRAs come from, and how long that takes."""

from dataclasses import dataclass, field

from backends.base import AddonBackend, Asset
from conf.ranges import Positive, Seconds
from sim.addons.quantiles import Drawn
from sim.core.streams import LORA_FETCHES
from sim.protocols import LoraFetch, Run, Worker


@dataclass(slots=True)
class FromDisk(LoraFetch):
    """What the backend has of reading a file."""

    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        assert isinstance(self._run.backend, AddonBackend)
        read_s = self._run.backend.read_lora(asset).seconds
        self._run.record_load(asset, read_s)
        return read_s


@dataclass(slots=True)
class Link(LoraFetch):
    """A wait, then so many bytes a second, for each file alone.

    Args:
        latency_s: before the first byte; a list is quantiles, as of `Drawn`, and each file draws its own.
        bytes_per_s: after that.

    Raises ConfigError for quantiles that are none.
    """

    latency_s: Seconds | list[Seconds]
    bytes_per_s: Positive
    _run: Run = field(init=False, repr=False)
    _drawn: Drawn = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.latency_s, list):
            self._drawn = Drawn("lora_fetch.latency_s", self.latency_s)

    def bind(self, run: Run) -> None:
        self._run, latency = run, self.latency_s
        if isinstance(latency, list):
            self._drawn.rng, latency = run.rng(LORA_FETCHES), self._drawn.ends
        said = [latency, self.bytes_per_s]
        run.assume("fetching a LoRA: seconds before the first byte, bytes per second after it", said, "fetch")

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        latency_s = self._drawn() if isinstance(self.latency_s, list) else self.latency_s
        seconds = latency_s + (self._run.backend.bytes(asset) or 0) / self.bytes_per_s
        self._run.record_load(asset, seconds)
        return seconds


@dataclass(slots=True)
class Measured(LoraFetch):
    """Drawn from measured ``quantiles`` in seconds, as of `Drawn`, for each file alone, whatever its bytes.

    Raises ConfigError for quantiles that are none.
    """

    quantiles: list[float]
    _run: Run = field(init=False, repr=False)
    _drawn: Drawn = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._drawn = Drawn("lora_fetch.quantiles", self.quantiles)

    def bind(self, run: Run) -> None:
        self._run, self._drawn.rng = run, run.rng(LORA_FETCHES)
        run.assume("seconds to fetch a LoRA", self._drawn.ends, "lora_fetch.quantiles")

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        seconds = self._drawn()
        self._run.record_load(asset, seconds)
        return seconds
