"""All GPUs serve every request together."""

from dataclasses import dataclass

from sim.protocols import Controller, Run


@dataclass(slots=True)
class OneGroup(Controller):
    """The whole cluster is one group from the start, in ``role``: Distrifusion serves one request at a time on all
    GPUs."""

    role: str = "large"

    def bind(self, run: Run) -> None:
        workers = run.cluster.workers
        if len(workers) > 1:
            run.cluster.form_group(workers, self.role, 0.0)
