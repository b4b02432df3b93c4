"""A real trace and a made-up one, statistic by statistic."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, variance
from typing import Any

from conf.page import number, render
from traces.describe.coverage import CONFIDENCE, LIMITS, POOLS, RECENT
from traces.describe.nearest import LEVELS

WITHIN = 0.10
"""Statistics that differ by no more than this share of the real one agree."""

STATISTICS: tuple[tuple[str, str], ...] = (
    ("requests per minute", "rate_rpm"),
    ("variation of gaps, std over mean", "arrivals.gap_cv"),
    ("the same by the hour, median", "arrivals.gap_cv_by_hour_median"),
    ("dispersion of counts in 5 min", "arrivals.dispersion.300s"),
    ("dispersion of counts in 1 h", "arrivals.dispersion.3600s"),
    ("busiest hour of the day over mean", "arrivals.busiest_hour_over_mean"),
    ("users", "users.count"),
    ("requests of the ten most active users", "users.top_ten_share"),
    ("requests of the most active 1 % of users", "inequality.top_percent_share"),
    ("inequality of users, Gini", "inequality.gini"),
    ("rank-frequency slope of users", "inequality.zipf_slope"),
    ("requests per session, mean", "sessions.requests_mean"),
    ("requests per session, median", "sessions.requests_quantiles.p50"),
    ("requests per session, 75 %", "sessions.requests_quantiles.p75"),
    ("requests per session, 90 %", "sessions.requests_quantiles.p90"),
    ("gap in a session, mean [s]", "sessions.gap_mean_s"),
    ("gap in a session, median [s]", "sessions.gap_quantiles_s.p50"),
    ("gap in a session, 90 % [s]", "sessions.gap_quantiles_s.p90"),
    ("followers that repeat the prompt before", "sessions.repeat_share"),
    ("followers that share half its words", "sessions.edit_share"),
    ("requests that repeat an earlier prompt", "prompts.repeat_share"),
    ("nearest earlier prompt by the same user", "nearest.same_user_share"),
    ("the same, of hits above 0.65", "nearest.hits_same_user_share"),
    *((f"similarity of the nearest, {level} %", f"nearest.quantiles.p{level}") for level in LEVELS),
    *((f"nearest above {limit}", f"nearest.share_above.{limit}") for limit in ("0.65", "0.75", "0.85", "0.9", "0.95")),
    *((f"lag of the nearest, {level} % [requests]", f"nearest.lag_quantiles.p{level}") for level in (25, 50, 75, 90)),
    *((f"age of the nearest, {level} % [s]", f"nearest.age_quantiles_s.p{level}") for level in (50, 90)),
    *(
        (f"another's above {limit:g} among {size:,} earlier", f"coverage.others.{size}.{limit:g}")
        for size in POOLS for limit in LIMITS
    ),
    *(
        (f"anybody's above {limit:g} among the last {size:,}", f"coverage.recent.{size}.{limit:g}")
        for size in RECENT for limit in LIMITS
    ),
    ("cosine in a session, mean", "likeness.same session.mean"),
    ("cosine between a user's sessions, mean", "likeness.same user, another session.mean"),
    ("cosine between users, mean", "likeness.another user.mean"),
    ("cosine between users, std", "likeness.another user.std"),
    *((f"size {size}", f"sizes.most.{size}") for size in ("512x512", "512x768")),
    *((f"{number} steps", f"steps.most.{number}") for number in (50, 150, 30)),
    *((f"{number} images", f"images.most.{number}") for number in (1, 2, 4, 6, 8, 9)),
    ("base models", "base_model.distinct"),
    *((f"requests of the top {rank} base models", f"base_model.share_of_top.{rank}") for rank in (1, 2, 5, 10)),
)  # fmt: skip
"""What is compared, and where it stands in the facts of `traces.describe.describe`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One statistic of two traces.

    Attributes:
        statistic: what it is, with its unit where it has one; shares are of all requests unless it says otherwise.
        real, synthetic: its values; None where a trace lacks what it takes.
        ratio: synthetic over real; None where the real one is 0, or either is lacking.
        within: whether they differ by at most `WITHIN` of the real one; None where either is lacking.
        real_half, synthetic_half: half their 95 % intervals; None where none is known.
    """

    statistic: str
    real: float | None
    synthetic: float | None
    ratio: float | None
    within: bool | None
    real_half: float | None = None
    synthetic_half: float | None = None


def compare(
    real: Mapping[str, Any], synthetic: Mapping[str, Any], statistics: tuple[tuple[str, str], ...] = STATISTICS
) -> list[Row]:
    """The statistics that either trace has, side by side.

    Args:
        real, synthetic: facts as `traces.describe.describe` gives them.
        statistics: names, and where they stand in the facts, keys joined by dots.
    """
    rows = []
    for statistic, path in statistics:
        found, made = _at(real, path), _at(synthetic, path)
        if found is None and made is None:
            continue
        if found is None or made is None:
            rows.append(Row(statistic, found, made, None, None))
            continue
        ratio = made / found if found else None
        rows.append(Row(statistic, found, made, ratio, abs(made - found) <= WITHIN * abs(found) + 1e-12))
    return rows


def with_intervals(rows: Sequence[Row], real: Mapping[str, Any], synthetic: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of the coverage with their 95 % intervals.

    That of a mean of traces follows from what the requests looked up leave open or, where it is more, from how far the
    traces lie apart.
    """
    paths = dict(STATISTICS)
    told = []
    for row in rows:
        path = paths[row.statistic]
        if not path.startswith("coverage."):
            told.append(row)
            continue
        group, cell = path.removeprefix("coverage.").split(".", 1)
        halves = [_at(one, f"coverage.{group}_half.{cell}") for one in (real, *synthetic)]
        known = [half for half in halves[1:] if half is not None]
        values = [value for one in synthetic if (value := _at(one, path)) is not None]
        half = None
        if known:
            apart = CONFIDENCE**2 * variance(values) if len(values) > 1 else 0.0
            half = math.sqrt(max(mean([each**2 for each in known]), apart) / len(known))
        told.append(replace(row, real_half=halves[0], synthetic_half=half))
    return told


