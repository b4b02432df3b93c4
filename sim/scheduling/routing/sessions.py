"""Routing of streaming sessions: a session stays where its state is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Router, Run, Worker
from mezzotint.sim.scheduling.routing.lowest import LowestWorkers


@dataclass(slots=True)
class BySession(Router):
    """Send the first chunk of a session to the worker with the fewest sessions, the first of equals, and all others
    there.

    Its keys and values and those of its decoder stay on that GPU; moving them is not modelled. Raises ConfigError
    without streaming sessions.
    """

    _first: int = field(init=False, default=0, repr=False)
    _rows: int = field(init=False, default=0, repr=False)
    _chunks: int = field(init=False, default=0, repr=False)
    _worker_of: dict[int, Worker] = field(init=False, default_factory=dict, repr=False)
    _sessions: "Counter[Worker]" = field(init=False, default_factory=Counter, repr=False)
    _lowest: LowestWorkers = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        workload = run.workload
        self._first, self._rows, self._chunks = workload.preload, workload.rows, workload.max_tries
        if self._chunks == 1:
            raise ConfigError("router=by-session: found requests of one try; add client=streaming, or choose another")
        self._lowest = LowestWorkers(run, "first", lambda worker: (self._sessions[worker], worker.id))

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        session = (request.row - self._first) % self._rows
        worker = self._worker_of.get(session)
        if worker is None:
            worker = self._worker_of[session] = workers[self._lowest.among(workers).pick(None)]
            self._add(worker, 1)
        return worker

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        earlier, session = divmod(request.row - self._first, self._rows)
        if earlier + 1 == self._chunks:
            self._add(worker, -1)
            del self._worker_of[session]

    def _add(self, worker: Worker, sessions: int) -> None:
        self._sessions[worker] += sessions
        self._lowest.set(worker, (self._sessions[worker], worker.id))
