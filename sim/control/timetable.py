"""Timetable of splits: the number of GPUs in each role, from given times on."""

from collections.abc import Generator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import simpy

from mezzotint.sim.control.roles import RoleController, apply_split
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import in_role
from mezzotint.sim.protocols import Run


@dataclass(slots=True)
class Timetable(RoleController):
    """Follow splits planned beforehand: a day's shape, or the best splits in hindsight.

    Args:
        at: seconds of the run -> role -> GPUs, which add up to the cluster. At each time workers are ordered to change
            roles (mezzotint.sim.control.roles.apply_split).
    """

    at: dict[float, dict[str, int]]
    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        for time_s, split in self.at.items():
            if not 0 <= time_s < inf or min(split.values(), default=-1) < 0 or sum(split.values()) != run.cluster.gpus:
                raise ConfigError(
                    f"controller.at: found {{{time_s}: {split}}}; expected 0 or more seconds and GPUs by role that add "
                    f"up to the cluster's {run.cluster.gpus}"
                )
            for role in split:
                in_role(run.models, role)
        run.process(self._follow())

    def _follow(self) -> Generator[simpy.Event, Any, None]:
        for time_s in sorted(self.at):
            yield self._run.clock.sleep_until(time_s)
            self._run.log_decision("split", **self.at[time_s])
            apply_split(self._run.cluster, self.at[time_s], self._run.clock.now)