def averaged(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of the facts of several traces, number by number; what is no number in each is left out."""
    mean: dict[str, Any] = {}
    for key, value in facts[0].items():
        values = [one.get(key) for one in facts]
        if isinstance(value, Mapping) and all(isinstance(one, Mapping) for one in values):
            mean[key] = averaged([one for one in values if isinstance(one, Mapping)])
        elif all(isinstance(one, int | float) for one in values):
            mean[key] = sum(float(one) for one in values if one is not None) / len(values)
    return mean


def side_by_side(real: Mapping[str, Any], synthetic: Sequence[Mapping[str, Any]]) -> str:
    """Return a page of Markdown: what the traces are, and the statistics that the real one has beside the synthetic.

    A dash stands for what a trace does not tell, or for a value that is not among its most frequent; what follows ± is
    half a 95 % interval; what is within 10 % has a tick.

    Args:
        real: facts of a trace as `traces.describe.describe` gives them.
        synthetic: facts of made-up traces, such as of several seeds; their mean is shown.
    """
    rows = with_intervals(compare(real, averaged(synthetic)), real, synthetic)
    told = [row for row in rows if row.real is not None]
    return render(
        "traces.describe",
        "compare.md.jinja",
        real=real,
        synthetic=synthetic,
        counts=sorted({int(one["requests"]) for one in synthetic}),
        close=sum(row.within is True for row in told),
        both=sum(row.within is not None for row in told),
        within=WITHIN,
        encoder=next((one["nearest"]["encoder"] for one in (real, *synthetic) if one["nearest"]), ""),
        rows=[_cells(row) for row in told],
    )


def _cells(row: Row) -> tuple[str, ...]:
    values = _value(row.real, row.real_half), _value(row.synthetic, row.synthetic_half)
    return row.statistic, *values, "" if row.ratio is None else f"{row.ratio:.2f}", "✓" if row.within else ""


def _value(value: float | None, half: float | None) -> str:
    """A number with four digits that count, or as many as half its interval leaves."""
    if value is not None and half:
        digits = max(0, 1 - math.floor(math.log10(half)))
        return f"{value:.{digits}f} ± {half:.{digits}f}"
    return f"{value:,.0f}" if value is not None and abs(value) >= 1000 else number(value)


def _at(facts: Mapping[str, Any], path: str) -> float | None:
    # keys may hold dots themselves (0.65), so each step takes the longest key that fits
    found: Any = facts
    rest = path
    while rest:
        if not isinstance(found, Mapping):
            return None
        keys = [key for key in found if rest == key or rest.startswith(f"{key}.")]
        if not keys:
            return None
        key = max(keys, key=len)
        found, rest = found[key], rest[len(key) + 1 :]
    return float(found) if isinstance(found, int | float) else None
