"""Controller that puts all GPUs into worker groups at the start."""

from dataclasses import dataclass

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.protocols import Controller, Run


@dataclass(slots=True)
class OneGroup(Controller):
    """Form one group of the whole cluster at the start (Distrifusion: all GPUs serve one request), or equal groups.

    Args:
        role: role of the groups.
        degree: GPUs of a group, side by side from GPU 0 on; null is all GPUs.

    Raises ConfigError if the cluster's GPUs do not divide into groups of ``degree``.
    """

    role: str = "large"
    degree: Count | None = None

    def bind(self, run: Run) -> None:
        check_one_kind(run.cluster.kinds, "controller=one-group", "a group's GPUs are of", "add controller=none")
        workers = run.cluster.workers
        degree = self.degree or len(workers)
        if len(workers) % degree:
            raise ConfigError(
                f"controller.degree: found {degree}, and {len(workers)} GPUs do not divide into groups of {degree}; "
                "choose a divisor of the number of GPUs"
            )
        if degree > 1:
            for first in range(0, len(workers), degree):
                run.cluster.form_group(workers[first : first + degree], self.role, 0.0)
