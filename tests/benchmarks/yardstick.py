"""What this machine makes, in this minute, of a program that does not change: a queue of four servers in plain SimPy.

A shared machine is at half its speed for minutes at a time, and another machine is another machine. So the yardstick
is measured beside whatever is timed, and the page says what the same code would make where the budgets were set.
"""

import random
import time
from collections.abc import Generator
from typing import Any

import simpy

AT_BUDGETS = 78_000
"""Customers per CPU-second where the budgets were set."""

CUSTOMERS = 20_000


def customers_per_cpu_s(customers: int = CUSTOMERS) -> float:
    """Customers of an M/M/4 queue that one CPU-second serves, each of them a SimPy process that asks for a Resource."""
    clock, rng = simpy.Environment(), random.Random(0)
    servers = simpy.Resource(clock, 4)

    def customer() -> Generator[simpy.Event, Any, None]:
        with servers.request() as mine:
            yield mine
            yield clock.timeout(rng.expovariate(1 / 3.6))

    def source() -> Generator[simpy.Event, Any, None]:
        for _ in range(customers):
            yield clock.timeout(rng.expovariate(1.0))
            clock.process(customer())

    clock.process(source())
    from_s = time.process_time()
    clock.run()
    return customers / (time.process_time() - from_s)
