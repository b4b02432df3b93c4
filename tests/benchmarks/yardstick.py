"""Yardstick of the machine's present speed: a queue of four servers in plain SimPy, which never changes.

A shared machine is at half its speed for minutes at a time. So the yardstick is measured beside each benchmark, and the
page states what the code would reach on the machine that the budgets were set on.
"""

import random
import time
from collections.abc import Generator
from typing import Any

import simpy

AT_BUDGETS = 78_000
"""Customers per CPU-second on the machine that the budgets were set on."""

CUSTOMERS = 20_000


def customers_per_cpu_s(customers: int = CUSTOMERS) -> float:
    """Return the customers of an M/M/4 queue served per CPU-second, each a SimPy process that requests a Resource."""
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
