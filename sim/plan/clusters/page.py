"""The answer of a plan: plan.json, the sentence and the table for the terminal, the figure, and the page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from mezzotint.figures.page import render
from mezzotint.figures.palette import COLOURS, GREY, house_style, panels, plain_numbers
from mezzotint.sim.plan.clusters.answer import LOADS, MORE_GPUS, SERVICE_ERROR, Measured, Plan, Ranked, Unmet, front
from mezzotint.sim.report.figures.palette import SeriesStyle, legend_below
from mezzotint.sim.report.interactive import SERIES, Chart, Field, Limit, PageFigure, bars, page, points

COLUMNS = (
    *("design", "models", "GPU", "GPUs", "$/h", "$/1,000 images", "p50 [s]", "p90 [s]", "p95 [s]", "p99 [s]"),
    *("kJ/image", "quality", "load up to", "GPUs if 3 % slower", "GPUs at least", "service times"),
)
"""Columns of the ranked table."""


def sentence(plan: Plan) -> str:
    """Return the answer in a sentence or two."""
    goal = _goal(plan)
    if not plan.ranked:
        close = [each for each in plan.unmet if each.kind == "infeasible"]
        reasons = "; ".join(f"{each.candidate.name}: {each.reason}" for each in close[:3])
        bound, load = plan.question.max_gpus, plan.question.load
        return f"No cluster of at most {bound} GPUs serves {load} with {goal}. {reasons or 'No candidate could run'}."
    best = plan.ranked[0]
    measured, numbers = best.measured, best.measured.numbers
    text = f"{cluster_name(measured)} serves {plan.question.load} with {goal} for ${measured.usd_per_h:.2f} per hour"
    if numbers["usd_per_image"] is not None:
        text += f", ${1000 * numbers['usd_per_image']:.2f} per 1,000 images"
    text += f". {_headroom_words(best)}"
    if len(plan.ranked) > 1:
        text += f" Next: {cluster_name(plan.ranked[1].measured)}, ${plan.ranked[1].measured.usd_per_h:.2f} per hour."
    return text


def cluster_name(each: Measured) -> str:
    """Return a cluster in a few words."""
    return f"{each.cluster} with {each.candidate.design}"


def _headroom_words(best: Ranked) -> str:
    carries, fails = best.headroom
    load = f"It carries {carries:g} times the load" + (
        "" if fails is None else f" and misses the target at {fails:g} times"
    )
    gpus = best.gpus_if_slower
    if gpus is None:
        slower = "more than four GPUs more would be needed"
    elif gpus == best.measured.devices:
        slower = "it still does"
    else:
        slower = f"{gpus} GPUs would be needed"
    return f"{load}; if the service took {SERVICE_ERROR - 1:.0%} longer, {slower}."


def row(each: Ranked) -> list[str]:
    """Return the cells of a ranked cluster, in the order of `COLUMNS`."""
    measured, numbers = each.measured, each.measured.numbers
    usd, joules = numbers["usd_per_image"], numbers["energy_j_per_image"]
    carries, fails = each.headroom
    return [
        measured.candidate.design,
        measured.candidate.models,
        measured.candidate.gpus if measured.candidate.beside is None else measured.cluster,
        str(measured.devices),
        f"{measured.usd_per_h:.2f}",
        "-" if usd is None else f"{1000 * usd:.2f}",
        *(_number(numbers[name]) for name in ("p50_s", "p90_s", "p95_s", "p99_s")),
        "-" if joules is None else f"{joules / 1000:.1f}",
        "-" if numbers["quality"] is None else f"{numbers['quality']:.3f}",
        f"{carries:g}x" + ("" if fails is not None else " or more"),
        "-" if each.gpus_if_slower is None else str(each.gpus_if_slower),
        f"{each.needed:.1f}",
        basis(each),
    ]


def basis(each: Ranked) -> str:
    """Return where the service times come from, with their known error, by model if they differ."""
    found = {
        row["model"]: f"{row['basis']}"
        + ("" if row["service_error"] is None else f", known to {row['service_error']:.1%}")
        for row in each.summary["models"]
    }
    own = dict.fromkeys(found.values())
    return next(iter(own)) if len(own) == 1 else "; ".join(f"{model} {text}" for model, text in found.items())


def table_lines(plan: Plan) -> list[str]:
    """Return the ranked table as aligned lines, then a line for each candidate that is not ranked."""
    cells = [list(COLUMNS), *map(row, plan.ranked)] if plan.ranked else []
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))] if cells else []
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return [*lines, *(f"{each.kind}: {each.candidate.name}: {each.reason}" for each in plan.unmet), *plan.notes]


def as_json(plan: Plan, command: str) -> dict[str, Any]:
    """Return the content of plan.json. Latencies are in seconds, rates per minute, prices in US$."""
    question = asdict(plan.question)
    question["targets"] = [target.text for target in plan.question.targets]
    return {
        "schema": 1,
        "command": command,
        "question": question,
        "answer": sentence(plan),
        "ranked": [
            _measured(each.measured)
            | {
                "headroom": {"carries": each.headroom[0], "misses": each.headroom[1], "tried": list(LOADS)},
                "gpus_if_service_3_percent_longer": each.gpus_if_slower,
                "service_error": each.error,
                "gpus_if_service_error": each.gpus_if_error,
                "gpus_at_least": each.needed,
                "not_monotone_at": list(each.not_monotone),
                "models": each.summary["models"],
                "assumptions": each.summary["assumptions"],
            }
            for each in plan.ranked
        ],
        "not_ranked": [_unmet(each) for each in plan.unmet],
        "clusters": [_measured(each) for each in plan.clusters],
        "notes": list(plan.notes),
        "runs": plan.runs,
    }


def _measured(each: Measured) -> dict[str, Any]:
    candidate = each.candidate
    return {
        "design": candidate.design,
        "models_choice": candidate.models,
        "cluster": each.cluster,
        "gpus": candidate.counts(each.gpus),
        "count": each.devices,
        "meets": each.meets,
        "undecided": each.is_open,
        "replications": each.replications,
        "prices": {kind: asdict(price) for kind, price in candidate.prices.items()},
        "usd_per_h": each.usd_per_h,
        **each.numbers,
    }


def _unmet(each: Unmet) -> dict[str, Any]:
    return {
        "design": each.candidate.design,
        "models_choice": each.candidate.models,
        "gpu": each.candidate.gpus,
        "kind": each.kind,
        "reason": each.reason,
        "usd_per_h_at_least": each.usd_per_h,
        "best": None if each.best is None else _measured(each.best),
    }


@house_style()
def draw(plan: Plan) -> Figure:
    """Draw cost against p95 of every cluster that is stable, the Pareto front, and the headroom of the ranked ones."""
    figure, axes = panels(2, width=10.5, height=4.4, share_y=False)
    left, right = axes[0]
    stable = drawn_clusters(plan)
    styles, best = _styles(stable), [each.measured for each in plan.ranked]
    for name, style in styles.items():
        own = [each for each in stable if each.candidate.name == name]
        left.plot(*_costs_and_p95(own), "-o", color=style.colour, markersize=4, linewidth=1, label=name)
        for each in best:
            if each.candidate.name == name:
                left.plot(*_costs_and_p95([each]), "*", color=style.colour, markersize=13)
    left.step(*_costs_and_p95(_edge(stable)), where="post", color=GREY, linewidth=1, linestyle="--")
    for target in plan.question.targets:
        if target.key == "latency_s.p95":
            left.axhline(target.bound, color=GREY, linestyle=":")
    left.set(xlabel="US$ per hour", ylabel="p95 of latency (s)")
    if stable:  # an empty axis has no logarithm
        left.set(xscale="log", yscale="log")
        for axis in (left.xaxis, left.yaxis):
            axis.set_major_formatter(plain_numbers())
            axis.set_minor_formatter(plain_numbers())
    left.set_title("Cost and latency; star: cheapest that meets the target", loc="left", fontsize=10)
    colours = [styles[each.candidate.name].colour for each in best]
    right.barh(list(map(cluster_name, best)), [each.headroom[0] for each in plan.ranked], color=colours)
    right.axvline(1.0, color=GREY, linestyle="--")
    right.invert_yaxis()
    right.set(xlabel="Load that it carries (times the asked)", xlim=(0, None))
    right.set_title("Headroom", loc="left", fontsize=10)
    handles, texts = left.get_legend_handles_labels()
    legend_below(figure, handles, texts)
    return figure


def drawn_clusters(plan: Plan) -> Sequence[Measured]:
    """Return the clusters to draw: those that meet the targets, and of the others no saturated ones.

    Their p95 is within ten times the lowest.
    """
    known = [(each.numbers["p95_s"], each) for each in plan.clusters]
    fastest_s = min((p95_s for p95_s, _ in known if p95_s is not None), default=0.0)
    return [each for p95_s, each in known if p95_s is not None and (each.meets or p95_s <= 10 * fastest_s)]


def _edge(clusters: Sequence[Measured]) -> list[Measured]:
    return front(clusters, lambda each: each.numbers["p95_s"])


def _costs_and_p95(clusters: Sequence[Measured]) -> tuple[list[float], list[float | None]]:
    return [each.usd_per_h for each in clusters], [each.numbers["p95_s"] for each in clusters]


def _styles(clusters: Sequence[Measured]) -> dict[str, SeriesStyle]:
    """Return the style of each candidate, by name."""
    return {
        name: SeriesStyle(COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else (0, (5, 1.5)), "o")
        for number, name in enumerate(dict.fromkeys(each.candidate.name for each in clusters))
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def html(plan: Plan, command: str) -> str:
    """Return the page to send: question, answer, ranked table, fronts, headroom, assumptions, accuracy, the command."""
    drawn = drawn_clusters(plan)
    styles = _styles(drawn)
    body = render(
        "mezzotint.sim.plan.clusters",
        "plan.html.jinja",
        plan=plan,
        columns=[_split(title) for title in COLUMNS],
        rows=[row(each) for each in plan.ranked],
        names=("design", "models", "GPU", "service times"),
        assumptions=_assumptions(plan),
        slower=f"{SERVICE_ERROR - 1:.0%}",
        command=command,
        prices={kind: price for each in plan.clusters for kind, price in each.candidate.prices.items()},
        kinds={
            "infeasible": "No cluster in range meets the target",
            "dropped": "Dearer than the ranked ones",
            "quality": "Below the asked quality",
            "refused": "Cannot run",
        },
        goal=_goal(plan),
    )
    return page(
        f"{plan.question.model}: what to rent for {_goal(plan)}",
        sentence(plan),
        _figures(plan, drawn, styles) if drawn else [],
        styles,
        Markup(body),
        generator=command,
        warnings=warnings(plan),
    )


def warnings(plan: Plan) -> list[str]:
    """Return what a reader must know beside the answer."""
    found = []
    for each in plan.ranked[:1]:
        bases = {model["basis"] for model in each.summary["models"]}
        if bases & {"assumed", "scaled"}:
            found.append(
                "The service times of the first cluster were not measured: they are assumed, or scaled from another "
                "GPU. Measure them with mezzotint calibrate before you order."
            )
        if each.error is not None and each.error > SERVICE_ERROR - 1:
            gpus = (
                f"{each.gpus_if_error} GPUs"
                if each.gpus_if_error
                else f"more than {each.measured.devices + MORE_GPUS} GPUs"
            )
            found.append(
                f"The service times of the first cluster are known to {each.error:.1%} only. If they were that "
                f"much longer, it would take {gpus}."
            )
        if each.measured.numbers["quality"] is None:
            found.append(
                "Nobody has published the image quality of the first cluster's design with these models. --min-quality "
                "leaves out designs of unknown quality."
            )
        if each.not_monotone:
            found.append(
                f"More GPUs are not always better here: {', '.join(map(str, each.not_monotone))} miss the target, and "
                "the answer is the smallest cluster above them."
            )
    undecided = sum(each.is_open for each in plan.clusters)
    if undecided:
        found.append(
            f"{undecided} of {len(plan.clusters)} clusters lie so close to the target that "
            f"{plan.question.replications} seeds did not decide; they count as missing it."
        )
    return found


def _goal(plan: Plan) -> str:
    return " and ".join(target.text for target in plan.question.targets)


def _split(title: str) -> tuple[str, str]:
    name, _, unit = title.partition(" [")
    return name, unit.rstrip("]")


def _assumptions(plan: Plan) -> list[tuple[str, Any, str]]:
    """Return the assumptions of the ranked clusters, each once."""
    rows = [each for ranked in plan.ranked for each in ranked.summary["assumptions"]]
    return list(dict.fromkeys((each["what"], str(each["value"]), each["source"]) for each in rows))


def _figures(plan: Plan, drawn: Sequence[Measured], styles: Mapping[str, SeriesStyle]) -> list[PageFigure]:
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
                "meets": "-" if each.meets is None else ("yes" if each.meets else "no"),
            }
            for each in drawn
        ]
    )
    usd, p95 = (
        Field("usd", "US$ per hour", ",.2~f", "log", _bounds(frame["usd"])),
        Field("p95", "p95 of latency (s)", ",.3~r", "log", _bounds(frame["p95"])),
    )
    hover = (
        Field("gpus", "GPUs", ",d"), Field("p99", "p99 (s)"), Field("usd_1000", "US$ per 1,000 images", ",.2f"),
        Field("energy", "kJ per image"), Field("quality", "quality"), Field("meets", "meets the target", ""),
    )  # fmt: skip
    limits = [Limit(each.bound, each.text) for each in plan.question.targets if each.key == "latency_s.p95"]
    charts = [Chart("Cost and latency", points(frame, usd, p95, styles, hover=hover, connected=True, limits=limits))]
    known = frame.dropna(subset=["quality"])
    if len(set(known["quality"])) > 1:
        quality = Field("quality", "Quality (1: the model in full)", ".3f", "linear", _bounds(known["quality"]))
        charts.append(Chart("Cost and quality", points(known, usd, quality, styles, hover=hover)))
    ends = ", ".join(map(cluster_name, _edge(drawn)))
    figures = [
        PageFigure(
            "What a lower latency costs",
            f"Every cluster that ran, without those that are saturated. None is both cheaper and faster than: {ends}.",
            charts,
        )
    ]
    if plan.ranked:
        loads = pd.DataFrame(
            [
                {
                    SERIES: each.measured.candidate.name,
                    "cluster": cluster_name(each.measured),
                    "load": each.headroom[0],
                    "misses": each.headroom[1],
                }
                for each in plan.ranked
            ]
        )
        chart = bars(
            loads, Field("load", "Load that it carries (times the asked)"), styles,
            name=Field("cluster", "Cluster", ""), hover=[Field("misses", "misses the target at")],
        )  # fmt: skip
        figures.append(
            PageFigure(
                "Headroom",
                f"Loads tried: {', '.join(f'{each:g}' for each in LOADS)} times the asked.",
                [Chart("", chart)],
            )
        )
    return figures


def _bounds(values: "pd.Series[float]") -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    return low / 1.15, high * 1.15
