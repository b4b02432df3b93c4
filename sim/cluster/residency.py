"""Residency of models: how many a GPU keeps in its memory, and what bringing another one there takes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mezzotint.backends.base import Asset, Backend, Cost, serves, weights_of
from mezzotint.settings.assumption import Assumption
from mezzotint.settings.ranges import Bytes, Count, Positive, Seconds
from mezzotint.sim.cluster.memory import make_room
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.core.workload import own_work

ACTIVATE, HOST, DISK = "activate", "load-host", "load-disk"
"""Kinds of busy time: a switch to a resident model, and loads from host memory and from disk."""


@dataclass(slots=True)
class ModelResidency:
    """Keep several models on a GPU, and the weights of more in host memory; the least recently used one goes.

    A load from disk passes through host memory and stays there. GPUs that are rented together
    (``cluster.gpu.gpus_per_instance``) share one host.

    Args:
        max_models: most models on a GPU, of an engine that has such a bound; None is as many as its memory takes.
        host_bytes: host memory for weights, of each instance of GPUs; None keeps all, 0 none.
        host_bytes_per_s: from host memory to a GPU; None takes the profile's seconds to load a model.
        disk_bytes_per_s: from disk to a GPU; None takes the profile's seconds to load a model.
        activate_s: seconds to switch to a model that is resident.
    """

    max_models: Count | None = None
    host_bytes: Bytes | None = None
    host_bytes_per_s: Positive | None = None
    disk_bytes_per_s: Positive | None = None
    activate_s: Seconds = 0.0
    changed: Callable[[Worker, str, bool], None] = field(init=False, repr=False)
    """Is told of each model that comes to the host memory of a worker or leaves it, and True if it comes."""
    _hosts: dict[tuple[str, int], dict[Asset, int]] = field(init=False, default_factory=dict, repr=False)

    def check(self, kinds: Mapping[Gpu, Backend], models: Iterable[Model]) -> None:
        """Raise ConfigError where the bytes of a model or of a GPU's memory are not known."""
        for gpu, backend in kinds.items():
            if gpu.memory_bytes is None:
                raise ConfigError(
                    f"residency: found cluster.gpu.memory_bytes null of {gpu.name}, so that nothing says which models "
                    "fit; set it, or leave residency= out"
                )
            for model in (model for model in models if serves(backend, model.name)):
                if not backend.bytes(weights_of(model.name)):
                    raise ConfigError(
                        f"residency: the bytes of {model.name} on {gpu.name} are not known (weights_bytes of its "
                        "profile); choose a cluster= and models= with them, such as "
                        "cluster=h100-diffusers models=sdxl, or leave residency= out"
                    )

    def assumptions(self) -> list[Assumption]:
        own = "the profile's seconds to load a model"
        rows = [
            Assumption(f"bytes per second of weights from {source} to a GPU", own if rate is None else rate, key)
            for source, rate, key in (
                ("host memory", self.host_bytes_per_s, "residency.host_bytes_per_s"),
                ("disk", self.disk_bytes_per_s, "residency.disk_bytes_per_s"),
            )
        ]
        kept = "all" if self.host_bytes is None else self.host_bytes
        rows.append(Assumption("bytes of host memory for weights, an instance", kept, "residency.host_bytes"))
        rows.append(Assumption("seconds to switch to a resident model", self.activate_s, "residency.activate_s"))
        return rows

    def slots(self, gpu: Gpu, backend: Backend, models: Sequence[Model]) -> int:
        """Return how many of ``models`` a GPU keeps beside the activations of a request, all as large as the largest.

        At least 1. An estimate: what is resident follows from the bytes of each.
        """
        served = [model for model in models if serves(backend, model.name)]
        largest = max((backend.bytes(weights_of(model.name)) or 0 for model in served), default=0)
        free = (gpu.memory_bytes or 0) - max((activations(backend, model) for model in served), default=0)
        fit = max(free // largest, 1) if largest else 1
        return fit if self.max_models is None else min(fit, self.max_models)

    def load(self, worker: Worker, model: str) -> tuple[str, Cost]:
        """Return the kind and the cost of loading ``model`` to ``worker``, which lacks it, from where it is now."""
        return self._load_from(HOST if weights_of(model) in self._host(worker) else DISK, worker, model)

    def loads_s(self, worker: Worker, model: str) -> tuple[float, float]:
        """Return the seconds of loading ``model`` to a GPU like that of ``worker``, from host memory and from disk."""
        from_host, from_disk = (self._load_from(kind, worker, model)[1].seconds for kind in (HOST, DISK))
        return from_host, from_disk

    def _load_from(self, kind: str, worker: Worker, model: str) -> tuple[str, Cost]:
        weights = weights_of(model)
        rate = self.host_bytes_per_s if kind == HOST else self.disk_bytes_per_s
        if rate is None:
            return kind, worker.backend.load(weights)
        return kind, self._timed(worker, weights, (worker.backend.bytes(weights) or 0) / rate)

    def fetch(self, worker: Worker, model: str) -> tuple[str, Cost]:
        """Return the kind and the cost of switching ``worker`` to ``model``; weights pass through host memory."""
        weights = weights_of(model)
        if weights in worker.resident:
            return ACTIVATE, self._timed(worker, weights, self.activate_s)
        kind, cost = self.load(worker, model)
        self.keep(worker, model)
        return kind, cost

    def forget(self, worker: Worker) -> None:
        """Empty the host memory of the instance of ``worker``, which was given back."""
        host = self._host(worker)
        for weights in list(host):
            self._drop(worker, host, weights)

    def in_host(self, worker: Worker) -> list[str]:
        """Return the models in the host memory of ``worker``."""
        return [weights.name for weights in self._host(worker)]

    def _host(self, worker: Worker) -> dict[Asset, int]:
        return self._hosts.setdefault((worker.gpu.name, worker.gpus[0] // worker.gpu.gpus_per_instance), {})

    def keep(self, worker: Worker, model: str) -> None:
        """Keep ``model`` in the host memory of ``worker``, if it has room for it."""
        host, weights = self._host(worker), weights_of(model)
        size = worker.backend.bytes(weights) or 0
        if weights in host:
            host[weights] = host.pop(weights)  # most recently used last
            return
        victims = make_room(host, size, self.host_bytes)
        if victims is not None:
            for victim in victims:
                self._drop(worker, host, victim)
            host[weights] = size
            self.changed(worker, weights.name, True)

    def _drop(self, worker: Worker, host: dict[Asset, int], weights: Asset) -> None:
        del host[weights]
        self.changed(worker, weights.name, False)

    @staticmethod
    def _timed(worker: Worker, weights: Asset, seconds: float) -> Cost:
        """Return ``seconds`` at the power that a load draws in the profile."""
        load = worker.backend.load(weights) if seconds else Cost(0.0, 0.0)
        joules = load.joules and load.seconds and load.joules / load.seconds * seconds
        return Cost(seconds, joules if load.seconds or not seconds else None)


def activations(backend: Backend, model: Model) -> int:
    """Return the bytes that a request of the shape of ``model`` allocates besides weights; 0 if not measured."""
    peak = backend.peak_bytes([own_work(model)])
    return 0 if peak is None else max(peak - (backend.bytes(weights_of(model.name)) or 0), 0)
