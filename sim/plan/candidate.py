"""A candidate of a plan: a design on a kind of GPU, whose number is looked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.cost import PaidService, Price, rate_usd_h
from mezzotint.sim.run.config.compose import resolve_config

BASELINES = ("vanilla", "diffusers")
"""Designs that the savings of all others refer to: every request in full, first come first served."""

Start = Literal["empty", "warm"]
"""State of a cache at the start: without an artifact, or with those of the trace's earlier requests."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A design on one kind of GPU, or on a few GPUs of one kind beside another; the plan looks for the number.

    Attributes:
        design: the choice of ``system=``, with its settings.
        gpu: the kind of GPU whose number is looked for.
        models: the choice of ``models=``.
        beside: another kind of GPU and its number, which stays; None without one.
        prices: price of each kind for an hour, as far as known.
        rents: True if a controller orders and gives back GPUs. Then the cost is known from a run alone.
        is_plain: True if requests run one after another, without a cache: their work is the same at any load.
        can_repeat: True if the requests may come over and over in a longer run: no cache finds them, and runs are fast.
        work: what a request asks of the cluster, in words: model, steps, size and precision. Candidates of different
            work are not compared.
        cache: ``empty`` or ``warm``, the cache's state at the start; None without a cache that is searched.
        warmed_by: requests that fill a warm cache.
        step: numbers of GPUs are multiples of it.
        period_s: seconds between two decisions of its slowest controller; 0 without one.
        scaled: kinds of GPUs on which the models' times are scaled from another kind's, and marked.
    """

    design: str
    gpu: str
    models: str
    beside: tuple[str, int] | None
    prices: Mapping[str, Price]
    rents: bool
    _kinds: Mapping[str, Gpu] = field(repr=False)
    _services: Mapping[str, PaidService] = field(repr=False)
    _config: DictConfig = field(repr=False)
    _rate_key: str = field(repr=False)
    _rate: float = field(repr=False)
    _service: float = field(repr=False)
    is_plain: bool = False
    can_repeat: bool = False
    work: str = ""
    cache: Start | None = None
    warmed_by: int = 0
    step: int = 1
    period_s: float = 0.0
    scaled: frozenset[str] = frozenset()
    _starts: Mapping[Start, Mapping[str, Any]] = field(repr=False, default_factory=dict)

    @property
    def is_baseline(self) -> bool:
        """True if the savings of the other candidates of the same work refer to this one."""
        return self.design.split()[0] in BASELINES and not self.rents

    @property
    def gpus(self) -> str:
        """The kinds of GPUs in words, without the number that is looked for."""
        return self.gpu if self.beside is None else f"{self.beside[1]} x {self.beside[0]} + {self.gpu}"

    @property
    def name(self) -> str:
        """The candidate in a few words."""
        return f"{self.design} with {self.models} on {self.gpus}"

    def counts(self, count: int) -> dict[str, int]:
        """Return the number of GPUs by kind, if ``count`` are of the kind that is looked for."""
        return ({} if self.beside is None else dict([self.beside])) | {self.gpu: count}

    def devices(self, count: int) -> int:
        """Return the number of GPUs of all kinds, if ``count`` are of the kind that is looked for."""
        return sum(self.counts(count).values())

    def cluster(self, count: int) -> str:
        """Return the GPUs in words, such as ``2 x h100-sxm + 3 x l40s``, if ``count`` are of the kind looked for."""
        bound = "up to " if self.rents else ""
        kinds = {kind: f"{kind} (scaled)" if kind in self.scaled else kind for kind in self.counts(count)}
        return bound + " + ".join(f"{number} x {kinds[kind]}" for kind, number in self.counts(count).items())

    @property
    def unpriced(self) -> set[str]:
        """The kinds of GPUs and services of which no price is known."""
        services = {name for name, service in self._services.items() if service.usd_per_h is None}
        return services | (set(self._kinds) - set(self.prices))

    def usd_per_h(self, count: int) -> float | None:
        """Return the US$ of an hour of the cluster, in whole instances, and of services; None if unknown."""
        counts = {self._kinds[kind]: number for kind, number in self.counts(count).items()}
        rates = [rate for rate in rate_usd_h(counts, self._services).values() if rate is not None]
        return sum(rates) if len(rates) == len(counts) + len(self._services) else None

    def from_empty(self) -> "Candidate":
        """Return the same candidate with a cache that is empty at the start."""
        return replace(self, cache="empty")

    def config(self, count: int, seed: int, load: float, service: float, alone: int = 0) -> dict[str, Any]:
        """Return the resolved configuration of a run.

        Args:
            load: factor on the arrival rate.
            service: factor on the service time.
            alone: number of first requests to run, without warm-up or earlier ones; 0 for all.
        """
        where = "cluster.count" if self.beside is None else "cluster.pools[1].count"
        values = {where: count, "seed": seed, "backend.service_factor": service * self._service}
        values[self._rate_key] = float(f"{self._rate * load:.9g}") if load != 1.0 else self._rate
        values |= self._starts.get(self.cache or "warm", {})
        if alone:
            values |= {"trace.requests": alone, "preload": 0, "warmup": 0, "sample_s": 1e6}
        former = {key: OmegaConf.select(self._config, key) for key in values}
        for key, value in values.items():  # on the one composition: a copy takes longer than all else
            OmegaConf.update(self._config, key, value, force_add=True)  # a file's trace.requests
        try:
            return resolve_config(self._config)
        finally:
            for key, value in former.items():
                OmegaConf.update(self._config, key, value)
