"""The answer of a plan: plan.json, the sentence and the table for the terminal, the figure, and the page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from markupsafe import Markup

from mezzotint.figures.page import number, render
from mezzotint.figures.palette import COLOURS
from mezzotint.sim.metrics.summary import cautions
from mezzotint.sim.plan.answer import (
    HEADROOM_FACTORS,
    MORE_GPUS,
    SERVICE_ERROR,
    ClusterResult,
    Plan,
    Ranked,
    Unranked,
    number_text,
    pareto_front,
)
from mezzotint.sim.report.figures.palette import SeriesStyle
from mezzotint.sim.report.interactive import SERIES, Chart, Field, Limit, PageFigure, Spec, bars, page, picture, points

COLUMNS = (
    *("design", "models", "GPU", "GPUs", "$/h", "$/1,000 images", "p50 [s]", "p90 [s]", "p95 [s]", "p99 [s]"),
    *("kJ/image", "quality", "load up to", "GPUs if 3 % slower", "GPUs at least", "service times"),
)
"""Columns of the ranked table."""

HEADROOM_LOAD = "Load that it carries (times the asked)"

KINDS = {
    "infeasible": "No cluster in range meets the target",
    "dropped": "Dearer than the ranked ones",
    "quality": "Below the asked quality",
    "refused": "Cannot run",
}
"""Kinds of candidates that are not ranked, in words."""


def sentence(plan: Plan) -> str:
    """Return the answer in a sentence or two."""
    goal, load = goal_text(plan), plan.spec.load
    if not plan.ranked:
        close = [each for each in plan.unranked if each.kind == "infeasible"]
        reasons = "; ".join(f"{each.candidate.name}: {each.reason}" for each in close[:3]) or "No candidate could run"
        return f"No cluster of at most {plan.spec.max_gpus} GPUs serves {load} with {goal}. {reasons}."
    best, *others = plan.ranked
    text = f"{cluster_name(best.result)} serves {load} with {goal} for ${best.result.usd_per_h:.2f} per hour"
    usd = best.result.numbers["usd_per_image"]
    carries, fails = best.headroom
    return "".join(
        [
            text,
            "" if usd is None else f", ${1000 * usd:.2f} per 1,000 images",
            f". It carries {carries:g} times the load",
            "" if fails is None else f" and misses the target at {fails:g} times",
            f"; if the service took {SERVICE_ERROR - 1:.0%} longer, {_slower_words(best)}.",
            *(f" Next: {cluster_name(each.result)}, ${each.result.usd_per_h:.2f} per hour." for each in others[:1]),
        ]
    )


def goal_text(plan: Plan) -> str:
    """Return the targets in words."""
    return " and ".join(target.text for target in plan.spec.targets)


def cluster_name(result: ClusterResult) -> str:
    """Return a cluster in a few words."""
    return f"{result.cluster} with {result.candidate.design}"


def _slower_words(best: Ranked) -> str:
    if best.gpus_if_slower is None:
        return "more than four GPUs more would be needed"
    return (
        "it still does" if best.gpus_if_slower == best.result.devices else f"{best.gpus_if_slower} GPUs would be needed"
    )


def row(each: Ranked) -> list[str]:
    """Return the cells of a ranked cluster, in the order of `COLUMNS`."""
    result, candidate, numbers = each.result, each.result.candidate, each.result.numbers
    usd, joules, quality = (numbers[name] for name in ("usd_per_image", "energy_j_per_image", "quality"))
    carries, fails = each.headroom
    return [
        candidate.design,
        candidate.models,
        candidate.gpus if candidate.beside is None else result.cluster,
        str(result.devices),
        "-" if result.usd_per_h is None else f"{result.usd_per_h:.2f}",
        "-" if usd is None else f"{1000 * usd:.2f}",
        *(number_text(numbers[name], "-") for name in ("p50_s", "p90_s", "p95_s", "p99_s")),
        "-" if joules is None else f"{joules / 1000:.1f}",
        "-" if quality is None else f"{quality:.3f}",
        f"{carries:g}x" + ("" if fails is not None else " or more"),
        "-" if each.gpus_if_slower is None else str(each.gpus_if_slower),
        f"{each.gpus_kept_busy:.1f}",
        basis(each),
    ]


def basis(each: Ranked) -> str:
    """Return where the service times come from, with their known error, by model if they differ."""
    texts = {
        row["model"]: row["basis"] + ("" if row["service_error"] is None else f", known to {row['service_error']:.1%}")
        for row in each.summary["models"]
    }
    if len(set(texts.values())) == 1:
        return str(next(iter(texts.values())))
    return "; ".join(f"{model} {text}" for model, text in texts.items())


def table_lines(plan: Plan) -> list[str]:
    """Return the ranked table as aligned lines, then a line for each candidate that is not ranked."""
    cells = [list(COLUMNS), *map(row, plan.ranked)] if plan.ranked else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return [*lines, *(f"{each.kind}: {each.candidate.name}: {each.reason}" for each in plan.unranked), *plan.notes]


def as_json(plan: Plan, command: str) -> dict[str, Any]:
    """Return the content of plan.json. Latencies are in seconds, rates per minute, prices in US$."""
    return {
        "schema": 1,
        "command": command,
        "question": asdict(plan.spec) | {"targets": [target.text for target in plan.spec.targets]},
        "answer": sentence(plan),
        "ranked": [
            _cluster(each.result)
            | {
                "headroom": {"carries": each.headroom[0], "misses": each.headroom[1], "tried": list(HEADROOM_FACTORS)},
                "gpus_if_service_3_percent_longer": each.gpus_if_slower,
                "service_error": each.error,
                "gpus_if_service_error": each.gpus_if_error,
                "gpus_at_least": each.gpus_kept_busy,
                "not_monotone_at": list(each.not_monotone),
                "models": each.summary["models"],
                "assumptions": each.summary["assumptions"],
            }
            for each in plan.ranked
        ],
        "not_ranked": [_unranked(each) for each in plan.unranked],
        "clusters": [_cluster(each) for each in plan.clusters],
        "notes": list(plan.notes),
        "runs": plan.runs,
    }


def _cluster(result: ClusterResult) -> dict[str, Any]:
    candidate = result.candidate
    return {
        "design": candidate.design,
        "models_choice": candidate.models,
        "cluster": result.cluster,
        "gpus": candidate.counts(result.gpus),
        "count": result.devices,
        "meets": result.meets,
        "undecided": result.is_undecided,
        "replications": result.replications,
        "prices": {kind: asdict(price) for kind, price in candidate.prices.items()},
        "usd_per_h": result.usd_per_h,
        **result.numbers,
    }


def _unranked(each: Unranked) -> dict[str, Any]:
    return {
        "design": each.candidate.design,
        "models_choice": each.candidate.models,
        "gpu": each.candidate.gpus,
        "kind": each.kind,
        "reason": each.reason,
        "usd_per_h_at_least": each.usd_per_h,
        "best": None if each.best is None else _cluster(each.best),
    }


def figure(plan: Plan) -> Spec | None:
    """Return the figures of the page as one: cost and latency of the clusters, headroom of the ranked ones.

    None if no cluster ran.
    """
    drawn = drawn_clusters(plan)
    styles = _styles(drawn)
    return (
        None
        if not drawn
        else picture([chart for part in _figures(plan, drawn, styles) for chart in part.charts], styles)
    )


def drawn_clusters(plan: Plan) -> list[ClusterResult]:
    """Return the clusters to draw: those that meet the targets, and of the others no saturated ones.

    Their p95 is within ten times the lowest.
    """
    known = [(p95_s, each) for each in plan.clusters if (p95_s := each.numbers["p95_s"]) is not None]
    fastest_s = min((p95_s for p95_s, _ in known), default=0.0)
    return [each for p95_s, each in known if each.meets or p95_s <= 10 * fastest_s]


def _styles(results: Sequence[ClusterResult]) -> dict[str, SeriesStyle]:
    """Return the style of each candidate, by name."""
    return {
        name: SeriesStyle(COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else (0, (5, 1.5)), "o")
        for number, name in enumerate(dict.fromkeys(each.candidate.name for each in results))
    }


def html(plan: Plan, command: str) -> str:
    """Return the page to send: question, answer, ranked table, fronts, headroom, assumptions, accuracy, the command."""
    drawn, goal = drawn_clusters(plan), goal_text(plan)
    styles = _styles(drawn)
    assumptions = [each for ranked in plan.ranked for each in ranked.summary["assumptions"]]
    prices = {kind: price for each in plan.clusters for kind, price in each.candidate.prices.items()}
    body = render(
        "mezzotint.sim.plan",
        "plan.html.jinja",
        notes=plan.notes,
        unranked=list(map(_unranked_cells, plan.unranked)),
        columns=[(title.partition(" [")[0], title.partition(" [")[2].rstrip("]")) for title in COLUMNS],
        rows=[row(each) for each in plan.ranked],
        names=("design", "models", "GPU", "service times"),
        assumptions=list(dict.fromkeys((each["what"], str(each["value"]), each["source"]) for each in assumptions)),
        slower=f"{SERVICE_ERROR - 1:.0%}",
        command=command,
        prices=[(kind, price.usd_per_gpu_h, price.source) for kind, price in prices.items()],
        goal=goal,
    )
    return page(
        f"{plan.spec.model}: what to rent for {goal}",
        sentence(plan),
        _figures(plan, drawn, styles) if drawn else [],
        styles,
        Markup(body),
        generator=command,
        warnings=warnings(plan),
    )


def _unranked_cells(each: Unranked) -> tuple[str, str, str]:
    """Return the candidate, why it is not ranked, and the reason with the best cluster that it reached."""
    kind, reason = KINDS[each.kind], each.reason
    if each.usd_per_h is not None:
        kind += f": US$ {each.usd_per_h:.2f} per hour or more"
    if each.best is not None and each.kind == "infeasible":
        latencies = (f"{name} {number(each.best.numbers[f'{name}_s'], 3)} s" for name in ("p50", "p95", "p99"))
        reason += f". Best reached: {each.best.gpus} GPUs, {', '.join(latencies)}"
    return each.candidate.name, kind, reason


def warnings(plan: Plan) -> list[str]:
    """Return what a reader must know beside the answer."""
    texts = _warnings_of_first(plan.ranked[0]) if plan.ranked else []
    if undecided := sum(each.is_undecided for each in plan.clusters):
        texts.append(
            f"{undecided} of {len(plan.clusters)} clusters lie so close to the target that "
            f"{plan.spec.replications} seeds did not decide; they count as missing it."
        )
    return texts


def _warnings_of_first(first: Ranked) -> list[str]:
    texts = []
    if {model["basis"] for model in first.summary["models"]} & {"assumed", "scaled"}:
        texts.append(
            "The service times of the first cluster were not measured: they are assumed, or scaled from another "
            "GPU. Measure them with mezzotint calibrate before you order."
        )
    if first.error is not None and first.error > SERVICE_ERROR - 1:
        gpus = first.gpus_if_error or f"more than {first.result.devices + MORE_GPUS}"
        texts.append(
            f"The service times of the first cluster are known to {first.error:.1%} only. If they were that "
            f"much longer, it would take {gpus} GPUs."
        )
    if first.result.numbers["quality"] is None:
        texts.append(
            "Nobody has published the image quality of the first cluster's design with these models. --min-quality "
            "leaves out designs of unknown quality."
        )
    if first.not_monotone:
        texts.append(
            f"More GPUs are not always better here: {', '.join(map(str, first.not_monotone))} miss the target, and "
            "the answer is the smallest cluster above them."
        )
    texts += [f"{what}: {value}; {source}." for what, (value, source) in cautions(first.summary).items()]
    return texts


def _figures(plan: Plan, drawn: Sequence[ClusterResult], styles: Mapping[str, SeriesStyle]) -> list[PageFigure]:
    frame = pd.DataFrame(
        [
            {
                SERIES: each.candidate.name,
                "gpus": each.devices,
                "usd": each.usd_per_h,
                "p95": each.numbers["p95_s"],
                "p99": each.numbers["p99_s"],
                "usd_1000": 1000 * (each.numbers["usd_per_image"] or math.nan),
                "quality": each.numbers["quality"],
                "energy": (each.numbers["energy_j_per_image"] or math.nan) / 1000,
                "meets": {None: "-", True: "yes", False: "no"}[each.meets],
            }
            for each in drawn
        ]
    )
    usd = Field("usd", "US$ per hour", ",.2~f", "log", _bounds(frame["usd"]))
    p95 = Field("p95", "p95 of latency (s)", ",.3~r", "log", _bounds(frame["p95"]))
    hover = (
        Field("gpus", "GPUs", ",d"), Field("p99", "p99 (s)"), Field("usd_1000", "US$ per 1,000 images", ",.2f"),
        Field("energy", "kJ per image"), Field("quality", "quality"), Field("meets", "meets the target", ""),
    )  # fmt: skip
    limits = [Limit(target.bound, target.text) for target in plan.spec.targets if target.key == "latency_s.p95"]
    charts = [Chart("Cost and latency", points(frame, usd, p95, styles, hover=hover, connected=True, limits=limits))]
    known = frame.dropna(subset=["quality"])
    if len(set(known["quality"])) > 1:
        quality = Field("quality", "Quality (1: the model in full)", ".3f", "linear", _bounds(known["quality"]))
        charts.append(Chart("Cost and quality", points(known, usd, quality, styles, hover=hover)))
    ends = ", ".join(map(cluster_name, pareto_front(drawn)))
    caption = f"Every cluster that ran, without those that are saturated. None is both cheaper and faster than: {ends}."
    figures = [PageFigure("What a lower latency costs", caption, charts)]
    if plan.ranked:
        loads = pd.DataFrame(
            [(each.result.candidate.name, cluster_name(each.result), *each.headroom) for each in plan.ranked],
            columns=[SERIES, "cluster", "load", "misses"],
        )
        misses = Field("misses", "misses the target at")
        chart = bars(loads, Field("load", HEADROOM_LOAD), styles, name=Field("cluster", "Cluster", ""), hover=[misses])
        caption = f"Loads tried: {', '.join(f'{factor:g}' for factor in HEADROOM_FACTORS)} times the asked."
        figures.append(PageFigure("Headroom", caption, [Chart("", chart)]))
    return figures


def _bounds(values: "pd.Series[float]") -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    return low / 1.15, high * 1.15
