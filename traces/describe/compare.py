"""A real trace and a made-up one, statistic by statistic."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from conf.choice import choice
from conf.page import number, render
from traces.describe.coverage import CONFIDENCE

WITHIN = 0.10
"""Statistics that differ by no more than this share of the real one agree."""


@dataclass(frozen=True, slots=True)
class ComparedStatistic:
    """One statistic of two traces.

    Attributes:
        statistic: what it is, with its unit where it has one; shares are of all requests unless it says otherwise.
        real, synthetic: its values; NaN where a trace lacks what it takes.
        real_half, synthetic_half: half their 95 % intervals; NaN where none is known.
    """

    statistic: str
    real: float
    synthetic: float
    real_half: float
    synthetic_half: float

    @property
    def within(self) -> bool:
        """Whether both are known and differ by at most `WITHIN` of the real one."""
        return abs(self.synthetic - self.real) <= WITHIN * abs(self.real) + 1e-12

    def cells(self) -> tuple[str, ...]:
        """Return the row of the page; a dash stands for what is not known."""
        values = _value(self.real, self.real_half), _value(self.synthetic, self.synthetic_half)
        ratio = self.synthetic / self.real if self.real else math.nan
        return self.statistic, *values, "" if math.isnan(ratio) else f"{ratio:.2f}", "✓" if self.within else ""


def compare(real: Mapping[str, Any], synthetic: Sequence[Mapping[str, Any]]) -> list[ComparedStatistic]:
    """Return the statistics of conf/data/statistics.yaml that the real trace or the synthetic ones have, side by side.

    A value of the synthetic traces is their mean, where all have it. Of the coverage there are 95 % intervals: that of
    a mean follows from what the requests looked up leave open or, where it is more, from how far the traces lie apart.
    """
    known = pd.json_normalize([dict(one) for one in (real, *synthetic)])
    rows = []
    for statistic, path in choice("data", "statistics").items():
        found, *made = _column(known, path)
        half, *halves = _column(known, re.sub(r"^(coverage\.\w+)", r"\1_half", path) if "coverage." in path else "")
        mean, apart = float(np.mean(made)), CONFIDENCE**2 * np.var(made, ddof=1) if len(made) > 1 else 0.0
        if not (math.isnan(found) and math.isnan(mean)):
            both = math.sqrt(max(np.mean(np.square(halves)), apart) / len(made))
            rows.append(ComparedStatistic(statistic, found, mean, half, both))
    return rows


def _column(known: pd.DataFrame, path: str) -> list[float]:
    """A fact of each trace, NaN where it is unknown."""
    if path not in known:
        return [math.nan] * len(known)
    return pd.to_numeric(known[path]).astype(float).to_list()


def side_by_side(real: Mapping[str, Any], synthetic: Sequence[Mapping[str, Any]]) -> str:
    """Return a page of Markdown: what the traces are, and the statistics that the real one has beside the synthetic.

    A dash stands for what a trace does not tell, or for a value that is not among its most frequent; what follows ± is
    half a 95 % interval; what is within 10 % has a tick. The facts are those of `traces.describe.statistics.TraceStatistics`.
    """
    told = [row for row in compare(real, synthetic) if not math.isnan(row.real)]
    return render(
        "traces.describe",
        "compare.md.jinja",
        real=real,
        synthetic=synthetic,
        counts=sorted({int(one["requests"]) for one in synthetic}),
        close=sum(row.within for row in told),
        both=sum(not math.isnan(row.synthetic) for row in told),
        within=WITHIN,
        encoder=next((one["nearest"]["encoder"] for one in (real, *synthetic) if one["nearest"]), ""),
        rows=[row.cells() for row in told],
    )


def _value(value: float, half: float) -> str:
    """A number with four digits that count, or as many as half its interval leaves."""
    if math.isnan(value) or not half > 0:
        return f"{value:,.0f}" if abs(value) >= 1000 else number(None if math.isnan(value) else value)
    digits = max(0, 1 - math.floor(math.log10(half)))
    return f"{value:.{digits}f} ± {half:.{digits}f}"
