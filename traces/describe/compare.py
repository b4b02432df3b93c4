"""Compare a real trace with synthetic ones, statistic by statistic."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mezzotint.figures.page import number, render
from mezzotint.settings.choice import choice
from mezzotint.traces.describe.prompts.coverage import CONFIDENCE

WITHIN = 0.10
"""Largest difference of two statistics that agree, as a share of the real one."""


@dataclass(frozen=True, slots=True)
class ComparedStatistic:
    """One statistic of two traces.

    Attributes:
        statistic: its name with its unit; shares are of all requests unless it says otherwise.
        real, synthetic: its values; NaN if a trace lacks the data.
        real_half, synthetic_half: half of the 95 % intervals; NaN if unknown.
    """

    statistic: str
    real: float
    synthetic: float
    real_half: float
    synthetic_half: float

    @property
    def within(self) -> bool:
        """True if both are known and differ by at most `WITHIN` of the real one."""
        return abs(self.synthetic - self.real) <= WITHIN * abs(self.real) + 1e-12

    def cells(self) -> tuple[str, ...]:
        """Return the row of the page; a dash marks an unknown value."""
        values = _value(self.real, self.real_half), _value(self.synthetic, self.synthetic_half)
        ratio = self.synthetic / self.real if self.real else math.nan
        return self.statistic, *values, "" if math.isnan(ratio) else f"{ratio:.2f}", "✓" if self.within else ""


def compare(real: Mapping[str, Any], synthetic: Sequence[Mapping[str, Any]]) -> list[ComparedStatistic]:
    """Return the statistics of conf/data/statistics.yaml that a real or a synthetic trace has, side by side.

    A synthetic value is the mean over all synthetic traces. Coverage has 95 % intervals. That of a mean is the wider of
    two: from the sample of requests, and from the spread between the traces.
    """
    known = pd.json_normalize([dict(one) for one in (real, *synthetic)])
    rows = []
    for statistic, path in choice("data", "statistics").items():
        measured, *made = _column(known, path)
        half, *halves = _column(known, re.sub(r"^(coverage\.\w+)", r"\1_half", path) if "coverage." in path else "")
        mean, spread = float(np.mean(made)), CONFIDENCE**2 * np.var(made, ddof=1) if len(made) > 1 else 0.0
        if not (math.isnan(measured) and math.isnan(mean)):
            mean_half = math.sqrt(max(np.mean(np.square(halves)), spread) / len(made))
            rows.append(ComparedStatistic(statistic, measured, mean, half, mean_half))
    return rows


def _column(known: pd.DataFrame, path: str) -> list[float]:
    """Return the statistic at `path` of each trace, NaN where it is unknown."""
    if path not in known:
        return [math.nan] * len(known)
    return pd.to_numeric(known[path]).astype(float).to_list()


def side_by_side(real: Mapping[str, Any], synthetic: Sequence[Mapping[str, Any]]) -> str:
    """Return a page of Markdown with the statistics of the real trace beside those of the synthetic ones.

    A dash marks an unknown value, or one that is not among the most frequent. The number after ± is half a 95 %
    interval, and a tick marks agreement within 10 %. The arguments are `TraceStatistics.to_dict()`.
    """
    rows = [row for row in compare(real, synthetic) if not math.isnan(row.real)]
    return render(
        "mezzotint.traces.describe",
        "compare.md.jinja",
        real=real,
        synthetic=synthetic,
        counts=sorted({int(one["requests"]) for one in synthetic}),
        close=sum(row.within for row in rows),
        both=sum(not math.isnan(row.synthetic) for row in rows),
        within=WITHIN,
        encoder=next((one["nearest"]["encoder"] for one in (real, *synthetic) if one["nearest"]), ""),
        rows=[row.cells() for row in rows],
    )


def _value(value: float, half: float) -> str:
    """Return a number with four significant digits, or as many as half its interval leaves."""
    if math.isnan(value) or not half > 0:
        return f"{value:,.0f}" if abs(value) >= 1000 else number(None if math.isnan(value) else value)
    digits = max(0, 1 - math.floor(math.log10(half)))
    return f"{value:.{digits}f} ± {half:.{digits}f}"
