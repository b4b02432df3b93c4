"""Execution of stages on groups of GPUs that change between steps (``executor=stages``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isnan, nan
from typing import Literal

from mezzotint.backends.base import Asset, BackendError, Cost, Work, size_text
from mezzotint.settings.ranges import Bandwidth, Count, Seconds
from mezzotint.sim.addons.assets import load
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.plan import DENOISER, MISSING, TEXT_ENCODER, VAE, WHOLE, Stage, three_stages, whole_stage
from mezzotint.sim.core.progress import Attempt, Progress
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.residency import Residency
from mezzotint.sim.execution.stage_addons import StageAddons
from mezzotint.sim.metrics.recorder import BATCH_MEAN, STEP_SHARE
from mezzotint.sim.protocols import (
    AttemptLog,
    ControlNetPlacement,
    Executor,
    LoraLoading,
    RequestColumn,
    Run,
    StageCost,
    StageExecutor,
    Worker,
)

MOVE = "move"
"""Component of a move of a latent between groups, in attempts.parquet."""

BYTES_PER_LATENT_PIXEL = 2 * 16 / 64
"""Bytes of a latent per pixel of the image: 16 channels of 2 bytes at an eighth of the side (FLUX, SD3)."""

FRAMES_PER_LATENT = 4
"""Frames of a video per frame of its latent (Wan)."""
TEXT_BYTES = 512 * 4096 * 2
"""Bytes of a prompt's embeddings: 512 tokens of T5-XXL at 2 bytes (FLUX, SD3, Wan)."""

ALL = TEXT_ENCODER, DENOISER, VAE


