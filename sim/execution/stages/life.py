"""The life of a launch: stages on groups of GPUs, which may be chosen anew at every boundary (``executor=stages``).

::

    WAITING -decide-> CLAIMED -its GPUs are idle-> [MOVING -> CLAIMED] -> PREPARING -> RUNNING -end-> WAITING
                                                                                          last stage -> answered
    RUNNING -boundary, the decision stands-> RUNNING         any with GPUs -one of them fails-> lost

1. Decision. After each event the policy decides. A launch that it returns leaves ``waiting``, claims its GPUs at once,
   and queues (``_claim``). A claim tells the next decision; it does not keep others from claiming the same GPU.
2. Start. After all events of the instant the queue is tried in the order of decision (``_dispatch``). A launch starts
   once its own GPUs are idle (``_start``); one that cannot start lets later ones pass. If its latent must move first,
   the move holds the old and the new GPUs, and the launch queues again at its end (``_move``, ``_moved``). Then its
   group forms and loads what it lacks (`Preparation`). Whenever something started, the policy decides again.
3. Run. A launch runs on over its boundaries while the decision on it stands (`Lookahead`), and never ends within a
   step. ``LaunchState.ends_s`` is its end as things stand. The clock has a call at each instant at which it may end; a
   call at another instant than ``ends_s`` does nothing. Launches that end or pass a boundary at one instant take turns
   as if each had been decided anew at its last boundary (`Turns`). So results do not depend on how many steps a launch
   has. A step may be delayed as it begins: by LoRAs that are merged, or by ControlNet servers that are called
   (`Delays`). The launch goes on later, without another decision. On a live backend each step runs as it begins, and
   its seconds are known from then on (`LiveSteps`).
4. End. ``_due`` ends the launches of one instant in their turns. Each frees its GPUs (``_end``), its request waits,
   enters its next stage or is answered, and the policy decides again. GPUs whose weights had LoRAs are held until they
   are restored (`Restorations`).
5. Record. Launches that follow each other on the same GPUs are one attempt (`Account`). It is recorded when something
   else happens to the request or its GPUs (``_close``): a pause, a load, a move, another stage. The usage log of a GPU
   takes times in order, so the attempt is recorded before whatever ends it. Where requests join and leave a batch
   (Stage.max_batch), each launch is recorded as it ends, and the attempt of each request is the sum over its launches.
6. GPUs that go. A GPU that fails ends its launch at once (``abort``), and requests whose latent was there begin anew.
   One that leaves its role or is given back ends it where it is decided anew (``_leave``). Of launches that have not
   started there the requests wait again; of a policy that counts on the GPUs that it began with they stay queued.

One instant, in the order of the clock::

    COMPLETION  the launches that end or pass a boundary, in their turns: record, free the GPUs, decide
    INSERTION   answers (``_complete``), and the ends of restorations: decide
    CONTROL     failures and repairs
    ARRIVAL     new requests: decide
    DISPATCH    ticks of the policy; then launches start in the order of decision, and it decides again until none does;
                who is at a boundary and did not start has paused
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Annotated, Literal

from annotated_types import Ge

from mezzotint.backends.base import FREE, Backend, Cost
from mezzotint.settings.ranges import Bandwidth, Count, Positive, Seconds
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.kernels import Kernels
from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.core.clock import COMPLETION, DISPATCH, INSERTION, Clock, Entry
from mezzotint.sim.core.culprit import class_name, is_ours
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu, check_one_kind
from mezzotint.sim.core.model import in_role
from mezzotint.sim.core.plan import COMPONENTS, Stage
from mezzotint.sim.core.progress import Attempt, HashedProgress, Progress, advance, requests_of, restart, write
from mezzotint.sim.core.request import DISCARDED, FAILED, GIVEN_UP, HashedRequest, Request
from mezzotint.sim.core.worker import DOWN, Worker
from mezzotint.sim.execution.stages.account import Account
from mezzotint.sim.execution.stages.addons import StageAddons
from mezzotint.sim.execution.stages.costs import BYTES_PER_LATENT_PIXEL, Moves, StageCosts
from mezzotint.sim.execution.stages.delays import Delays
from mezzotint.sim.execution.stages.launches import LaunchState, Turns
from mezzotint.sim.execution.stages.live import LiveCosts, LiveSteps, NoEstimates
from mezzotint.sim.execution.stages.lookahead import Lookahead
from mezzotint.sim.execution.stages.occupancy import Occupancy
from mezzotint.sim.execution.stages.preparation import Preparation, refuse_two_residencies
from mezzotint.sim.execution.stages.pulled import Pulled
from mezzotint.sim.execution.stages.restorations import Restorations
from mezzotint.sim.execution.stages.settings import bind_patches, check_batches, check_feature_cache, refuse_unused
from mezzotint.sim.execution.stages.view import Claims, StageEstimates, View
from mezzotint.sim.metrics.recorder import REUSED_SHARE
from mezzotint.sim.protocols import (
    ControlNetPlacement,
    Estimates,
    Executor,
    FeatureCache,
    GroupPolicy,
    Launch,
    LoraLoading,
    RequestColumn,
    Run,
    Scheduler,
    StageCost,
    Steps,
)

TEXT_BYTES = 512 * 4096 * 2
"""Bytes of a prompt's embeddings: 512 tokens of T5-XXL at 2 bytes (FLUX, SD3, Wan)."""


