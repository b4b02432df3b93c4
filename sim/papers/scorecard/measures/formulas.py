"""Measures of finished runs as data: what a row of conf/data/scorecard.yaml reads from their summaries."""

from collections.abc import Callable
from itertools import product
from typing import Annotated, Any, Literal

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
        of: choices of the runs.
        over, below, minus: how other runs differ from them, null if not by this choice. The measure is then the number
            over that of the other runs, 1 - this ratio, or the difference of both.
        by: values of a choice, which give a number each; of several choices, each combination.
        take: the largest, the smallest or the mean of these numbers in place of all.
        exceeds: in place of the number, True if it is larger.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: str = ""
    per: str | None = None
    column: str | None = None
    largest: bool = False
    of: Choices = {}
    over: Choices | None = None
    below: Choices | None = None
    minus: Choices | None = None
    by: dict[str, list[str | int]] = {}
    take: Literal["max", "min", "mean"] | None = None
    exceeds: float | None = None

    def __call__(self, runs: Runs) -> Value:
        """Measure the number. Raises Unmeasured: a run failed, or lacks the number."""
        combinations: list[Choices] = [dict(zip(self.by, one, strict=True)) for one in product(*self.by.values())]
        numbers = [self._compare(runs, self.of | combination) for combination in combinations]
        if self.by and self.take is None:
            return numbers
        number = max(numbers) if self.take == "max" else min(numbers) if self.take == "min" else mean(numbers)
        return number if self.exceeds is None else number > self.exceeds

    def _compare(self, runs: Runs, choices: Choices) -> float:
        ours = self._mean(runs, choices)
        if self.over is not None:
            return ours / self._mean(runs, choices | self.over)
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
        return number if self.per is None else number / run.number(*self.per.split("."))


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


def hits(run: Finished) -> float:
    """Return hits over all requests of the measured window; a predicted miss counts as a miss."""
    return run.number("cache", "hits") / run.number("requests", "arrived")


def hit_rate(runs: Runs, **choices: str | int) -> float:
    """Return the mean of `hits` over the runs with these choices."""
    return mean([hits(run) for run in runs.where(**choices)])
