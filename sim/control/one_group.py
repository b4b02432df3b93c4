"""Controller that makes all GPUs one worker group."""

from dataclasses import dataclass

from sim.core.gpu import check_one_kind
from sim.protocols import Controller, Run


@dataclass(slots=True)
class OneGroup(Controller):
    """Form one group of the whole cluster at the start (Distrifusion: all GPUs serve one request).

    Args:
        role: role of the group.
    """

    role: str = "large"

    def bind(self, run: Run) -> None:
        check_one_kind(run.cluster.kinds, "controller=one-group", "a group's GPUs are of", "add controller=none")
        workers = run.cluster.workers
        if len(workers) > 1:
            run.cluster.form_group(workers, self.role, 0.0)
