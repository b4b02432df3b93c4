"""Where the files of LoRAs come from, and how long that takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from backends.base import Asset, Taken
from conf.ranges import Positive, Seconds
from sim.errors import ConfigError
from sim.parts import Run, Worker


@dataclass(slots=True)
class FromDisk:
    """What the backend has of reading a file."""

    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        """See Fetch.bind."""
        self._run = run

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        """See Fetch.seconds."""
        assert isinstance(self._run.backend, Taken)
        read_s = self._run.backend.read_lora(asset).seconds
        self._run.loaded(asset, read_s)
        return read_s


@dataclass(slots=True)
class Link:
    """A wait, then so many bytes a second, for each file alone.

    Args:
        latency_s: before the first byte, and whatever a process takes to begin.
        bytes_per_s: after that.
    """

    latency_s: Seconds
    bytes_per_s: Positive
    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        """See Fetch.bind."""
        self._run = run
        said = [self.latency_s, self.bytes_per_s]
        run.assume("fetching a LoRA: seconds before the first byte, bytes per second after it", said, "fetch")

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        """See Fetch.seconds."""
        seconds = self.latency_s + (self._run.backend.bytes(asset) or 0) / self.bytes_per_s
        self._run.loaded(asset, seconds)
        return seconds


@dataclass(slots=True)
class Measured:
    """Drawn from a measured distribution, for each file alone, whatever its bytes.

    Args:
        quantiles: seconds at equal steps of probability from 0 to 1, never falling; between them on a line.

    Raises:
        ConfigError: fewer than two of them, or one that is negative or below the one before.
    """

    quantiles: list[float]
    _run: Run = field(init=False, repr=False)
    _rng: np.random.Generator = field(init=False, repr=False)
    _grid: Sequence[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.quantiles) < 2 or self.quantiles != sorted(self.quantiles) or self.quantiles[0] < 0:
            raise ConfigError(f"fetch.quantiles: found {self.quantiles}, expected two or more seconds that never fall")
        self._grid = np.linspace(0.0, 1.0, len(self.quantiles)).tolist()

    def bind(self, run: Run) -> None:
        """See Fetch.bind."""
        self._run, self._rng = run, run.rng("fetch of LoRAs")
        run.assume("seconds to fetch a LoRA", [self.quantiles[0], self.quantiles[-1]], "fetch.quantiles")

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        """See Fetch.seconds."""
        seconds = float(np.interp(self._rng.random(), self._grid, self.quantiles))
        self._run.loaded(asset, seconds)
        return seconds