@dataclass(slots=True)
class Stages(Executor, StageExecutor):
    """Run stages on groups of any GPUs, with the costs of forming a group and of moving a latent between groups.

    Args:
        stages: ``whole`` makes a request one stage, with text encoding in its first step and decoding in its last;
            ``disaggregated`` makes text encoder, denoiser and VAE stages of their own. A list names the stages in
            order; its ``denoiser`` runs the steps of the request, the others as many as the list says.
        forming_s: seconds to form a group of two or more GPUs that were never a group before.
        migration_s: seconds in which a latent moves to other GPUs, besides its bytes.
        handover: ``blocking`` moves a latent once the next launch can start, and keeps old and new GPUs busy meanwhile.
            ``background`` moves it from the end of the launch before on, and no GPU is busy with it.
        link_bytes_s: bytes per second between GPUs; 0 moves them in no time.
        launch_s: seconds from a decision to the begin of its work, if its GPUs are idle by then.
        text_bytes: bytes that move from the text encoder to the denoiser; everywhere else a latent moves.
        controlnet_placement, lora_loading: where ControlNets run, and when LoRAs are loaded, as of `StageAddons`; if
            neither is given, ControlNets run inline and all add-ons are loaded before the first step.
    """

    stages: Literal["whole", "disaggregated"] | list[Stage] = "whole"
    forming_s: Seconds = 0.0
    migration_s: Seconds = 0.0
    handover: Literal["blocking", "background"] = "blocking"
    link_bytes_s: Bandwidth = 0.0
    text_bytes: Count = TEXT_BYTES
    launch_s: Seconds = 0.0
    controlnet_placement: ControlNetPlacement | None = None
    lora_loading: LoraLoading | None = None
    _addons: StageAddons | None = field(init=False, default=None, repr=False)
    _abort: Callable[[Worker, float], list[Request]] = field(init=False, repr=False)
    _run: Run = field(init=False, repr=False)
    _log: AttemptLog = field(init=False, repr=False)
    _costs: dict[tuple[object, ...], StageCost] = field(init=False, default_factory=dict, repr=False)
    _stages: dict[int, tuple[Stage, ...]] = field(init=False, default_factory=dict, repr=False)
    _formed: set[int] = field(init=False, default_factory=set, repr=False)
    _by_row: bool = field(init=False, repr=False)
    _residency: Residency = field(init=False, repr=False)
    _placed: dict[int, Sequence[str]] = field(init=False, default_factory=dict, repr=False)
    _charged: dict[str, bool] = field(init=False, default_factory=dict, repr=False)
    _columns: dict[str, RequestColumn] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        check_one_kind(run.cluster.kinds, "executor=stages", "a group's GPUs are of", "choose another executor=")
        if run.workload.addons is not None:
            self._addons = StageAddons(
                run, self.controlnet_placement or InlineControlNets(), self.lora_loading or SyncLoading()
            )
        if run.backend.live:
            raise ConfigError("backend: found a live one, and executor=stages needs profiles; add backend=profiled")
        if isinstance(self.stages, list) and [each.component for each in self.stages].count(DENOISER) != 1:
            names = ", ".join(each.component for each in self.stages)
            raise ConfigError(f"executor.stages: found {names or 'no stage'}; expected one denoiser among the stages")
        (gpu,) = run.cluster.kinds
        self._residency = Residency(run.backend, gpu.memory_bytes, self._placed)
        self._log = run.attempts()
        self._log.is_exclusive = True
        self._by_row = run.backend.by_row
        self._columns = {
            "pauses": run.add_column("pauses", int, default=0, total="stages.pauses"),
            "paused_s": run.add_column("paused_s", default=0.0),
            "moves": run.add_column("moves", int, default=0, total="stages.moves"),
            "degree_changes": run.add_column("degree_changes", int, default=0, total="stages.degree_changes"),
            "component_loads": run.add_column("component_loads", int, default=0, total="stages.component_loads"),
            "gpu_s": run.add_column("gpu_s", default=0.0, total="stages.gpu_s"),
            "estimate_s": run.add_column("estimate_s", default=0.0, total="stages.estimate_s"),
            BATCH_MEAN: run.add_column(BATCH_MEAN, default=1.0),
            STEP_SHARE: run.add_column(STEP_SHARE, default=0.0, public=False),
        }
        if self.forming_s:
            run.assume("seconds to form a group of GPUs", self.forming_s, "executor.forming_s")
        if self.launch_s:
            run.assume("seconds from a decision to the begin of its work", self.launch_s, "executor.launch_s")
        if self.migration_s:
            run.assume("seconds to move a latent between groups", self.migration_s, "executor.migration_s")
        if self.link_bytes_s:
            moved = {"text embeddings": self.text_bytes, "latent, per pixel": BYTES_PER_LATENT_PIXEL}
            run.assume("bytes that move between groups", moved, "executor.text_bytes; 16 channels at an eighth")

    @property
    def moves_in_background(self) -> bool:
        return self.handover == "background"

    def place(self, gpus: Sequence[int], components: Sequence[str]) -> None:
        for gpu in gpus:
            self._placed[gpu] = components

    @property
    def moves_are_free(self) -> bool:
        return not (self.migration_s or self.link_bytes_s)

    def accept(self, worker: Worker, request: Request) -> None:
        raise SimulationError(
            "executor=stages was handed a whole request; choose scheduler=stages, which gives each stage its GPUs"
        )

    def bind_abort(self, abort: Callable[[Worker, float], list[Request]]) -> None:
        self._abort = abort

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        lost = self._abort(worker, now_s)
        self._residency.forget(worker.id)
        # The group's communicator is lost with any of its GPUs.
        self._formed = {group for group in self._formed if worker.id not in self._run.cluster.gpus_of(group)}
        return lost

    def lost(self, progress: Progress, group: Worker, from_s: float, now_s: float, batch: int = 1) -> None:
        request, stage, cluster = progress.request, progress.stage, self._run.cluster
        model = request.model or ""
        # Loads are recorded ahead; the failure ends them now (test_load_that_a_failure_ends_is_busy_up_to_then).
        cluster.cut_short(group)
        if from_s < now_s:
            watts = self.cost(request, stage, len(group.gpus), batch).watts if group is progress.group else nan
            drawn_j = None if isnan(watts) else watts * (now_s - from_s)
            joules = cluster.record_stage(group, model, from_s, now_s, "lost", drawn_j, request.row)
            self._log.add(
                request.row, MISSING, stage.component, model, group.gpus, from_s, now_s, estimate_s=0.0, energy_j=joules
            )
        if group is progress.group:  # else it moved
            self.launch_ended(progress, group, stage, False, now_s)
        self.restarted(progress)

    def restarted(self, progress: Progress) -> None:
        request, columns = progress.request, self._columns
        self._log.lose(request.row, request.arrival_s)
        request.forget_execution()
        for name in ("gpu_s", "estimate_s", "component_loads", STEP_SHARE):
            columns[name][request.row] = 0
        columns[BATCH_MEAN][request.row] = 1.0

    def refusal(self, request: Request) -> str:
        return "" if self._addons is None else self._addons.refusal(request)

    def max_degree(self, request: Request, stage: Stage, gpus: int) -> int:
        gpus = min(gpus, stage.max_degree or gpus)
        return gpus if self._addons is None else self._addons.max_degree(request, stage, gpus)

    def stages_of(self, request: Request) -> tuple[Stage, ...]:
        request.remote_controlnets = self._addons is not None and self._addons.is_service
        if request.plan.stages:
            return request.plan.stages
        steps = request.steps - request.skipped
        stages = self._stages.get(steps)
        if stages is None:
            stages = self._stages[steps] = self._own_stages(steps)
        return stages

    def _own_stages(self, steps: int) -> tuple[Stage, ...]:
        if isinstance(self.stages, str):
            return whole_stage(steps) if self.stages == "whole" else three_stages(steps)
        return tuple(replace(each, steps=steps) if each.component == DENOISER else each for each in self.stages)

    def cost(self, request: Request, stage: Stage, degree: int, batch: int = 1, *, as_usual: bool = False) -> StageCost:
        # Without scatter all rows cost alike, and share one entry.
        row = request.row if self._by_row and batch == 1 else -1
        # By number: a profile times ControlNets by how many they are.
        nets = 0 if request.addons is None else len(request.addons.controlnets)
        key = (
            request.model, request.width, request.height, request.frames, request.steps, stage.component, degree,
            request.plan.refine, nets, row, batch, None if as_usual else request.sampling,
        )  # fmt: skip
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._cost(request, stage, degree, batch, as_usual)
        return found

    def _cost(self, request: Request, stage: Stage, degree: int, batch: int, as_usual: bool) -> StageCost:
        backend, component = self._run.backend, stage.component
        gpu = next(iter(self._run.cluster.kinds))
        work = self._run.work(request)
        if as_usual:
            work = replace(work, images=1, cfg=None, input_images=0)
        if batch > 1:
            work.row = -1  # a batch takes the typical seconds, whatever its rows
            if degree == 1:
                self._check_memory(work, batch)
        first_s = step_s = last_s = 0.0
        joules: float | None = None
        if component in (WHOLE, TEXT_ENCODER):
            first_s = backend.begin((work,)).seconds
        if component in (WHOLE, DENOISER):
            cost = self._group_step(work, degree, batch)
            if cost is None:
                sizes = ", ".join(map(str, sorted({1, *backend.group_sizes()})))
                size = size_text(work.width, work.height, work.frames)
                raise BackendError(
                    f"a step of {work.model} at {size} on {degree} GPUs was not measured (degrees "
                    f"with a profile: {sizes}); name these degrees, or add the figure to a profile in backend.folder"
                )
            step_s = cost.seconds
            joules = cost.joules
            extra_s = 0.0 if self._addons is None else self._addons.extra_s(work, degree)
            if extra_s and joules is not None:
                joules *= (step_s + extra_s) / step_s
            step_s += extra_s
        if component in (WHOLE, VAE):
            work.done = work.steps
            last_s = backend.end((work,)).seconds
        if component not in (WHOLE, TEXT_ENCODER, DENOISER, VAE):
            step_s = backend.component_s(component, work, degree)
        watts = gpu.energy_j(1.0) * degree if joules is None or not step_s else joules / step_s
        ends = self._step_ends(request, work, batch) if component in (WHOLE, DENOISER) else ()
        return StageCost(first_s, step_s, last_s, watts, ends)

    def _step_ends(self, request: Request, work: Work, batch: int) -> tuple[float, ...]:
        """Return the ends of unequal steps. Raises BackendError where it is not known which of them run."""
        ends = tuple(self._run.backend.step_ends(work))
        stages = [each for each in request.plan.stages if each.component in (WHOLE, DENOISER)]
        if ends and (batch > 1 or len(stages) > 1):
            found = f"a batch of {batch} requests" if batch > 1 else f"a plan with {len(stages)} stages of steps"
            size = size_text(work.width, work.height, work.frames)
            raise BackendError(
                f"step_shares: the steps of {work.model} at {size} are unequal, and found {found}; expected one "
                "request in one stage of steps (a group policy's max_batch=1)"
            )
        return ends

    def _check_memory(self, work: Work, batch: int) -> None:
        (gpu,) = self._run.cluster.kinds
        peak_bytes = self._run.backend.peak_bytes([work] * batch)
        if peak_bytes is not None and gpu.memory_bytes is not None and peak_bytes > gpu.memory_bytes:
            raise SimulationError(
                f"a batch of {batch} requests of {work.model} at {size_text(work.width, work.height, work.frames)} "
                f"takes {peak_bytes / 1e9:.1f} GB of the {gpu.memory_bytes / 1e9:.1f} GB of a {gpu.name}; lower the "
                "batch limit of the group policy"
            )

    def _group_step(self, work: Work, degree: int, batch: int) -> Cost | None:
        """Return a step on ``degree`` GPUs; inline ControlNets are as much faster there as the denoiser."""
        backend = self._run.backend
        if degree == 1 or not work.controlnets:
            return backend.group_step(work, degree, batch)
        assert batch == 1
        plain = replace(work, controlnets=())
        found, alone, with_nets = (backend.group_step(*each) for each in ((plain, degree), (plain, 1), (work, 1)))
        if found is None or alone is None or with_nets is None:
            return None
        return found.times(with_nets.seconds / alone.seconds)

    def prepare(self, progress: Progress, group: Worker, now_s: float, record_earlier: Callable[[], None]) -> float:
        request, cluster, took_s = progress.request, self._run.cluster, 0.0
        model = request.model or ""
        # Forming, loads and the fetch follow one another
        # (test_artifact_is_fetched_after_the_model_is_loaded_and_once).
        if self.forming_s and len(group.gpus) > 1 and group.id not in self._formed:
            self._formed.add(group.id)
            took_s = self.forming_s
            record_earlier()
            cluster.record_stage(group, model, now_s, now_s + took_s, "form", None, request.row)
        if cluster.lacks(group, model):
            cost = load(group, Asset("model", model, model))
            record_earlier()
            cluster.record_stage(group, model, now_s + took_s, now_s + took_s + cost.seconds, "load", cost.joules)
            cluster.hold(group, model)
            took_s += cost.seconds
        if self._is_charged(progress, model) and (
            loads_s := self._residency.load_s(group.gpus, model, _needed(progress))
        ):
            record_earlier()
            cluster.record_stage(group, model, now_s + took_s, now_s + took_s + loads_s, "load")
            self._columns["component_loads"][request.row] += 1
            took_s += loads_s
        if self._addons is not None and progress.stage.component in (WHOLE, DENOISER):
            for kind, load_cost in self._addons.load(progress, group, now_s):
                begun_s, took_s = now_s + took_s, took_s + load_cost.seconds
                until_s = now_s + took_s
                record_earlier()
                request.energy_j += cluster.record_stage(group, model, begun_s, until_s, kind, load_cost.joules)
        if took_s:
            request.load_s += took_s
        fetch_s = request.plan.fetch_s
        # Once, at its first launch (test_artifact_is_fetched_after_the_model_is_loaded_and_once).
        if fetch_s and progress.group is None:
            until_s = now_s + took_s + fetch_s
            record_earlier()
            request.energy_j += cluster.record_stage(group, model, now_s + took_s, until_s, "fetch", None, request.row)
            took_s += fetch_s
        return took_s

    def _is_charged(self, progress: Progress, model: str) -> bool:
        """Return True if loads of the components of ``model`` are charged."""
        found = self._charged.get(model)
        if found is None:
            found = self._charged[model] = self._are_loads_charged(progress.stages, model)
        return found

    def _are_loads_charged(self, stages: tuple[Stage, ...], model: str) -> bool:
        """Return True if a component's size and the memory are known; list what is not, of a plan of several stages."""
        unknown = [each for each in ALL if self._residency.weights(model, each) is None]
        has_memory = self._residency.memory_bytes is not None
        if len(stages) > 1 and (unknown or not has_memory):
            why = f"component_weights of {', '.join(unknown)}" if unknown else "cluster.gpu.memory_bytes"
            self._run.assume(f"seconds to load components of {model}", 0, f"not charged: the {why} are not known")
        return has_memory and len(unknown) < len(ALL)

    def reserve(self, progress: Progress, group: Worker) -> bool:
        return self._addons is None or self._addons.reserve(progress, group)

    def launch_ended(self, progress: Progress, group: Worker, stage: Stage, is_last: bool, now_s: float) -> None:
        if self._addons is None or stage.component not in (WHOLE, DENOISER):
            return
        request, degree = progress.request, len(group.gpus)
        self._columns["gpu_s"][request.row] += self._addons.service_gpu_s(progress, now_s)
        watts = self.cost(request, stage, degree).watts / degree
        self._addons.launch_ended(progress, group, watts, is_last, now_s)

    def move_s(self, progress: Progress, group: Worker) -> float:
        seconds = self.migration_s
        if self.link_bytes_s:
            seconds += self._moved_bytes(progress) / self.link_bytes_s
        return seconds

    def _moved_bytes(self, progress: Progress) -> float:
        request, before = progress.request, progress.index - 1
        # Between text encoder and denoiser the prompt's embeddings move; everywhere else the latent.
        if not progress.done and before >= 0 and progress.stages[before].component == TEXT_ENCODER:
            return self.text_bytes
        pixels = request.width * request.height * ceil(request.frames / FRAMES_PER_LATENT)
        return pixels * BYTES_PER_LATENT_PIXEL

    def record_move(self, progress: Progress, group: Worker, from_s: float, until_s: float) -> None:
        request, model = progress.request, progress.request.model or ""
        joules = self._run.cluster.record_stage(group, model, from_s, until_s, MOVE, None, request.row)
        self._log.add(request.row, MISSING, MOVE, model, group.gpus, from_s, until_s, estimate_s=0.0, energy_j=joules)
        request.energy_j += joules

    def ran(self, progress: Progress, attempt: Attempt) -> None:
        stage = progress.stages[attempt.index]
        cost = self.cost(progress.request, stage, len(attempt.group.gpus))
        # As the costs add up, not as instants differ: a sum does not depend on when it begins
        # (test_whole_requests_on_one_gpu_each_run_as_sequential).
        ran = attempt.done, attempt.steps, stage.steps
        seconds, steps_s = cost.seconds(*ran), cost.steps_s(*ran)
        joules = self._record(progress, attempt, cost, seconds, progress.request.row)
        self._add(progress, attempt, attempt.believed.seconds(*ran), seconds, steps_s, joules)

    def ran_together(self, batch: Sequence[Progress], attempt: Attempt) -> None:
        first, stage = batch[0], batch[0].stages[attempt.index]
        cost = self.cost(first.request, stage, len(attempt.group.gpus), len(batch))
        seconds, steps_s = cost.batch_s(batch, attempt.steps), cost.step_s * attempt.steps
        # The busy time once, for all: the row is no single request's.
        joules = self._record(first, attempt, cost, seconds, MISSING) / len(batch)
        estimate_s = attempt.believed.batch_s(batch, attempt.steps)
        for progress in batch:
            self._add(progress, attempt, estimate_s, seconds, steps_s, joules)

    def _record(self, progress: Progress, attempt: Attempt, cost: StageCost, seconds: float, row: int) -> float:
        """Record the busy time of ``attempt``, of so many seconds; return its joules."""
        drawn_j = None if isnan(cost.watts) else cost.watts * seconds
        model = progress.request.model or ""
        return self._run.cluster.record_stage(
            attempt.group, model, attempt.from_s, attempt.until_s, "serve", drawn_j, row, attempt.batch
        )

    def _add(
        self, progress: Progress, attempt: Attempt, estimate_s: float, seconds: float, steps_s: float, joules: float
    ) -> None:
        """Add ``attempt`` to its request, with its share of the GPUs and of ``joules``."""
        request, gpus, batch = progress.request, attempt.group.gpus, attempt.batch
        row, columns = request.row, self._columns
        request.energy_j += joules
        request.denoise_s += steps_s
        request.decode_s += seconds - steps_s
        # A running mean over step seconds; ``denoise_s`` counts this attempt already.
        mean = columns[BATCH_MEAN][row]
        if batch != mean and steps_s:
            columns[BATCH_MEAN][row] = mean + (batch - mean) * steps_s / request.denoise_s
        columns["gpu_s"][row] += seconds * len(gpus) / batch
        columns["estimate_s"][row] += estimate_s
        columns[STEP_SHARE][row] += steps_s * len(gpus) / batch
        self._log.add(
            row, attempt.index, progress.stages[attempt.index].component, request.model or "", gpus, attempt.from_s,
            attempt.until_s, attempt.steps, estimate_s, joules, batch,
        )  # fmt: skip

    def complete(self, progress: Progress) -> None:
        request, row, columns = progress.request, progress.request.row, self._columns
        assert progress.group is not None
        request.worker, request.steps_left = progress.group.id, 0
        for name in ("pauses", "paused_s", "moves", "degree_changes"):
            columns[name][row] = getattr(progress, name)
        self._run.end(request)


def _needed(progress: Progress) -> Sequence[str]:
    """Return the components that the next launch of ``progress`` needs."""
    component = progress.stage.component
    if component != WHOLE:
        return (component,)
    return (DENOISER,) if progress.done else ALL
