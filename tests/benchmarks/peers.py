"""One queue in other simulators and in ours, side by side: ``python -m tests.benchmarks.peers [--requests N]``.

The arrivals and service times of a vanilla run on 16 GPUs are replayed by plain SimPy processes and, where it is
installed, by Ciw (`pip install ciw`). All must end every request at the same time, so that what is compared is speed.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from mezzotint.sim.run.simulate import simulate
from tests.sim.lab import configured

GPUS, REQUESTS = 16, 100_000

Times = NDArray[np.float64]


def ours(requests: int) -> tuple[Times, Times, Times, float]:
    """Return arrivals, service times and ends of ``requests``, in seconds, and the CPU-seconds of the engine's run."""
    words = f"system=vanilla cluster.count={GPUS} arrivals.rate_rpm=8 trace.requests={requests} warmup=0"
    outcome = simulate(configured(*words.split()))
    rows, took_s = outcome.requests.to_pandas(), outcome.summary["wall"]["cpu_s"]
    services = rows["finish_s"] - rows["start_s"]
    return rows["arrival_s"].to_numpy(), services.to_numpy(), rows["finish_s"].to_numpy(), took_s


def by_simpy(arrivals: Times, services: Times) -> tuple[Times, float]:
    """Return the ends by a SimPy process for each request, and the CPU-seconds."""
    clock, ends = simpy.Environment(), np.zeros(len(arrivals))
    gpus = simpy.Resource(clock, GPUS)

    def request(row: int, service_s: float) -> Generator[simpy.Event, Any, None]:
        with gpus.request() as mine:
            yield mine
            yield clock.timeout(service_s)
            ends[row] = clock.now

    def source() -> Generator[simpy.Event, Any, None]:
        for row, (gap_s, service_s) in enumerate(zip(np.diff(arrivals, prepend=0.0), services, strict=True)):
            yield clock.timeout(gap_s)
            clock.process(request(row, service_s))

    clock.process(source())
    from_s = time.process_time()
    clock.run()
    return ends, time.process_time() - from_s


def by_ciw(arrivals: Times, services: Times) -> tuple[Times, float]:
    """Return the ends by Ciw, and the CPU-seconds. Raises ImportError if it is not installed."""
    ciw = importlib.import_module("ciw")
    taken = iter(services.tolist())

    class InTurn(ciw.dists.Distribution):  # type: ignore[misc, name-defined]
        def sample(self, t: Any = None, ind: Any = None) -> float:
            return next(taken)

    gaps = [*np.diff(arrivals, prepend=0.0).tolist(), float("inf")]
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential(gaps)],
        service_distributions=[InTurn()],
        number_of_servers=[GPUS],
    )
    queue = ciw.Simulation(network)
    from_s = time.process_time()
    queue.simulate_until_max_customers(len(arrivals))
    took_s = time.process_time() - from_s
    records = sorted(queue.get_all_records(), key=lambda record: record.id_number)
    return np.array([record.exit_date for record in records]), took_s


PEERS: dict[str, Callable[[Times, Times], tuple[Times, float]]] = {
    "SimPy, a process a request": by_simpy,
    "Ciw": by_ciw,
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--requests", metavar="N", type=int, default=REQUESTS, help="requests of the queue")
    for line in table(parser.parse_args().requests):
        print(line, flush=True)
    return 0


def table(requests: int = REQUESTS) -> Iterator[str]:
    """Yield the lines of a table in Markdown. Raises AssertionError if a peer ends a request at another time."""
    arrivals, services, ends, took_s = ours(requests)
    yield f"| {requests:,} requests on {GPUS} GPUs, 80 % busy | requests per CPU-second |"
    yield "|---|---:|"
    yield f"| Mezzotint, vanilla | {requests / took_s:,.0f} |"
    for name, replay in PEERS.items():
        try:
            its_ends, its_s = replay(arrivals, services)
        except ImportError:
            yield f"| {name} | not installed |"
            continue
        np.testing.assert_allclose(its_ends, ends, rtol=0, atol=1e-6, err_msg=name)
        yield f"| {name} | {requests / its_s:,.0f} |"


if __name__ == "__main__":
    sys.exit(main())
