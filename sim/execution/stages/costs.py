"""True costs of stages on groups of GPUs, as the machine takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

from mezzotint.backends.base import Backend, BackendError, Cost, Work, size_text
from mezzotint.backends.patched import Size
from mezzotint.sim.addons.assets import on_gpus
from mezzotint.sim.addons.kernels import Kernels
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE, WHOLE, Stage, three_stages, whole_stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.execution.stages.addons import StageAddons
from mezzotint.sim.protocols import FeatureCache, Run, StageCost, StepCosts
from mezzotint.sim.protocols.execution import check_step_costs

BYTES_PER_LATENT_PIXEL = 2 * 16 / 64
"""Bytes of a latent per pixel of the image: 16 channels of 2 bytes at an eighth of the side (FLUX, SD3)."""

FRAMES_PER_LATENT = 4
"""Frames of a video per frame of its latent (Wan)."""

Form = Literal["whole", "disaggregated"] | list[Stage]
"""The stages of a request whose plan names none, as of `Stages.stages`."""


@dataclass(slots=True)
class StageCosts:
    """The stages of a request, and the cost of each on a group of GPUs of one kind.

    Args:
        backend: the costs of work on ``gpu``.
        form: the stages of a request whose plan names none.
        addons: ControlNets and LoRAs; None if requests have none.
        feature_cache: what a step reuses of the step before; None computes everything. Each GPU of a group reuses the
            same share of its part of a step (assumed).
        patches: the costs of steps of images cut into patches; None for whole images.
        kernels: of the denoiser and its ControlNets.
        speedup: GPUs of a group -> speedup of a step over one GPU; it replaces that of ``backend``.

    Raises ConfigError unless there is one denoiser in ``form``.
    """

    run: Run
    gpu: Gpu
    backend: Backend
    form: Form
    addons: StageAddons | None
    feature_cache: FeatureCache | None = None
    patches: PatchedSteps | None = None
    kernels: Kernels = field(default_factory=Kernels)
    speedup: Mapping[int, float] = field(default_factory=dict)
    _by_row: bool = field(init=False, repr=False)
    _costs: dict[tuple[object, ...], StageCost] = field(init=False, default_factory=dict, repr=False)
    _stages: dict[tuple[int, tuple[Stage, ...]], tuple[Stage, ...]] = field(
        init=False, default_factory=dict, repr=False
    )
    """Steps to run and stages of a plan -> the stages, which were found to fit."""

    def __post_init__(self) -> None:
        self._by_row = self.backend.by_row
        if isinstance(self.form, list) and [stage.component for stage in self.form].count(DENOISER) != 1:
            names = ", ".join(stage.component for stage in self.form)
            raise ConfigError(f"executor.stages: found {names or 'no stage'}; expected one denoiser among the stages")

    def stages_of(self, request: Request) -> tuple[Stage, ...]:
        """Return the stages of ``request``: those of its plan, else of ``form``.

        Raises SimulationError if they do not run the steps of its plan.
        """
        request.remote_controlnets = self.addons is not None and self.addons.is_remote
        steps, planned = request.steps - request.skipped, request.plan.stages
        stages = self._stages.get((steps, planned))
        if stages is None:
            stages = planned or self._own_stages(steps)
            denoised = [stage.steps for stage in stages if stage.denoises]
            if denoised != [steps]:
                raise self.run.policy_error(
                    "frontend" if planned else "executor",
                    f"gives the request in row {request.row} stages with {denoised} denoising steps; expected one such "
                    f"stage, with the {steps} steps of its plan",
                )
            self._stages[steps, planned] = stages
        return stages

    def _own_stages(self, steps: int) -> tuple[Stage, ...]:
        if isinstance(self.form, str):
            return whole_stage(steps) if self.form == "whole" else three_stages(steps)
        return tuple(replace(stage, steps=steps) if stage.component == DENOISER else stage for stage in self.form)

    def max_degree(self, request: Request, stage: Stage, gpus: int) -> int:
        """Return the greatest parallel degree of ``stage`` of ``request``, on ``gpus`` GPUs."""
        gpus = min(gpus, stage.max_degree or gpus)
        return gpus if self.addons is None else self.addons.max_degree(request, stage, gpus)

    def cost(
        self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = (), *, as_usual: bool = False
    ) -> StageCost:
        """Return the cost of ``stage`` on ``degree`` GPUs, as of `mezzotint.sim.protocols.CostOf`."""
        # Without scatter all rows cost alike, and share one entry.
        row = request.row if self._by_row and not others else -1
        beside = len(others) if self.patches is None else tuple(sorted((each.width, each.height) for each in others))
        # By number: a profile times ControlNets by how many they are.
        nets = 0 if request.addons is None else len(request.addons.controlnets)
        key = (
            request.model, request.width, request.height, request.frames, request.steps, stage.component, degree,
            request.plan.refine, nets, row, beside, None if as_usual else request.sampling,
            0 if self.feature_cache is None else request.skipped,
        )  # fmt: skip
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = self._cost(request, stage, degree, others, as_usual)
        return cost

    def _cost(
        self, request: Request, stage: Stage, degree: int, others: Sequence[Request], as_usual: bool
    ) -> StageCost:
        backend, component, work, batch = self.backend, stage.component, self.run.work(request), 1 + len(others)
        if as_usual:
            work = replace(work, images=1, cfg=None, input_images=0)
        works = [work]
        if batch > 1:
            works += map(self.run.work, others)
            for each in works:
                each.row = -1  # a batch takes the typical seconds, whatever its rows
            if degree == 1 and stage.denoises:
                self._check_memory(works)
        first_s = step_s = last_s = 0.0
        joules: float | None = None
        # A stage of its own encodes or decodes its batch together, and StageCost.batch_s adds up its requests.
        together = 1 if component == WHOLE else batch
        if component in (WHOLE, TEXT_ENCODER):
            first_s = backend.begin((work,) * together).seconds / together
        if stage.denoises:
            step_s, joules = self._step(works, degree)
        if component in (WHOLE, VAE):
            work.done = work.steps
            last_s = backend.end((work,) * together).seconds / together
        if component not in (WHOLE, TEXT_ENCODER, DENOISER, VAE):
            step_s = backend.component_s(component, work, degree, batch)
        first_s, last_s = first_s * self.kernels.stages, last_s * self.kernels.stages
        watts = self.gpu.energy_j(1.0) * degree if joules is None or not step_s else joules / step_s
        ends: tuple[float, ...] = ()
        if stage.denoises:
            ends = self._step_ends(request, work, batch)
            if self.feature_cache is not None:
                reusing = self._reusing(request, Cost(step_s, step_s * watts), ends, batch)
                total_s, steps = reusing.seconds(stage.steps), stage.steps
                step_s, watts = total_s / steps, (reusing.joules(steps) or 0.0) / total_s
                ends = tuple(reusing.seconds(count) / step_s for count in range(steps + 1))
        return StageCost(first_s, step_s, last_s, watts, ends, self._apart(works) if component == WHOLE else None)

    def _apart(self, works: Sequence[Work]) -> dict[Size, tuple[float, float]] | None:
        """Return the seconds before the first and after the last step of each size; None if all are of one."""
        by_size = {(work.width, work.height): work for work in works}
        if len(by_size) == 1:
            return None
        for work in by_size.values():
            work.done = work.steps
        backend = self.backend
        return {size: (backend.begin((work,)).seconds, backend.end((work,)).seconds) for size, work in by_size.items()}

    def _reusing(self, request: Request, step: Cost, ends: Sequence[float], batch: int) -> StepCosts:
        """Return the costs of the steps of ``request``, of which one that reuses nothing costs ``step``."""
        assert self.feature_cache is not None
        if batch > 1 or ends or len(request.plan.stages) > 1:
            found = "steps of unequal seconds (step_shares)" if ends else "a batch, or a plan with several stages"
            raise ConfigError(
                f"feature_cache: found {found} on groups of GPUs; add feature_cache=none, or choose "
                "executor=continuous-batching"
            )
        # From its first step on, wherever it is: asynchronous LoRAs count its steps down (test_matrix.py).
        left, request.steps_left = request.steps_left, request.steps - request.skipped
        costs = self.feature_cache.step_costs([request], request.steps_left, lambda _: step)
        check_step_costs(costs, request.steps - request.skipped)
        request.steps_left = left
        return costs

    def reused_share(self, request: Request) -> float:
        """Return the share of the features of ``request`` that its steps reused."""
        steps = request.steps - request.skipped
        return self._reusing(request, Cost(1.0), (), 1).reused(steps)[0] / max(steps, 1)

    def _step(self, works: Sequence[Work], degree: int) -> tuple[float, float | None]:
        """Return seconds and joules of a step on ``degree`` GPUs. Raises BackendError if it was not measured."""
        work = works[0]
        cost = self._group_step(work, degree, len(works)) if self.patches is None else self._patched_step(works, degree)
        if cost is None:
            sizes = ", ".join(map(str, sorted({1, *self.backend.group_sizes()})))
            size = size_text(work.width, work.height, work.frames)
            raise BackendError(
                f"a step of {work.model} at {size} on {degree} GPUs was not measured (degrees "
                f"with a profile: {sizes}); name these degrees, or add the figure to a profile in backend.folder"
            )
        faster = self.kernels.faster(work.model)
        if faster != 1.0:
            cost = cost.times(1.0 / faster)
        step_s, joules = cost.seconds, cost.joules
        extra_s = 0.0 if self.addons is None else self.addons.extra_s(work, degree)
        if extra_s and joules is not None:
            joules *= (step_s + extra_s) / step_s
        return step_s + extra_s, joules

    def _group_step(self, work: Work, degree: int, batch: int) -> Cost | None:
        """Return a step on ``degree`` GPUs; inline ControlNets are as much faster there as the denoiser."""
        backend = self.backend
        if degree in self.speedup:
            alone = backend.group_step(work, 1, batch)
            return None if alone is None else on_gpus(degree, alone.over(self.speedup[degree]))
        if degree == 1 or not work.controlnets:
            return backend.group_step(work, degree, batch)
        assert batch == 1
        plain = replace(work, controlnets=())
        on_group, alone, with_nets = (backend.group_step(*each) for each in ((plain, degree), (plain, 1), (work, 1)))
        if on_group is None or alone is None or with_nets is None:
            return None
        return on_group.times(with_nets.seconds / alone.seconds)

    def _patched_step(self, works: Sequence[Work], degree: int) -> Cost | None:
        """Return a step of patches on ``degree`` GPUs; it gains as much as the whole image that gains least."""
        assert self.patches is not None
        cost = self.patches.on_one_gpu(self.backend, works)
        if degree == 1:
            return cost
        if degree in self.speedup:
            return on_gpus(degree, cost.over(self.speedup[degree]))
        shares = []
        for work in {(work.width, work.height): work for work in works}.values():
            on_group, alone = (self.backend.group_step(replace(work), gpus) for gpus in (degree, 1))
            if on_group is None or alone is None:
                return None
            shares.append(on_group.seconds / alone.seconds)
        return on_gpus(degree, cost.times(max(shares)))

    def _step_ends(self, request: Request, work: Work, batch: int) -> tuple[float, ...]:
        """Return the ends of unequal steps. Raises BackendError where it is not known which of them run."""
        ends = tuple(self.backend.step_ends(work))
        stages = [stage for stage in request.plan.stages if stage.denoises]
        if ends and (batch > 1 or len(stages) > 1):
            found = f"a batch of {batch} requests" if batch > 1 else f"a plan with {len(stages)} stages of steps"
            size = size_text(work.width, work.height, work.frames)
            raise BackendError(
                f"step_shares: the steps of {work.model} at {size} are unequal, and found {found}; expected one "
                "request in one stage of steps (a group policy's max_batch=1)"
            )
        return ends

    def _check_memory(self, works: Sequence[Work]) -> None:
        peak_bytes, memory_bytes = self.backend.peak_bytes(works), self.gpu.memory_bytes
        if peak_bytes is not None and memory_bytes is not None and peak_bytes > memory_bytes:
            sizes = ", ".join(sorted({size_text(work.width, work.height, work.frames) for work in works}))
            raise SimulationError(
                f"a batch of {len(works)} requests of {works[0].model} at {sizes} takes {peak_bytes / 1e9:.1f} "
                f"GB of the {memory_bytes / 1e9:.1f} GB of a {self.gpu.name}; lower the batch limit of the group "
                "policy"
            )


@dataclass(frozen=True, slots=True)
class Moves:
    """Seconds of moving latents between groups, by the settings of `Stages` of the same names."""

    migration_s: float
    link_bytes_s: float
    text_bytes: int

    def seconds(self, progress: Progress) -> float:
        """Return the seconds of moving the latent of ``progress`` to other GPUs."""
        if not self.link_bytes_s:
            return self.migration_s
        request, before = progress.request, progress.index - 1
        # Between text encoder and denoiser the prompt's embeddings move; everywhere else the latent.
        if not progress.done and before >= 0 and progress.stages[before].component == TEXT_ENCODER:
            return self.migration_s + self.text_bytes / self.link_bytes_s
        pixels = request.width * request.height * ceil(request.frames / FRAMES_PER_LATENT)
        return self.migration_s + pixels * BYTES_PER_LATENT_PIXEL / self.link_bytes_s

    def needed(self, requests: Sequence[Progress], group: object) -> Sequence[tuple[Progress, float]]:
        """Return the requests whose latents must move to ``group``, and the seconds of each move."""
        moved = [progress for progress in requests if progress.group is not None and progress.group is not group]
        moves = [(progress, self.seconds(progress)) for progress in moved]
        return [(progress, seconds) for progress, seconds in moves if seconds > 0.0]
