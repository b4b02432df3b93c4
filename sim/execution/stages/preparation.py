"""Preparation of a launch: its group forms, and loads what its GPUs lack, before the first step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mezzotint.backends.base import Backend, ComponentWeights
from mezzotint.sim.addons.assets import activation_bytes
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import COMPONENTS, DENOISER, WHOLE
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.execution.stages.account import Account
from mezzotint.sim.execution.stages.addons import StageAddons
from mezzotint.sim.execution.stages.launches import LaunchState
from mezzotint.sim.protocols import Run, Worker


@dataclass(slots=True)
class Residency:
    """The components in the memory of each GPU; the least recently used one makes room for another.

    At the start a GPU holds the components placed on it if they fit together, else none. A component larger than the
    memory takes all of it and stays on the host: its measured times include the reading of its weights.

    Args:
        memory_bytes: memory of each GPU; None holds everything.
    """

    backend: Backend
    memory_bytes: int | None
    placed: dict[int, Sequence[str]] = field(default_factory=dict)
    _resident: dict[int, dict[tuple[str, str], int]] = field(init=False, default_factory=dict, repr=False)
    _weights: dict[tuple[str, str], ComponentWeights | None] = field(init=False, default_factory=dict, repr=False)

    def weights(self, model: str, component: str) -> ComponentWeights | None:
        """Return the weights of ``component`` of ``model``; None if nobody measured them."""
        key = model, component
        if key not in self._weights:
            self._weights[key] = self.backend.component_weights(component, model)
        return self._weights[key]

    def load_s(self, gpus: Sequence[int], model: str, components: Sequence[str]) -> float:
        """Make ``components`` resident on ``gpus``, one after another; return the seconds, of GPUs side by side."""
        return max(sum(self._load_s(gpu, model, component) for component in components) for gpu in gpus)

    def forget(self, gpu: int) -> None:
        """Restore what ``gpu`` held at the start: it failed, and its repair loads that."""
        self._resident.pop(gpu, None)

    def _load_s(self, gpu: int, model: str, component: str) -> float:
        key, weights, memory_bytes = (model, component), self.weights(model, component), self.memory_bytes
        if weights is None or memory_bytes is None:
            return 0.0
        resident = self._resident.get(gpu)
        if resident is None:
            resident = self._resident[gpu] = self._at_start(gpu, model, memory_bytes)
        if key in resident:
            resident[key] = resident.pop(key)  # most recently used last
            return 0.0
        # It streams through the whole memory, which drives out the others and leaves nothing of itself
        # (test_component_larger_than_the_memory_is_loaded_at_every_step_and_drives_out_the_others).
        if weights.bytes > memory_bytes:
            resident.clear()
            return 0.0
        while sum(resident.values()) + weights.bytes > memory_bytes:
            del resident[next(iter(resident))]
        resident[key] = weights.bytes
        return weights.load_s

    def _at_start(self, gpu: int, model: str, memory_bytes: int) -> dict[tuple[str, str], int]:
        components = self.placed.get(gpu, COMPONENTS)
        known = {(model, component): self.weights(model, component) for component in components}
        resident = {key: weights.bytes for key, weights in known.items() if weights is not None}
        # Which of them would be there is not known; none is the cautious answer, and is paid once.
        return resident if sum(resident.values()) <= memory_bytes else {}


@dataclass(slots=True)
class Preparation:
    """Forms groups, loads models, components and add-ons, compiles a shape, and fetches artifacts, as busy time.

    One follows another. A group compiles once for all its GPUs.

    Args:
        forming_s: seconds to form a group of two or more GPUs that were never a group before.
        placed: number of a GPU -> the components that its policy places on it.
        addons: ControlNets and LoRAs; None if requests have none.
        record_earlier: records what ran before on the GPUs of a launch. It is called ahead of whatever is recorded
            here.
    """

    run: Run
    account: Account
    forming_s: float
    placed: dict[int, Sequence[str]]
    addons: StageAddons | None
    record_earlier: Callable[[LaunchState], None]
    _residency: dict[str, Residency] = field(init=False, repr=False)
    """By the name of the kind of GPU."""
    _formed: set[int] = field(init=False, default_factory=set, repr=False)
    _charged: dict[tuple[str, str], bool] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        kinds = self.run.cluster.kinds.items()
        self._residency = {gpu.name: Residency(backend, gpu.memory_bytes, self.placed) for gpu, backend in kinds}

    def seconds(self, progress: Progress, launch: LaunchState, group: Worker, now_s: float) -> float:
        """Prepare ``group`` for ``launch`` of ``progress``; return the seconds until its first step begins."""
        request, cluster, took_s = progress.request, self.run.cluster, 0.0
        model = request.model or ""
        lacks, is_charged = cluster.lacks(group, model), self._is_charged(progress, model, group.gpu.name)
        has_addons = self.addons is not None and progress.stage.denoises
        fetch_s = 0.0 if progress.group is not None else request.plan.fetch_s
        compiles = cluster.compiles and progress.stage.denoises
        if not (self.forming_s or lacks or is_charged or has_addons or fetch_s or compiles):
            return 0.0  # as most launches

        def spend(seconds: float, kind: str, joules: float | None = None, row: int = -1) -> float:
            nonlocal took_s
            self.record_earlier(launch)
            from_s, took_s = now_s + took_s, took_s + seconds
            return cluster.record_busy(group, from_s, now_s + took_s, kind, joules, 1, row, model)

        # Forming, loads, the compilation and the fetch follow one another
        # (test_artifact_is_fetched_after_the_model_is_loaded_and_once).
        if self.forming_s and len(group.gpus) > 1 and group.id not in self._formed:
            self._formed.add(group.id)
            spend(self.forming_s, "form", row=request.row)
        if lacks:
            kind, cost = cluster.fetch(group, model, request.row)
            request.energy_j += spend(cost.seconds, kind, cost.joules)
            cluster.install(group, model, activation_bytes(group, request) if cluster.keeps_models else 0)
        if is_charged:
            loads_s = self._residency[group.gpu.name].load_s(group.gpus, model, _needed(progress))
            if loads_s:
                spend(loads_s, "load")
                self.account.add(progress, "component_loads", 1)
        if self.addons is not None and has_addons:
            for kind, load_cost in self.addons.load(progress, group, now_s):
                request.energy_j += spend(load_cost.seconds, kind, load_cost.joules)
        # With all add-ons in place, as the first step compiles.
        if compiles and (compile_s := cluster.compile_s(group, request)):
            request.energy_j += spend(compile_s, "compile")
        if took_s:
            request.load_s += took_s
        # Once, at its first launch (test_artifact_is_fetched_after_the_model_is_loaded_and_once).
        if fetch_s:
            request.energy_j += spend(fetch_s, "fetch", row=request.row)
        return took_s

    def lose(self, gpu: int) -> None:
        """Take note that ``gpu`` failed: what it held is lost, and the communicators of its groups."""
        for residency in self._residency.values():
            residency.forget(gpu)
        self._formed = {group for group in self._formed if gpu not in self.run.cluster.gpus_of(group)}

    def _is_charged(self, progress: Progress, model: str, gpu: str) -> bool:
        """Return True if loads of the components of ``model`` are charged on GPUs of the kind named ``gpu``.

        They are where the memory and a component's size are known. What is not is listed, of a plan of several stages.
        """
        if (model, gpu) not in self._charged:
            residency = self._residency[gpu]
            unknown = [component for component in COMPONENTS if residency.weights(model, component) is None]
            has_memory = residency.memory_bytes is not None
            if len(progress.stages) > 1 and (unknown or not has_memory):
                why = f"component_weights of {', '.join(unknown)}" if unknown else "cluster.gpu.memory_bytes"
                self.run.assume(f"seconds to load components of {model}", 0, f"not charged: the {why} are not known")
            self._charged[model, gpu] = has_memory and len(unknown) < len(COMPONENTS)
        return self._charged[model, gpu]


def refuse_two_residencies(run: Run) -> None:
    """Raise ConfigError if GPUs keep models, and the loads of a model's components are charged one by one."""
    if not run.cluster.keeps_models:
        return
    for gpu, backend in run.cluster.kinds.items():
        for model in run.models.values():
            known = [component for component in COMPONENTS if backend.component_weights(component, model.name)]
            if known:
                raise ConfigError(
                    f"residency: found it beside executor=stages and the component_weights of {model.name} on "
                    f"{gpu.name}, whose loads are charged one by one; leave residency= out, or choose another models="
                )


def _needed(progress: Progress) -> Sequence[str]:
    """Return the components that the next launch of ``progress`` needs."""
    component = progress.stage.component
    if component != WHOLE:
        return (component,)
    return (DENOISER,) if progress.done else COMPONENTS
