"""One group policy for each model, on the GPUs whose role is to serve it: roles on groups of GPUs that change."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from mezzotint.sim.core.model import in_role
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageCost, StageView


@dataclass(frozen=True, slots=True)
class RoleView:
    """What the policy of one model sees: its requests, with the GPUs of other roles as held by others.

    Args:
        view: what is seen of all models.
        serves: GPU -> True if its role is that of the model.
    """

    view: StageView
    model: str
    serves: Callable[[int], bool]

    @property
    def waiting(self) -> Mapping[Progress, None]:
        return {progress: None for progress in self.view.waiting if progress.request.model == self.model}

    @property
    def claimed(self) -> Sequence[int]:
        return [count + (not self.serves(gpu)) for gpu, count in enumerate(self.view.claimed)]

    @property
    def estimates_are_exact(self) -> bool:
        return self.view.estimates_are_exact

    def idle(self) -> list[int]:
        return [gpu for gpu in self.view.idle() if self.serves(gpu)]

    def degrees(self, progress: Progress) -> Sequence[int]:
        gpus = sum(map(self.serves, range(len(self.view.claimed))))
        return [degree for degree in self.view.degrees(progress) if degree <= max(1, gpus)]

    def cost(self, progress: Progress, degree: int, stage: Stage | None = None, batch: int = 1) -> StageCost:
        return self.view.cost(progress, degree, stage, batch)

    def remaining_s(self, progress: Progress, degree: int) -> float:
        return self.view.remaining_s(progress, degree)

    def interrupt(self, progress: Progress) -> None:
        self.view.interrupt(progress)

    def ask_again(self) -> None:
        """Do nothing: `ByRole` decides at every boundary."""

    def place(self, gpus: Sequence[int], components: Sequence[str]) -> None:
        self.view.place(gpus, components)

    def discard(self, progress: Progress, reason: str) -> None:
        self.view.discard(progress, reason)

    def decide_at(self, time_s: float) -> None:
        self.view.decide_at(time_s)


@dataclass(slots=True)
class ByRole(GroupPolicy):
    """Run each request on GPUs whose role is its model, as a policy of its model alone decides.

    A GPU that is ordered to another role takes no launch more. It loads once the launch on it has ended, at the
    boundary that its policy chose: the next step, or the end of the request. Requests that were to follow wait again.

    Args:
        policy: the policy of each model, each with its own state. It must take GPUs by ``StageView`` alone
            (``GroupPolicy.follows_gpus``).
    """

    policy: GroupPolicy
    decides_before_release: bool = field(init=False)
    acts_on_answers: bool = field(init=False)
    follows_gpus: bool = field(init=False, default=True, repr=False)
    _policies: dict[str | None, GroupPolicy] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.decides_before_release = self.policy.decides_before_release
        self.acts_on_answers = self.policy.acts_on_answers

    def bind(self, run: Run, view: StageView) -> None:
        workers: list[Worker] = [run.cluster.group((gpu,)) for gpu in range(len(view.claimed))]
        for model in {model.name: None for model in run.models.values()}:

            def serves(gpu: int, model: str = model) -> bool:
                return in_role(run.models, workers[gpu].role).name == model

            policy = self._policies[model] = deepcopy(self.policy)
            policy.bind(run, RoleView(view, model, serves))

    def _of(self, progress: Progress) -> GroupPolicy:
        return self._policies[progress.request.model]

    def arrived(self, progress: Progress, now_s: float) -> None:
        self._of(progress).arrived(progress, now_s)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self._of(progress).at_boundary(progress, now_s)

    def ended(self, progress: Progress, now_s: float) -> None:
        self._of(progress).ended(progress, now_s)

    def restarted(self, progress: Progress, now_s: float) -> None:
        self._of(progress).restarted(progress, now_s)

    def decide(self, now_s: float) -> Iterator[Launch]:
        for policy in self._policies.values():
            yield from policy.decide(now_s)
