"""`mezzotint reproduce scaling`: what scaling by datasheets misses, on all pairs of GPUs that were both measured.

A pair is one model in one engine and number format on two kinds of GPUs. The exponent of the rule is fitted without the
kind that is predicted, so that every error is one of a kind that the rule has not seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from mezzotint.backends.base import BackendError, size_text
from mezzotint.backends.profile import Point, Profile, shipped, within
from mezzotint.backends.scaling import ERROR, WEIGHT, datasheet, number_format, seconds_ratio
from mezzotint.figures.palette import COLOURS, EDGE, house_style, panels
from mezzotint.sim.papers.study import RESULTS, Check, Comparison, Output, Results, Study

WEIGHTS = tuple(round(0.05 * number, 2) for number in range(21))
"""Exponents that are tried: from the bandwidth alone to the TFLOP/s alone."""

RULES = {"TFLOP/s alone": 1.0, "bandwidth alone": 0.0, "both": None}
"""Exponent of the TFLOP/s by rule; None is fitted without the kind that is predicted."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One model on two kinds of GPUs: the second is predicted from the first.

    Attributes:
        size: width and height, frames of a video, and the batch if it is the same on both.
        ratio: seconds per image on ``gpu`` over those on ``like``.
        compute, bandwidth: rates of ``like`` over those of ``gpu``.
        chips: the datasheets of ``like`` and ``gpu``; several kinds have one.
    """

    model: str
    software: str
    form: str
    size: str
    like: str
    gpu: str
    ratio: float
    compute: float
    bandwidth: float
    chips: tuple[object, object]

    def error(self, weight: float) -> float:
        """Return the relative error of the prediction, |true / predicted - 1|."""
        return abs(self.ratio / seconds_ratio(self.compute, self.bandwidth, weight) - 1)


def compare(check: Check = False, output: Output = RESULTS) -> int:
    """Hold scaling by datasheets against kinds of GPUs that were both measured, and write scaling.md, .json and .svg.

    Raises:
        ConfigError: a file cannot be written.
    """
    return STUDY.reproduce(measure, output, check=check)


def measure() -> Results:
    """Return all pairs with their predictions, the fitted exponent, and quantiles of the errors by rule."""
    found = list(pairs(within(shipped())))
    chips = {pair.chips[1] for pair in found}
    left_out = {chip: fit([pair for pair in found if chip not in pair.chips]) for chip in chips}
    rows, named = [], ("model", "software", "form", "size", "like", "gpu", "ratio")
    for pair in found:
        weight = left_out[pair.chips[1]]
        predicted = seconds_ratio(pair.compute, pair.bandwidth, weight)
        row: dict[str, Any] = {name: getattr(pair, name) for name in named}
        rows.append(row | {"weight": weight, "predicted": predicted, "error": pair.error(weight)})
    errors = {
        rule: _quantiles([pair.error(left_out[pair.chips[1]] if weight is None else weight) for pair in found])
        for rule, weight in RULES.items()
    }
    return {"weight": fit(found), "errors": errors, "pairs": sorted(rows, key=lambda row: -row["error"])}


def pairs(profiles: Sequence[Profile]) -> Iterator[Pair]:
    """Yield both directions of all pairs of ``profiles`` of one model, engine and number format with datasheets."""
    known = [of for of in profiles if of.step and of.software and of.basis in ("measured", "published")]
    for one, other in permutations(known, 2):
        form = number_format(one.dtype)
        if (one.model, one.software, form) != (other.model, other.software, number_format(other.dtype)):
            continue
        seconds = _common(one, other)
        try:
            (like, count), (gpu, others) = datasheet(one.gpu), datasheet(other.gpu)
        except BackendError:
            continue
        if seconds is None or count != others or form not in like or form not in gpu:
            continue
        size, ratio = seconds
        yield Pair(
            one.model, str(one.software), form, size, one.gpu, other.gpu, ratio, like[form] / gpu[form],
            like["bandwidth"] / gpu["bandwidth"], (tuple(like.items()), tuple(gpu.items())),
        )  # fmt: skip


def _common(one: Profile, other: Profile) -> tuple[str, float] | None:
    """Return a size that both profiles have, and the seconds per image of ``other`` over those of ``one``.

    Of the largest size; at the largest batch that both have, else at the largest of each. Points with a source of their
    own are left out: most are derived.
    """
    of_one, of_other = _by_size(one), _by_size(other)
    sizes = of_one.keys() & of_other.keys()
    if not sizes:
        return None
    size = max(sizes)
    batches = of_one[size].keys() & of_other[size].keys()
    mine, theirs = (max(batches),) * 2 if batches else (max(of_one[size]), max(of_other[size]))
    ratio = of_other[size][theirs].seconds / theirs / (of_one[size][mine].seconds / mine)
    batch = f", batches of {mine}" + (f" and {theirs}" if theirs != mine else "") if max(mine, theirs) > 1 else ""
    return size_text(*size) + batch, ratio


def _by_size(profile: Profile) -> dict[tuple[int, int, int], dict[int, Point]]:
    sizes: dict[tuple[int, int, int], dict[int, Point]] = {}
    for point in profile.step:
        if point.source is None:
            sizes.setdefault(point.size, {})[point.batch] = point
    return sizes


def fit(found: Sequence[Pair]) -> float:
    """Return the exponent with the smallest median error over ``found``."""
    return min(WEIGHTS, key=lambda weight: float(np.median([pair.error(weight) for pair in found])))


def _by(key: str, facts: Results) -> dict[str, dict[str, float]]:
    """Return the number of pairs and quantiles of their errors by a value of the pairs, the best known first."""
    errors: dict[str, list[float]] = {}
    for pair in facts["pairs"]:
        errors.setdefault(pair[key], []).append(pair["error"])
    groups = {name: {"pairs": len(found)} | _quantiles(found) for name, found in errors.items()}
    return dict(sorted(groups.items(), key=lambda item: item[1]["median"]))


def _quantiles(errors: Sequence[float]) -> dict[str, float]:
    return {"median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9)), "max": max(errors)}


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare what `mezzotint.backends.scaling` declares with what was found."""
    found, weight = facts["errors"]["both"], facts["weight"]
    median, error = found["median"], found["p90"]
    return {
        "exponent of TFLOP/s": Comparison(f"{WEIGHT:g}", f"{weight:g}", weight == WEIGHT),
        "median error": Comparison("25 % or less", f"{median:.1%}", median <= 0.25),
        "known error, 90 %": Comparison(f"{ERROR:.0%} or less", f"{error:.1%}", ERROR - 0.02 < error <= ERROR),
    }


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw measured against predicted ratios of seconds by engine, with the band of the known error."""
    figure, ((axes,),) = panels(1, width=6.2, height=5.0)
    engines = sorted({pair["software"] for pair in facts["pairs"]})
    for engine, colour in zip(engines, COLOURS, strict=False):
        rows = [pair for pair in facts["pairs"] if pair["software"] == engine]
        axes.plot(
            [row["predicted"] for row in rows], [row["ratio"] for row in rows], "o", color=colour, markersize=4,
            alpha=0.7, label=f"{engine} ({len(rows)})",
        )  # fmt: skip
    ends = [value for pair in facts["pairs"] for value in (pair["predicted"], pair["ratio"])]
    line = np.array([min(ends) * 0.9, max(ends) * 1.1])
    error = facts["errors"]["both"]["p90"]
    axes.plot(line, line, color=EDGE, linewidth=0.8)
    axes.fill_between(
        line, line * (1 - error), line * (1 + error), color=EDGE, alpha=0.12, label=f"within {100 * error:.0f} %"
    )
    axes.set(xscale="log", yscale="log", xlim=line, ylim=line, xlabel="seconds over those of the other kind, predicted")
    axes.set(ylabel="measured", title="Scaling by datasheets, the predicted kind left out")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
    axes.legend(loc="lower right", fontsize=8)
    return {"": figure}


STUDY = Study(
    "scaling",
    comparisons,
    draw,
    lambda facts: {"engines": _by("software", facts), "kinds": _by("gpu", facts), "error": ERROR, "weight": WEIGHT},
)
