"""Measures of finished runs as data: what a row of conf/data/scorecard.yaml reads from their summaries."""

from collections.abc import Callable
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ImportString

from mezzotint.sim.papers.runs import Finished, Runs, mean
from mezzotint.sim.papers.scorecard.targets import Value
from mezzotint.sim.papers.scorecard.verdict import Alternatives

Choices = dict[str, str | int | None]
"""Choices of runs, by group or by the last part of a dotted key; `experiment` is the experiment's name."""

Imported = Annotated[ImportString[Callable[..., Any]], BeforeValidator(lambda name: f"{__package__}.{name}")]
"""A function of a module of this package, such as ``modm.fresh``."""


class Formula(BaseModel):
    """A number of each run with these choices, averaged over the runs.

    Attributes:
        value: dotted key of the number in the summary.
        per: dotted key of a number of the same run that divides it.
        column: in place of ``value``, a column of requests.parquet; its mean, or its largest value if ``largest``.
        complement: 1 - the number of each run.
        of: choices of the runs.
        over, below, minus: how other runs differ from them, null if not by this choice. The measure is then the number
            over that of the other runs (the largest of several), 1 - this ratio, or the difference of both.
        by: values of a choice, which give a number each; of several choices, each combination.
        take: the largest, the smallest or the mean of these numbers in place of all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: str = ""
    per: str | None = None
    column: str | None = None
    largest: bool = False
    complement: bool = False
    of: Choices = {}
    over: Choices | list[Choices] | None = None
    below: Choices | None = None
    minus: Choices | None = None
    by: dict[str, list[str | int]] = {}
    take: Literal["max", "min", "mean"] | None = None

    def __call__(self, runs: Runs) -> float | list[float]:
        """Measure the number. Raises Unmeasured: a run failed, or lacks the number."""
        combinations: list[Choices] = [dict(zip(self.by, one, strict=True)) for one in product(*self.by.values())]
        numbers = [self._compare(runs, self.of | combination) for combination in combinations]
        if self.by and self.take is None:
            return numbers
        return max(numbers) if self.take == "max" else min(numbers) if self.take == "min" else mean(numbers)

    def _compare(self, runs: Runs, choices: Choices) -> float:
        ours = self._mean(runs, choices)
        if self.over is not None:
            others = self.over if isinstance(self.over, list) else [self.over]
            return ours / max(self._mean(runs, choices | other) for other in others)
        if self.below is not None:
            return 1 - ours / self._mean(runs, choices | self.below)
        return ours if self.minus is None else ours - self._mean(runs, choices | self.minus)

    def _mean(self, runs: Runs, choices: Choices) -> float:
        chosen = {name: choice for name, choice in choices.items() if choice is not None}
        if (experiment := chosen.pop("experiment", None)) is not None:
            runs = runs.of([str(experiment)])
        return mean([self._read(run) for run in runs.where(**chosen)])

    def _read(self, run: Finished) -> float:
        if self.column is not None:
            values = run.requests(self.column)[self.column].drop_null().to_numpy()
            return float(values.max() if self.largest else values.mean())
        number = run.number(*self.value.split("."))
        if self.per is not None:
            number /= run.number(*self.per.split("."))
        return 1 - number if self.complement else number


class Ordering(BaseModel):
    """An ordering, true if the first formula of each pair gives a larger number than the second, one by one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    larger: list[tuple[Formula, Formula]]

    def __call__(self, runs: Runs) -> bool:
        """Measure the ordering. Raises Unmeasured: a run failed, or lacks a number."""
        return all(bool(np.greater(first(runs), second(runs)).all()) for first, second in self.larger)


class Function(BaseModel):
    """A measure that no formula states.

    Attributes:
        function: gets the runs, unless `runs` is False, and `arguments` (key ``with``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: Imported
    arguments: dict[str, Any] = Field({}, alias="with")
    runs: bool = True

    def __call__(self, runs: Runs) -> Value | Alternatives:
        """Measure the value. Raises Unmeasured: a run failed, or lacks what is measured."""
        measured: Value | Alternatives = self.function(*([runs] if self.runs else []), **self.arguments)
        return measured
