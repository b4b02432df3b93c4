"""What an executor does first: see that the model of a request is on its worker."""

from backends.base import Asset, Cost
from sim.errors import SimulationError
from sim.parts import Run, Worker
from sim.request import Request

NOTHING = Cost(0.0)


def ensure(run: Run, worker: Worker, request: Request) -> Cost:
    """Put the model of ``request`` on ``worker``, if another is there; what that costs, to be spent by the caller.

    Raises SimulationError where nothing is planned, or others are aboard that the present model serves.
    """
    model = request.model
    if model is None:
        raise SimulationError(f"request in row {request.row} is to be run and its plan names no model")
    if worker.model == model:
        return NOTHING
    if worker.aboard > 1:
        raise SimulationError(
            f"a request for {model} (row {request.row}) was given to worker {worker.id} while others aboard run on "
            f"{worker.model}; a scheduler must keep models apart"
        )
    run.cluster.install(worker, model)
    return run.backend.load(Asset("model", model, model))