@dataclass(slots=True)
class Stages(Executor, Scheduler):
    """Run stages on groups of any GPUs, which a group policy chooses anew at every boundary. It is its own scheduler.

    Without a group policy a scheduler gives each request to a worker, and its stages run there one after another. Then
    a run is that of ``executor=sequential`` (test_pulled_requests_run_as_sequential).

    Args:
        group_policy: which GPUs run which stage next; None for a scheduler that chooses workers.
        estimates: what the policy believes of costs; None for the true ones.
        stages: ``whole`` makes a request one stage, with text encoding in its first step and decoding in its last;
            ``disaggregated`` makes text encoder, denoiser and VAE stages of their own. A list names the stages in
            order; its ``denoiser`` runs the steps of the request, the others as many as the list says. With
            ``max_batch`` requests share the steps of a stage, and join and leave between two of them.
        forming_s: seconds to form a group of two or more GPUs that were never a group before.
        migration_s: seconds in which a latent moves to other GPUs, besides its bytes.
        handover: ``blocking`` moves a latent once the next launch can start, and keeps old and new GPUs busy meanwhile.
            ``background`` moves it from the end of the launch before on, and no GPU is busy with it.
        link_bytes_s: bytes per second between GPUs; 0 moves them in no time.
        text_bytes: bytes that move from the text encoder to the denoiser; everywhere else a latent moves.
        launch_s: seconds from a decision to the begin of its work, if its GPUs are idle by then.
        controlnet_placement, lora_loading: where ControlNets run, and when LoRAs are loaded, as of `StageAddons`; if
            neither is given, ControlNets run inline and all add-ons are loaded before the first step.
        feature_cache: what a step reuses of the step before; None computes everything.
        batching: ``PatchedSteps`` cuts the images of a batch of denoisers into patches, whatever their sizes; None
            batches requests of one size alone.
        kernels: kernels of the denoiser and its ControlNets; None is the framework's own.
        speedup: GPUs of a group -> speedup of a step over one GPU; overrides the backend's profile.
    """

    group_policy: GroupPolicy | None = None
    estimates: Estimates | None = None
    stages: Literal["whole", "disaggregated"] | list[Stage] = "whole"
    forming_s: Seconds = 0.0
    migration_s: Seconds = 0.0
    handover: Literal["blocking", "background"] = "blocking"
    link_bytes_s: Bandwidth = 0.0
    text_bytes: Count = TEXT_BYTES
    launch_s: Seconds = 0.0
    controlnet_placement: ControlNetPlacement | ServiceGpus | None = None
    lora_loading: LoraLoading | None = None
    feature_cache: FeatureCache | None = None
    batching: Steps | None = None
    kernels: Kernels | None = None
    speedup: dict[Annotated[int, Ge(2)], Positive] = field(default_factory=dict)
    _policy: GroupPolicy = field(init=False, repr=False)
    _pulled: Pulled | None = field(init=False, default=None, repr=False)
    _run: Run = field(init=False, repr=False)
    _clock: Clock = field(init=False, repr=False)
    _stages_of: Callable[[Request], tuple[Stage, ...]] = field(init=False, repr=False)
    _moves: Moves = field(init=False, repr=False)
    _moves_take_time: bool = field(init=False, repr=False)
    _moves_block: bool = field(init=False, repr=False)
    """True if the old and the new GPUs are busy with a move."""
    _addons: StageAddons | None = field(init=False, default=None, repr=False)
    _placed: dict[int, Sequence[str]] = field(init=False, default_factory=dict, repr=False)
    _is_outside: bool = field(init=False, repr=False)
    """True if the policy is a class from outside the package."""
    _preparation: Preparation = field(init=False, repr=False)
    _delays: Delays = field(init=False, repr=False)
    _restorations: Restorations = field(init=False, repr=False)
    _live: LiveSteps | None = field(init=False, default=None, repr=False)
    _account: Account = field(init=False, repr=False)
    _reused: RequestColumn = field(init=False, repr=False)
    _known: dict[str, StageEstimates] = field(init=False, default_factory=dict, repr=False)
    """True costs, and what the policy believes of them, by the name of the kind of GPU."""
    _are_exact: bool = field(init=False, repr=False)
    _learns: bool = field(init=False, repr=False)
    """True if the estimates are told what launches took."""
    _turns: Turns = field(init=False, repr=False)
    _lookahead: Lookahead = field(init=False, repr=False)
    _looks_ahead: bool = field(init=False, repr=False)
    _submitted: int = field(init=False, default=0, repr=False)
    _waiting: dict[Progress, None] = field(init=False, default_factory=dict, repr=False)
    _attempts: dict[Progress, Attempt | None] = field(init=False, default_factory=dict, repr=False)
    """Each request in the system with its attempt that runs, or ended and may go on with the next launch.

    The first request of a batch has the attempt of all.
    """
    _gpus: Occupancy = field(init=False, repr=False)
    _queue: list[LaunchState] = field(init=False, default_factory=list, repr=False)
    _launches: dict[Progress, LaunchState] = field(init=False, default_factory=dict, repr=False)
    _in_batch_of: dict[Progress, LaunchState] = field(init=False, default_factory=dict, repr=False)
    """The launches of the other requests of batches."""
    _answers: dict[Progress, Entry] = field(init=False, default_factory=dict, repr=False)
    """The requests that have run and are not answered, with the clock's calls that answer them."""
    _at_boundary: list[Progress] = field(init=False, default_factory=list, repr=False)
    _void: list[tuple[Launch, list[Progress]]] = field(init=False, default_factory=list, repr=False)
    """Launches of the present decision with requests that their clients have given up, and these requests."""
    _ending: Progress | None = field(init=False, default=None, repr=False)
    """The request whose launch ended in the present turn."""
    _has_launched: bool = field(init=False, default=False, repr=False)
    """True if the last decision launched something."""
    _ends_changed: bool = field(init=False, default=False, repr=False)
    """True if another launch ends at this instant than was known."""
    _dispatch_due: bool = field(init=False, default=False, repr=False)

    @property
    def other_stages(self) -> list[Stage]:
        """The stages of each request besides text encoder, denoiser and VAE."""
        stages = self.stages if isinstance(self.stages, list) else ()
        return [stage for stage in stages if stage.component not in COMPONENTS]

    def bind(self, run: Run) -> None:
        self._run, self._clock = run, run.clock
        cluster, backend = run.cluster, run.backend
        gpus = cluster.gpus - len(cluster.servers)
        if any(server.id < gpus for server in cluster.servers):
            raise ConfigError("allocation: executor=stages takes the first GPUs, and some of them serve ControlNets")
        check_batches(self.stages, self.group_policy, self.feature_cache)
        if self.group_policy is None:
            of_groups = {name: getattr(self, name) for name in ("forming_s", "migration_s", "link_bytes_s", "speedup")}
            refuse_unused(of_groups, self.estimates, self.batching)
            self._policy = self._pulled = Pulled()
        else:
            self._policy = self.group_policy
            if not self._policy.follows_gpus:
                why = f"the group policy ({class_name(self._policy)}) counts on the GPUs that it began with"
                cluster.keep_roles(why)
        kernels = self.kernels or Kernels()
        kernels.bind(run)
        if run.workload.addons is not None:
            remedy = "choose another executor=, or addons=ignore"
            check_one_kind(cluster.kinds, "executor=stages", "groups that serve add-ons are of", remedy)
            self._addons = StageAddons(
                run,
                self.controlnet_placement or InlineControlNets(),
                self.lora_loading or SyncLoading(),
                kernels.faster,
                self._policy.chooses_service_gpus,
            )
            self._delays = Delays(run, self._addons, self._attempts, self._close, self._close_at, self._end_at)
        self._gpus = Occupancy(Claims([0] * gpus))
        self._restorations = Restorations(run, self._gpus, self._decide, self._pulled is None)
        if self.feature_cache is not None:
            check_feature_cache(self._policy, self.controlnet_placement)
            self.feature_cache.bind(run)
        patches = None
        if self.batching is not None:
            patches = bind_patches(run, self.batching, self._policy, self.stages, self.feature_cache)
        for gpu, backend in cluster.kinds.items():
            costs = StageCosts(
                run, gpu, backend, self.stages, self._addons, self.feature_cache, patches, kernels, self.speedup
            )
            estimates = self.estimates if len(cluster.kinds) == 1 else deepcopy(self.estimates)
            if backend.live:
                costs, estimates = self._run_live(gpu, backend), estimates or NoEstimates(class_name(self._policy))
            if estimates is not None:
                estimates.bind(run, costs.cost)
            self._known[gpu.name] = StageEstimates(costs, estimates, gpus, self._completed_steps)
        self._stages_of = next(iter(self._known.values())).costs.stages_of  # of any kind of GPU
        self._are_exact = all(known.are_exact for known in self._known.values())
        self._learns = any(known.learns for known in self._known.values())
        self._moves = Moves(self.migration_s, self.link_bytes_s, self.text_bytes)
        self._moves_take_time = bool(self.migration_s or self.link_bytes_s)
        self._moves_block = self._moves_take_time and self.handover == "blocking"
        self._turns = Turns(run.clock)
        policy_looks = type(self._policy).stands is not GroupPolicy.stands
        are_fixed = all(known.are_fixed for known in self._known.values())
        self._looks_ahead = policy_looks and are_fixed and not self.launch_s
        self._lookahead = Lookahead(
            run.clock, self._policy, self._gpus.claimed, self._end_at, self._end_next, self._turns.standing
        )
        self._is_outside = not is_ours(class_name(self._policy))
        self._policy.bind(run, self._view(next(iter(cluster.kinds))))
        self._account = Account(run)
        if self.feature_cache is not None:
            self._reused = run.add_column(REUSED_SHARE)
        refuse_two_residencies(run)
        self._preparation = Preparation(
            run, self._account, self.forming_s, self._placed, self._addons, self._close_before
        )
        self._assume(run)

    def _run_live(self, gpu: Gpu, backend: Backend) -> LiveCosts:
        """Return the costs of a live ``backend``. Raises ConfigError for what groups of GPUs do not run live."""
        if self.feature_cache is not None:
            raise ConfigError("feature_cache: a live backend computes every block; add feature_cache=none")
        if self.kernels is not None and (self.kernels.names or self.kernels.stages != 1.0):
            raise ConfigError("kernels: a live backend runs torch's own; add ~kernels")
        costs = LiveCosts(self._run, gpu, backend, self.stages, self._addons)
        delays = None if self._addons is None else self._delays
        self._live = LiveSteps(self._clock, costs, class_name(self._policy), self._end_at, delays)
        if delays is not None:
            delays.run_live = self._live.go_on
        return costs

    def _view(self, gpu: Gpu) -> View:
        """Return what a policy sees, with the costs of ``gpu``."""
        # Read-only: a policy acts by what it returns and by these methods, so it cannot break claims or the order of
        # starts.
        known, claimed = self._known[gpu.name], self._gpus.claimed
        return View(
            MappingProxyType(self._waiting), claimed, known.are_exact, claimed.idle, known.degrees,
            known.cost, self._service_gpus, known.remaining_s, self.interrupt, self.withdraw,
            self._lookahead.ask_again, self.place, self.discard, self.decide_at, self._view,
        )  # fmt: skip

    def _assume(self, run: Run) -> None:
        if self.forming_s:
            run.assume("seconds to form a group of GPUs", self.forming_s, "executor.forming_s")
        for stage in self.other_stages:
            if stage.max_batch > 1:
                what = f"seconds of work that a request brings as it joins the batch of {stage.component}"
                run.assume(what, 0, "assumed: what comes before its first step, such as prefill, is inside its steps")
        if self.launch_s:
            run.assume("seconds from a decision to the begin of its work", self.launch_s, "executor.launch_s")
        if self.migration_s:
            run.assume("seconds to move a latent between groups", self.migration_s, "executor.migration_s")
        if self.link_bytes_s:
            moved = {"text embeddings": self.text_bytes, "latent, per pixel": BYTES_PER_LATENT_PIXEL}
            run.assume("bytes that move between groups", moved, "executor.text_bytes; 16 channels at an eighth")

    def __len__(self) -> int:
        return len(self._waiting) + sum(1 + len(launch.batch) for launch in self._queue)

    # -- for the policy (protocols.StageView) --------------------------------------------------------------------------

    def interrupt(self, progress: Progress) -> None:
        launch = self._launches.get(progress) or self._in_batch_of.get(progress)
        if launch is not None:
            self._end_next(launch)

    def _end_next(self, launch: LaunchState) -> None:
        """End ``launch`` at its next boundary."""
        every, now_s = launch.every, self._clock._now
        if launch.boundary_s == inf:
            # It has not started, or its latent moves: once it starts, it ends at its first boundary
            # (test_lookahead_runs_as_a_decision_at_every_step).
            launch.steps = min(every, launch.steps)
            return
        # Of two events of one instant the turns decide which sees the other
        # (test_tie_falls_as_with_a_decision_at_every_boundary). Who comes at a boundary of a batch joins there, whether
        # another request leaves there or not (test_requests_in_a_flat_batch_wait_for_the_next_boundary_alone).
        is_now = launch.boundary_at(now_s)
        steps, ends_s = launch.boundary, launch.boundary_s
        if is_now and not launch.joins and self._turns.of(launch) < self._turns.present:
            steps = min(steps + every, launch.progress.left)
            ends_s = launch.end_s(steps)
        if steps < launch.steps:
            self._end_at(launch, steps, ends_s)

    def _end_at(self, launch: LaunchState, steps: int, ends_s: float) -> None:
        """End ``launch``, which runs, after ``steps`` of its steps, at ``ends_s``."""
        now_s = self._clock._now
        if ends_s == now_s or launch.ends_s == now_s:
            self._ends_changed = True
        launch.steps, launch.ends_s = steps, ends_s
        if ends_s not in launch.calls:
            launch.calls[ends_s] = self._clock.at(ends_s, COMPLETION, self._due, launch)

    def withdraw(self, progress: Progress) -> None:
        launch = self._launches.get(progress) or self._in_batch_of.get(progress)
        if launch is not None and launch in self._queue:
            self._queue.remove(launch)
            self._wait_again(launch)

    def discard(self, progress: Progress, reason: str) -> None:
        if progress not in self._waiting:
            raise self._error(f"discards {progress!r}, which does not wait at a boundary")
        del self._waiting[progress]
        self._close(progress)
        self._free_reserved(progress)
        self._forget(progress)
        self._run.end(progress.request, DISCARDED, reason)

    def _service_gpus(self, progress: Progress, degree: int) -> int:
        return 0 if self._addons is None else self._addons.chosen_gpus(progress.request, degree)

    def _completed_steps(self, progress: Progress) -> int:
        """Return the steps of the launch of ``progress`` that ended by now; the last one ends with the launch."""
        launch = self._launches.get(progress) or self._in_batch_of[progress]
        behind = launch.steps_behind(self._clock._now)
        return behind if behind < launch.steps else launch.steps - 1

    def place(self, gpus: Sequence[int], components: Sequence[str]) -> None:
        for gpu in gpus:
            if not 0 <= gpu < len(self._gpus.claimed):
                raise self._error(f"places components on GPU {gpu}; expected 0 to {len(self._gpus.claimed) - 1}")
            self._placed[gpu] = components

    def decide_at(self, time_s: float) -> None:
        # After all events of that instant, and before _dispatch, which is scheduled only at the instant itself.
        self._clock.at(time_s, DISPATCH, self._tick)

    # -- events ------------------------------------------------------------------------------------------------------

    def offer(self, request: Request, now_s: float) -> None:
        self._arrive(request, now_s)

    def next(self, worker: Worker, now_s: float) -> None:
        """Return None: with a group policy no GPU pulls a request, since the policy decides what all of them run."""

    def accept(self, worker: Worker, request: Request) -> None:
        assert self._pulled is not None, "with a group policy, the engine's scheduler is this one, and gives none away"
        self._arrive(request, self._clock._now, worker)

    def _arrive(self, request: Request, now_s: float, worker: Worker | None = None) -> None:
        reason = "" if self._addons is None else self._addons.refusal(request)
        if reason:
            self._run.end(request, FAILED, reason)
            if worker is not None:
                self._run.cluster.release(worker)
            return
        made = HashedProgress if isinstance(request, HashedRequest) else Progress
        progress = made(request, self._submitted, self._stages_of(request), now_s, self.batching is not None)
        self._submitted += 1
        self._attempts[progress] = None
        self._enter_stage(progress)
        self._waiting[progress] = None
        if self._pulled is not None and worker is not None:
            self._pulled.workers[progress] = worker
        self._policy.arrived(progress, now_s)
        self._decide(now_s)

    def _enter_stage(self, progress: Progress) -> None:
        for known in self._known.values():
            known.enter_stage(progress)

    def _tick(self, _: None) -> None:
        self._decide(self._clock._now)

    def _decide(self, now_s: float) -> None:
        self._has_launched = False
        for launch in self._policy.decide(now_s):
            self._claim(launch)
            self._has_launched = True
        if self._void:
            self._end_void(now_s)
        self._lookahead.review()
        if self._queue:
            self._dispatch_later(now_s)

    def _dispatch_later(self, now_s: float) -> None:
        if not self._dispatch_due:
            self._dispatch_due = True
            # Once an instant, after all its events: a request that goes on because of a later event of the instant has
            # not paused (test_request_that_runs_on_at_a_tick_does_not_pause).
            self._clock.at(now_s, DISPATCH, self._dispatch)

    def _claim(self, decided: Launch) -> None:
        # Clients may give requests up, and those are dropped when their turn comes.
        if self._run.may_give_up and self._is_void(decided):
            return
        progress, gpus, steps, ahead, every, batch, service = decided
        try:
            del self._waiting[progress]
        except (KeyError, TypeError):
            raise self._error(
                f"launches {progress!r}, which does not wait at a boundary; launch requests of StageView.waiting"
            ) from None
        mask = self._gpus.known_mask(gpus) if isinstance(gpus, tuple) else 0
        mask = mask or self._mask(gpus, progress)
        if self._is_outside:
            self._check_degree(progress, gpus)
        if type(steps) is not int or not 1 <= steps <= progress.left:
            raise self._error(f"launches {steps!r} steps of {progress!r}; expected 1 to {progress.left}")
        self._gpus.claimed.add(gpus, 1)
        if service or self._addons is not None:
            mask |= self._claim_service(progress, gpus, service)
        needed, last = mask, progress.group
        if last is not None and last.gpus != gpus and self._moves_block:
            # A blocking move holds the old GPUs too, so what yields there is interrupted as well
            # (test_tie_falls_as_with_a_decision_at_every_boundary).
            needed |= self._gpus.mask_there(last.gpus)  # a GPU that is away is not waited for
        launch = self._launches[progress] = LaunchState(progress, gpus, mask, needed, steps, every, batch, service)
        launch.goes_on = progress is self._ending
        launch.joins = progress.stage.max_batch > 1 and progress.batch_key is not None
        if batch != ():
            self._claim_batch(launch)
        # A decision made before the boundary was on its way during the last step
        # (test_every_reference_table_is_equal_request_by_request).
        if self.launch_s and not ahead:
            launch.earliest_s = self._clock._now + self.launch_s
        self._enqueue(launch)

    def _check_degree(self, progress: Progress, gpus: tuple[int, ...]) -> None:
        degrees = self._known[self._run.cluster.group(gpus).gpu.name].degrees(progress)
        if len(gpus) not in degrees:
            raise self._error(
                f"launches {progress!r} on {len(gpus)} GPUs; expected {', '.join(map(str, degrees))} of them "
                "(StageView.degrees)"
            )

    def _claim_service(self, progress: Progress, gpus: tuple[int, ...], service: tuple[int, ...]) -> int:
        """Claim the GPUs ``service`` of ControlNets; return their bits. Raises SimulationError if they are wrong."""
        expected = self._service_gpus(progress, len(gpus)) if progress.stage.denoises else 0
        if not isinstance(service, tuple) or len(service) != expected:
            raise self._error(
                f"launches {progress!r} on {len(gpus)} GPUs with the GPUs {service!r} for its ControlNets; expected a "
                f"tuple of {expected} (StageView.service_gpus)"
            )
        if not service:
            return 0
        self._mask(gpus + service, progress)
        self._gpus.claimed.add(service, 1)
        return self._gpus.mask(service)

    def _claim_batch(self, launch: LaunchState) -> None:
        """Take the other requests of a batch. Raises SimulationError if they cannot run with the first."""
        progress = launch.progress
        if not isinstance(launch.batch, tuple):
            raise self._error(f"launches {progress!r} with the batch {launch.batch!r}; expected a tuple of requests")
        for other in launch.batch:
            try:
                del self._waiting[other]
            except (KeyError, TypeError):
                raise self._error(f"launches {other!r} in a batch, which does not wait at a boundary") from None
            if progress.batch_key is None or progress.batch_key != other.batch_key:
                raise self._error(
                    f"launches {other!r} in a batch with {progress!r}; expected the same model, size and stage, of a "
                    "denoiser, both or none from an image, and no ControlNets and LoRAs (Progress.batch_key)"
                )
            if launch.steps > other.left:
                raise self._error(f"launches {launch.steps} steps of {other!r} in a batch; expected 1 to {other.left}")
            self._in_batch_of[other] = launch
            if self._moves_block and other.group is not None:
                launch.needed |= self._gpus.mask_there(other.group.gpus)
        if launch.joins and len(launch.requests()) > progress.stage.max_batch:
            raise self._error(
                f"launches {len(launch.requests())} requests with {progress!r}; expected {progress.stage.max_batch} at "
                "most (Stage.max_batch)"
            )

    def _enqueue(self, launch: LaunchState) -> None:
        """Queue ``launch`` for its start, after what was decided before and before what will be at this instant."""
        self._turns.queue(launch)
        self._queue.append(launch)
        self._lookahead.yield_gpus(launch.needed)

    def _error(self, what: str) -> SimulationError:
        return SimulationError(f"the group policy ({class_name(self._policy)}) {what}")

    def _mask(self, gpus: tuple[int, ...], progress: Progress) -> int:
        """Return the bits of ``gpus``. Raises SimulationError if they are no group of the cluster's GPUs."""
        count = len(self._gpus.claimed)
        is_group = isinstance(gpus, tuple) and gpus and len(set(gpus)) == len(gpus)
        if not is_group or not all(type(gpu) is int and 0 <= gpu < count for gpu in gpus):
            raise self._error(
                f"launches {progress!r} on the GPUs {gpus!r}; expected a tuple of different numbers from 0 to "
                f"{count - 1}"
            )
        if len(self._known) > 1 and len({self._run.cluster.group((gpu,)).gpu for gpu in gpus}) > 1:
            raise self._error(f"launches {progress!r} on the GPUs {gpus!r}, which are of several kinds")
        return self._gpus.mask(gpus)

    def _dispatch(self, _: None) -> None:
        """Start what can start, until the policy decides nothing more that can."""
        now_s = self._clock._now
        while True:
            started = False
            kept: list[LaunchState] = []
            for launch in self._queue:
                # A launch whose GPUs are busy does not hold up those decided after it.
                if self._start(launch, now_s):
                    started = True
                else:
                    kept.append(launch)
            self._queue = kept
            if not started:
                break
            # Starts claim, move and pause: the policy sees them at the instant at which they happen
            # (test_run_of_steps_yields_a_gpu_that_another_launch_waits_for).
            self._decide(now_s)
            if not self._has_launched:
                break
        self._dispatch_due = False
        for launch in self._queue:
            # What started just now may stand in the way of what did not
            # (test_tie_falls_as_with_a_decision_at_every_boundary).
            self._lookahead.yield_gpus(launch.needed)
        for progress in self._at_boundary:
            # Last, when it is known who went on at this instant
            # (test_lookahead_runs_as_a_decision_at_every_step).
            if not progress.running:
                self._pause(progress)
        self._at_boundary.clear()

    def _start(self, launch: LaunchState, now_s: float) -> bool:
        """Start ``launch`` if its GPUs are idle, after a move of its latent if that takes time."""
        if not self._gpus.are_idle(launch.mask):
            return False
        progress, last = launch.progress, launch.progress.group
        group = launch.group or self._run.cluster.group(launch.gpus)
        launch.group = group
        moves = self._moves.needed(launch.requests(), group) if self._moves_take_time and not launch.is_moved else ()
        if moves and self._moves_block:
            return self._move(launch, group, moves, now_s)
        # Before it takes its GPUs: a launch that waits for service GPUs holds no others
        # (test_launch_waits_for_service_gpus_that_another_request_holds).
        if last is not None and last is not group:
            self._free_reserved(progress)
        if self._addons is not None and not self._addons.reserve(progress, group, launch.service):
            return False
        self._gpus.start(launch.mask)
        if self._pulled is None:  # else the scheduler took the worker
            self._run.cluster.occupy(group, 1 + len(launch.batch))
        before = self._attempts[progress]
        if before is not None and (before.group is not group or before.index != progress.index or launch.batch):
            self._close(progress)
        if self._account.batch_runs:
            self._end_runs(launch, group)
        # It waited, so it goes before all that pass a boundary now
        # (test_launch_that_waited_goes_before_those_decided_at_its_start).
        if launch.dispatched_s < now_s:
            self._turns.pass_boundaries()
        launch.dispatched_s = now_s
        if self._at_boundary and (last is not group or launch.batch or self._addons is not None):
            self._take_gpus(launch, group)
        self._close_all(launch.batch, not launch.joins)
        # It may have waited for its GPUs longer than ``launch_s``
        # (test_every_reference_table_is_equal_request_by_request).
        from_s, ready_s = max(now_s, launch.earliest_s), 0.0
        for member in launch.requests():
            self._begin(member, group, from_s, now_s)
            # Before ``group`` is written: a request without one fetches its artifact
            # (test_artifact_is_fetched_after_the_model_is_loaded_and_once).
            ready_s += self._preparation.seconds(member, launch, group, from_s + ready_s)
            write(member, "group", group)
            write(member, "running", True)
        launch.begin_s = from_s + ready_s
        if moves:
            # Each latent left at the end of its own last launch; loads go on meanwhile
            # (test_latents_of_a_batch_move_to_its_group).
            launch.begin_s = max(launch.begin_s, *(member.paused_since_s + seconds for member, seconds in moves))
        if launch.begin_s > now_s:
            self._close_all(launch.requests())
        self._schedule_end(launch, group)
        return True

    def _close_all(self, requests: Sequence[Progress], and_runs: bool = True) -> None:
        """Record the attempts of ``requests``, and their runs in batches."""
        for progress in requests:
            if and_runs or self._attempts[progress] is not None:
                self._close(progress)

    def _end_runs(self, launch: LaunchState, group: Worker) -> None:
        """Record the runs in batches that do not go on with ``launch`` on ``group``."""
        for member in launch.requests():
            run = self._account.batch_runs.get(member)
            if run is not None and (run.group is not group or run.index != member.index):
                self._account.end_run(member)

    def _take_gpus(self, launch: LaunchState, group: Worker) -> None:
        """Take ``group`` from the requests at a boundary that ran there, for ``launch``, which starts."""
        is_new = launch.progress.group is not group or launch.batch
        for other in self._at_boundary_on(launch.mask, launch.progress):
            # The usage log takes the times of a GPU in order, so what ran there is recorded first
            # (test_component_is_loaded_after_the_stage_of_another_request). In a batch that requests join, it is.
            if is_new and not (launch.joins and self._in_batch_of.get(other) is launch):
                self._close(other)
            # Else LoRAs that it waits for would count as merged there
            # (test_lookahead_with_asynchronous_loras_runs_as_a_decision_at_every_step).
            if self._addons is not None:
                self._addons.lora_loading.request_paused(other.request)

    def _schedule_end(self, launch: LaunchState, group: Worker) -> None:
        """Run ``launch`` to its end, as a part of its request's attempt."""
        progress = launch.progress
        if self._live is not None:
            self._live.begin(launch)
        # The machine takes the true cost, the attempt keeps what was believed
        # (test_wrong_estimates_change_decisions_and_not_costs).
        launch.cost = cost = self._true_cost(launch, group)
        attempt = self._attempts[progress]
        if attempt is None:
            is_believed = self._are_exact or self.estimates is None
            estimate = None if is_believed else self._estimated_cost(launch, group)
            attempt = Attempt(group, progress.index, progress.done, launch.begin_s, cost, estimate)
            if not launch.joins:
                self._attempts[progress] = attempt
        elif not launch.goes_on:
            attempt.counted_s, attempt.counted_done = launch.begin_s, progress.done
        attempt.cost = cost  # on a live backend what its steps took changes
        launch.attempt, launch.steps_from_s, launch.done = attempt, attempt.counted_s, progress.done
        is_delayed = self._addons is not None and self._addons.may_delay(progress)
        if cost.first_s:
            # Text encoding belongs to the first step but has no boundary: steps count from its end.
            alone_s = cost.first_s * (not attempt.counted_done)
            launch.steps_from_s += cost.encode_s(launch.requests()) if launch.batch else alone_s
        # With unequal steps, the order of boundaries at one instant depends on all before.
        is_last_stage = progress.index + 1 == len(progress.stages)
        # If any step may be delayed, nobody knows the boundaries ahead.
        if self._looks_ahead and is_last_stage and not (cost.ends or launch.batch or is_delayed):
            self._lookahead.start(launch)
        self._end_at(launch, launch.steps, launch.end_s(launch.steps))
        launch.boundary_s = -inf  # it is found when it is asked for
        if launch.steps_from_s > self._clock._now and launch in self._turns.standing:
            # Only its turn at its first boundary counts the delay, so all that pass there are stamped
            # (test_lookahead_runs_as_a_decision_at_every_step).
            self._clock.at(launch.end_s(launch.every), INSERTION, self._turns.pass_boundaries)
        if is_delayed:
            self._delays.prepare_step(launch, 0)
        elif self._live is not None:
            self._live.go_on(launch, 1)

    def _begin(self, progress: Progress, group: Worker, from_s: float, now_s: float) -> None:
        """Count the begin of a launch on ``group``, and the pause and the move before it."""
        last = progress.group
        if last is None:
            progress.request.start_s = from_s
        elif last is not group:
            write(progress, "moves", progress.moves + 1)
            write(progress, "degree_changes", progress.degree_changes + (len(last.gpus) != len(group.gpus)))
        # A wait before the first launch is queueing, and is no pause.
        if progress.pauses and progress.paused_since_s < now_s and last is not None:
            write(progress, "paused_s", progress.paused_s + (now_s - progress.paused_since_s))

    def _estimated_cost(self, launch: LaunchState, group: Worker) -> StageCost:
        return self._known[group.gpu.name].cost(launch.progress, len(launch.gpus), others=launch.batch)

    def _true_cost(self, launch: LaunchState, group: Worker) -> StageCost:
        if self._are_exact:
            return self._estimated_cost(launch, group)
        progress, costs = launch.progress, self._known[group.gpu.name].costs
        return costs.cost(progress.request, progress.stage, len(launch.gpus), requests_of(launch.batch))

    def _move(self, launch: LaunchState, group: Worker, moves: Sequence[tuple[Progress, float]], now_s: float) -> bool:
        """Move latents to ``group``, one after another, if all their GPUs are idle; return False if not."""
        left = {gpu for member, _ in moves if member.group is not None for gpu in member.group.gpus}
        gpus = tuple(sorted({*group.gpus, *self._gpus.those_there(left)}))
        mask = self._gpus.known_mask(gpus) or self._mask(gpus, launch.progress)
        # Both ends of a copy are busy with it, so the move waits for all their GPUs.
        if not self._gpus.are_idle(mask):
            return False
        union = self._run.cluster.group(gpus)
        self._gpus.start(mask)
        self._run.cluster.occupy(union, 1 + len(launch.batch))
        launch.moving, launch.begin_s = union, max(now_s, launch.earliest_s)
        launch.moves = moves
        until_s = launch.begin_s + sum(seconds for _, seconds in moves)
        self._end_at(launch, launch.steps, until_s)
        return True

    def _moved(self, launch: LaunchState, union: Worker) -> None:
        from_s, now_s = launch.begin_s, self._clock._now
        self._gpus.end(union.gpus)
        self._run.cluster.vacate(union)
        launch.moving, launch.ends_s = None, inf
        launch.calls.clear()
        for progress, move_s in launch.moves:
            # The last one ends with the clock's call; the sum of their seconds may round differently.
            until_s = now_s if progress is launch.moves[-1][0] else from_s + move_s
            self._close(progress)
            self._account.move(progress, union, from_s, until_s)
            from_s = until_s
        # The latent is here: the GPUs that it left are of no account any more.
        launch.needed = launch.mask
        launch.is_moved, launch.earliest_s = True, now_s + self.launch_s
        if self._gpus.are_there(launch.gpus + launch.service):
            self._enqueue(launch)
        else:
            self._wait_again(launch)  # a GPU of it has left meanwhile
        self._decide(now_s)

    def _due(self, launch: LaunchState) -> None:
        """End the launches and moves that end now, in the order in which their last steps began.

        While a policy that decides before the release launches more at each decision, launches that pass a boundary
        take their turns for one, too.
        """
        now_s, turns = self._clock._now, self._turns
        if launch.ends_s != now_s:
            return  # it goes on, or ended
        self._has_launched = False
        ready: list[LaunchState] = []
        self._ends_changed = True
        while True:
            # In their turns, not in the order of the clock's calls, which tells when they started: a launch of many
            # steps started long before its last boundary (test_tie_falls_as_with_a_decision_at_every_boundary).
            if self._ends_changed or self._policy.decides_before_release:
                ready = [launch for launch in self._launches.values() if launch.ends_s == now_s]
                # Such a policy may launch onto what a passing boundary would free; after a decision that launched
                # nothing, the next boundary of the instant decides the same.
                if self._has_launched and self._policy.decides_before_release:
                    ready += turns.passing_later()
                if len(ready) > 1:
                    ready.sort(key=turns.of, reverse=True)
                self._ends_changed = False
            if not ready:
                break
            first = ready.pop()
            turns.take(first)
            # It passes a boundary: the decision there is made without ending it.
            if first.ends_s > now_s:
                self._decide(now_s)
                continue
            if first.moving is not None:
                self._moved(first, first.moving)
            else:
                self._end(first)
        # What happens later in this instant comes after all boundaries
        # (test_tie_falls_as_with_a_decision_at_every_boundary).
        turns.end()

    def _end(self, launch: LaunchState) -> None:
        """End a launch at a step boundary: its GPUs are idle, and its request waits or has ended."""
        progress, group, now_s = launch.progress, launch.group, self._clock._now
        assert group is not None
        # First: a decision before the release must not have it run on.
        self._lookahead.forget(launch)
        # Such a rule sees the GPUs of the launch still claimed
        # (test_every_reference_table_is_equal_request_by_request).
        if self._policy.decides_before_release:
            self._decide(now_s)
        self._release(launch, group)
        attempt = launch.attempt
        attempt.until_s, attempt.steps = now_s, launch.done + launch.steps - attempt.done
        if launch.batch or launch.joins:
            self._account.attempt(launch.requests(), attempt, launch.joins)
            self._attempts[progress] = None
        elif not self._gpus.are_there(launch.gpus):
            self._close(progress)  # a GPU that leaves may load at once
        if self._live is not None and progress in self._live.failed:
            self._fail(progress, group, self._live.failed.pop(progress))
            return
        # Before the policy decides anew, with what was just learnt.
        if self._learns:
            self._known[group.gpu.name].observed(launch, now_s - launch.begin_s)
        for member in launch.requests():
            self._advance(member, group, launch.steps, now_s)
        self._ending = progress
        self._decide(now_s)
        self._ending = None

    def _fail(self, progress: Progress, group: Worker, reason: str) -> None:
        """End ``progress``, of which ``group`` could not run a step."""
        now_s, attempt = self._clock._now, self._attempts[progress]
        if attempt is not None and not attempt.steps:
            # Its text is encoded, if anything ran.
            self._account.lost(progress, attempt.cost, group, attempt.from_s, now_s)
            self._attempts[progress] = None
        write(progress, "running", False)
        self._drop(progress, group.gpus, reason)
        self._policy.at_boundary(progress, now_s)
        self._policy.ended(progress, now_s)
        self._decide(now_s)

    def _advance(self, progress: Progress, group: Worker, steps: int, now_s: float) -> None:
        """Count ``steps`` of a launch that ended: the request waits at a boundary, goes on, or has ended."""
        write(progress, "running", False)
        write(progress, "paused_since_s", now_s)
        stage = progress.stage
        # Before ``advance``, which enters the next stage: add-ons are freed with the stage that used them
        # (test_controlnets_that_do_not_stay_are_loaded_by_every_request).
        restoring = self._free_addons(progress, group, stage, True) if steps == progress.left else FREE
        is_last = advance(progress, steps)
        if progress.stage is not stage:
            self._enter_stage(progress)
        held_s = 0.0
        if is_last:
            self._close(progress)
            if self._run.handling.holds_gpus:
                held_s = self._run.handling.answer_s(progress.request)
                self._gpus.hold(group.gpus)
            # INSERTION: without handling, answers still come after all ends of the instant.
            self._answers[progress] = self._clock.at(now_s + held_s, INSERTION, self._complete, progress)
        else:
            self._waiting[progress] = None
            self._at_boundary.append(progress)
            self._dispatch_later(now_s)
        if restoring.seconds:
            # GPUs that leave are off, or load another model.
            stay = self._gpus.those_there(group.gpus)
            self._restorations.start(progress.request, stay, now_s + held_s, restoring)
        self._policy.at_boundary(progress, now_s)

    # -- requests that their clients give up ---------------------------------------------------------------------------

    def stop(self, request: Request, now_s: float) -> None:
        """End the launch of ``request`` at its next boundary, where it is decided anew: that launch is void."""
        progress = next((progress for progress in self._attempts if progress.request is request), None)
        if progress is not None:
            self.interrupt(progress)

    def _is_void(self, decided: Launch) -> bool:
        """Return True if a client has given up a request of ``decided``, which then is no launch of anything."""
        given_up = [member for member in (decided.progress, *decided.batch) if self._run.is_given_up(member.request)]
        for progress in given_up:
            del self._waiting[progress]
        if given_up:
            self._void.append((decided, given_up))
        return bool(given_up)

    def _end_void(self, now_s: float) -> None:
        """End what the last decision launched in vain, after it: the policy may have been in the middle of it.

        The policy is told as of launches that are lost with a GPU. Of a batch, the other requests wait again.
        """
        # A worker that is freed here may pull a request, and that is decided at once.
        void, self._void = self._void, []
        for decided, given_up in void:
            for progress in given_up:
                self._drop(progress, decided.gpus)
            for progress in (decided.progress, *decided.batch):
                self._policy.at_boundary(progress, now_s)
            for progress in given_up:
                self._policy.ended(progress, now_s)
        self._clock.at(now_s, DISPATCH, self._tick)

    def _drop(self, progress: Progress, gpus: tuple[int, ...], reason: str = GIVEN_UP) -> None:
        """End ``progress``, which was launched on ``gpus``, as failed: its client gave it up, or for another reason."""
        if progress in self._at_boundary:
            self._at_boundary.remove(progress)
        self._close(progress)
        self._free_reserved(progress)
        self._forget(progress)
        for name, value in (("left", 0), ("group", self._run.cluster.group(gpus))):
            write(progress, name, value)
        self._run.end(progress.request, FAILED, reason)
        if self._pulled is not None:
            self._restorations.release(self._pulled.workers.pop(progress))

    def _release(self, launch: LaunchState, on: Worker) -> None:
        """Free the GPUs of ``launch``, which ended ``on`` its group, or on that of its move."""
        launch.ends_s = inf
        for ends_s, call in launch.calls.items():
            if ends_s > self._clock._now:
                self._clock.cancel(call)
        self._gpus.end(on.gpus)
        if self._pulled is None:
            self._run.cluster.vacate(on)
        if self._addons is not None and launch.service and launch.moving is None:
            self._gpus.end(launch.service)
            is_last = launch.steps == launch.progress.left
            watts = launch.cost.watts / len(launch.gpus)
            gpu_s = self._addons.end_service(launch.progress, watts, is_last, self._clock._now)
            self._account.add(launch.progress, "gpu_s", gpu_s)
        self._unclaim(launch)

    def _unclaim(self, launch: LaunchState) -> None:
        """Give up the GPUs of ``launch``, and forget it."""
        self._gpus.claimed.add(launch.gpus, -1)
        if launch.service:
            self._gpus.claimed.add(launch.service, -1)
        del self._launches[launch.progress]
        for other in launch.batch:
            del self._in_batch_of[other]

    def _complete(self, progress: Progress) -> None:
        """End the request, whose last stage has run; its answer may come later."""
        handling, group = self._run.handling, progress.group
        assert group is not None
        del self._answers[progress]
        if handling.holds_gpus:
            self._gpus.unhold(group.gpus)
        self._forget(progress)
        if self.feature_cache is not None:
            costs = self._known[group.gpu.name].costs
            self._reused[progress.request.row] = costs.reused_share(progress.request)
        self._account.complete(progress)
        self._run.end(progress.request)
        if self._pulled is not None:
            self._restorations.release(self._pulled.workers.pop(progress))
        if handling.has_after and handling.overlap and self._policy.acts_on_answers:
            answered_s = self._clock._now + handling.answer_s(progress.request)
            self._clock.at(answered_s, INSERTION, self._tell, progress)
        else:
            self._tell(progress)

    def _tell(self, progress: Progress) -> None:
        """Tell the policy of the end of a request."""
        now_s = self._clock._now
        self._policy.ended(progress, now_s)
        self._decide(now_s)

    def _pause(self, progress: Progress) -> None:
        """Count a boundary after which ``progress`` does not run on at once, and end its attempt."""
        write(progress, "pauses", progress.pauses + 1)
        self._close(progress)
        self._free_reserved(progress)

    def _free_reserved(self, progress: Progress) -> None:
        """Free what its last launch reserved, which no other one follows."""
        if progress.request.addons is not None and progress.group is not None:
            self._free_addons(progress, progress.group, progress.stage, False)
            if self._queue:
                self._dispatch_later(self._clock._now)

    def _free_addons(self, progress: Progress, group: Worker, stage: Stage, is_last: bool) -> Cost:
        """Free the add-ons of launches of ``stage`` on ``group``, which ended; ``is_last`` if no step of it is left.

        Returns:
            The cost of restoring the weights of a GPU of ``group``.
        """
        if self._addons is None or not stage.denoises:
            return FREE
        costs, degree = self._known[group.gpu.name].costs, len(group.gpus)
        watts = costs.cost(progress.request, stage, degree).watts / degree
        gpu_s, restoring = self._addons.free(progress, group, watts, is_last, self._clock._now)
        self._account.add(progress, "gpu_s", gpu_s)
        return restoring

    def _close_at(self, mask: int, but: Progress | None = None) -> None:
        """Close the attempts at a boundary on the GPUs of ``mask``, without that of ``but``.

        Something else is about to be recorded there.
        """
        for progress in self._at_boundary_on(mask, but):
            self._close(progress)

    def _at_boundary_on(self, mask: int, but: Progress | None) -> list[Progress]:
        """Return the requests at a boundary on the GPUs of ``mask``, without ``but``."""
        known_mask, others = self._gpus.known_mask, []
        for progress in self._at_boundary:
            last = progress.group
            if last is not None and mask & known_mask(last.gpus) and progress is not but and not progress.running:
                others.append(progress)
        return others

    def _close_before(self, launch: LaunchState) -> None:
        """Close the attempts on the GPUs of ``launch``, its own among them, before a load there is recorded."""
        self._close(launch.progress)
        self._close_at(launch.mask, launch.progress)

    def _close(self, progress: Progress) -> None:
        """Record the attempt of ``progress``, if it has one."""
        attempt = self._attempts.get(progress)
        if attempt is not None:
            self._account.attempt((progress,), attempt)
            self._attempts[progress] = None
        elif progress in self._account.batch_runs:
            self._account.end_run(progress)

    def _forget(self, progress: Progress) -> None:
        """Forget a request that leaves."""
        del self._attempts[progress]
        for known in self._known.values():
            known.forget(progress)
        if self._live is not None:
            self._live.costs.forget(progress.request.row)

    # -- GPUs that come and go -----------------------------------------------------------------------------------------

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        """Keep a GPU that is not open from new launches, as one that holds it would, until it is back."""
        gpu, is_away = worker.id, not worker.open
        # The cluster tells of every change, also of those within an outage: a failure during the load after a repair.
        # A scheduler that gives requests to workers asks whether they are open.
        if is_away == self._gpus.is_away(gpu) or self._pulled is not None:
            return
        if is_away:
            self._gpus.leave(gpu)
            if worker.state != DOWN or self._policy.follows_gpus:
                self._leave(gpu)
            self._decide(now_s)
        else:
            # After all turns of the instant, whenever the clock was asked to end them and the load
            # (test_lookahead_beside_gpus_that_go_runs_as_a_decision_at_every_step).
            self._clock.at(now_s, INSERTION, self._back, worker)

    def _back(self, worker: Worker) -> None:
        """Let launches take ``worker`` again."""
        if worker.open and self._gpus.is_away(worker.id):
            self._gpus.come_back(worker.id)
            self._decide(self._clock._now)

    def _leave(self, gpu: int) -> None:
        """Let requests that were to run on ``gpu`` wait again, and what runs there end where it is decided anew."""
        self._end_passing(gpu)
        for launch in [launch for launch in self._queue if launch.mask >> gpu & 1]:
            self._queue.remove(launch)
            self._wait_again(launch)
        self._close_at(1 << gpu)  # it may load at once
        self._lookahead.yield_gpus(1 << gpu)

    def _end_passing(self, gpu: int) -> None:
        """End the launches on ``gpu`` that pass a boundary now: decided at every step, they would have ended.

        An event outside the turns of an instant comes after them.
        """
        now_s, turns = self._clock._now, self._turns
        for launch in [launch for launch in turns.standing if launch.mask >> gpu & 1]:
            if launch.boundary_at(now_s) and launch.boundary < launch.steps:
                turns.pass_boundaries()
                launch.steps, launch.ends_s = launch.boundary, now_s
                self._end(launch)

    def _wait_again(self, launch: LaunchState) -> None:
        """Give up ``launch``, which has not started, and let its requests wait."""
        self._unclaim(launch)
        for progress in launch.requests():
            if launch.is_moved:
                write(progress, "group", launch.group)
            self._waiting[progress] = None
            self._policy.at_boundary(progress, self._clock._now)

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        """End the launch on ``worker``, which fails, and restart the requests at a boundary with their latent there.

        Launches that have not started there stay queued, until ``worker_changed`` tells that the GPU is down.
        """
        lost: list[Request] = []
        self._restorations.lose(worker, now_s)
        self._end_passing(worker.id)
        for launch in list(self._launches.values()):
            on = launch.moving or launch.group
            if self._pulled is not None and launch.ends_s == inf and worker.id in launch.gpus:
                self._queue.remove(launch)
                launch.begin_s = now_s
                self._lose(launch, worker, now_s)
                lost.append(launch.progress.request)
                continue
            if launch.ends_s < inf and on is not None:
                if worker.id in on.gpus or (launch.moving is None and worker.id in launch.service):
                    self._lose(launch, on, now_s)
                    lost += [progress.request for progress in launch.requests()]
                continue
            # A list, not a generator: any() would stop at the first, and the others would go on without a latent
            # (test_failed_gpu_loses_all_latents_that_moved_there).
            restarted = [
                self._restart(progress, launch.group if launch.is_moved else progress.group, worker, now_s)
                for progress in launch.requests()
            ]
            if any(restarted):
                launch.is_moved = False
                self._split_batch(launch)
        for progress in self._waiting:
            if self._restart(progress, progress.group, worker, now_s):
                self._policy.restarted(progress, now_s)
        if self._pulled is not None:
            lost += self._lose_answers(worker)
        elif lost:
            self._run.cluster.occupy(worker, len(lost))  # it counts as running what it lost, until it is down
        if self._addons is not None:
            self._addons.lose(lost, worker)
        self._preparation.lose(worker.id)
        return lost

    def _lose_answers(self, worker: Worker) -> list[Request]:
        """Lose the requests that ran on ``worker``, which still waits with them for their answers."""
        assert self._pulled is not None
        lost = [progress for progress, on in self._pulled.workers.items() if on is worker and progress in self._answers]
        for progress in lost:
            self._clock.cancel(self._answers.pop(progress))
            if self._run.handling.holds_gpus:
                self._gpus.unhold(worker.gpus)
            self._account.restart(progress)
            self._forget(progress)
            del self._pulled.workers[progress]
        return [progress.request for progress in lost]

    def _lose(self, launch: LaunchState, on: Worker, now_s: float) -> None:
        """End a launch, or the move before it, whose GPUs ``on`` have one that fails; its requests are lost."""
        from_s = launch.begin_s
        self._lookahead.forget(launch)
        self._release(launch, on)
        for progress in launch.requests():
            attempt = self._attempts[progress]
            if launch.moving is not None:
                self._close(progress)
            elif attempt is not None:
                from_s = attempt.from_s
            else:
                self._close(progress)  # its run in the batch up to this launch
            # Loads are recorded ahead; the failure ends them now (test_load_that_a_failure_ends_is_busy_up_to_then).
            self._run.cluster.cut_short(on)
            self._account.lost(progress, launch.cost if on is progress.group else None, on, from_s, now_s)
            if on is progress.group:  # else it moved
                self._free_addons(progress, on, progress.stage, False)
            self._account.restart(progress)
            from_s = now_s  # the GPUs' time is recorded once
            for name, value in (("running", False), ("left", 0), ("group", launch.group)):
                write(progress, name, value)
            self._forget(progress)
            if self._pulled is not None:
                del self._pulled.workers[progress]
            self._policy.at_boundary(progress, now_s)
            self._policy.ended(progress, now_s)

    def _restart(self, progress: Progress, at: Worker | None, worker: Worker, now_s: float) -> bool:
        """Restart ``progress``, which does not run, if its latent is ``at`` GPUs with ``worker``; return True then."""
        if at is None or worker.id not in at.gpus:
            return False
        self._close(progress)
        self._free_reserved(progress)
        restart(progress, now_s)
        self._enter_stage(progress)
        self._account.restart(progress)
        return True

    def _split_batch(self, launch: LaunchState) -> None:
        """Take requests that are no longer at the stage of the first out of ``launch``, which has not started."""
        key = launch.progress.batch_key
        parted = [member for member in launch.batch if key is None or member.batch_key != key]
        launch.batch = tuple(member for member in launch.batch if member not in parted)
        launch.steps = min(launch.steps, *(member.left for member in launch.requests()))
        for member in parted:
            del self._in_batch_of[member]
            self._waiting[member] = None
            self._policy.at_boundary(member, self._clock._now)

    def stranded(self) -> list[tuple[Request, str]]:
        left = [*self._waiting, *(progress for launch in self._queue for progress in launch.requests())]
        served = {in_role(self._run.models, worker.role).name for worker in self._run.cluster.workers}
        for request in (progress.request for progress in left):
            if request.model not in served:
                raise ConfigError(
                    f"controller: no GPU is left in a role with {request.model}, which the request in row "
                    f"{request.row} waits for under the group policy; leave one, or choose controller=none"
                )
        self._waiting.clear()
        self._queue.clear()
        why = f"{class_name(self._policy)} never launched it again"
        return [(progress.request, why) for progress in left]
