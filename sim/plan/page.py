"""The answer of a plan: plan.json, the sentence and the table for the terminal, the figure, and the page."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import pandas as pd
from markupsafe import Markup

from mezzotint.figures.page import DASH, number, render
from mezzotint.figures.palette import COLOURS
from mezzotint.sim.metrics.header import Header, duration, header, split_rows
from mezzotint.sim.metrics.summary import cautions
from mezzotint.sim.metrics.summary_keys import kind_of
from mezzotint.sim.plan.answer import (
    HEADROOM_FACTORS,
    UNSTATED_ERROR,
    ClusterResult,
    Plan,
    Ranked,
    Unranked,
    makes_videos,
    pareto_front,
)
from mezzotint.sim.plan.candidate import Candidate
from mezzotint.sim.plan.target import Target
from mezzotint.sim.report.assumed import Stated, collect, section
from mezzotint.sim.report.figures.palette import SeriesStyle
from mezzotint.sim.report.interactive import SERIES, Chart, Field, Limit, PageFigure, Spec, bars, page, picture, points

HEADROOM_LOAD = "Load that it carries (times the asked)"

NO_PRICE = "no price"

MAX_NAMED = 4
"""Clusters that a caption names."""

KINDS = {
    "infeasible": "No cluster in range meets the target",
    "dropped": "Dearer than the ranked ones",
    "quality": "Below the asked quality",
    "refused": "Cannot run",
}
"""Kinds of candidates that are not ranked, in words."""


def sentence(plan: Plan) -> str:
    """Return the answer in a sentence or two."""
    if not plan.ranked:
        goal, load = goal_text(plan), plan.spec.load
        infeasible = [one for one in plan.unranked if one.kind == "infeasible"]
        close = infeasible or plan.unranked
        reasons = "; ".join(f"{_series(plan, one.candidate)}: {one.reason}" for one in close[:2])
        start = "" if infeasible else "No candidate could run: "
        return f"No cluster of at most {plan.spec.max_gpus} GPUs serves {load} with {goal}. {start}{reasons}."
    best, *others = next(iter(plan.works.values()))
    usd = best.result.numbers["usd_per_image"]
    carries, fails = best.headroom
    return "".join(
        [
            answer_words(plan),
            "" if usd is None else f", ${1000 * usd:.2f} per 1,000 {product(plan)}",
            ". It carries this load" if carries == 1 else f". It carries {carries:g} times the load",
            "" if fails is None else f" and misses the target at {fails:g} times",
            f"; {_slower_words(best)}.",
            _saving_words(best),
            _cache_words(best),
            *(f" Next: {cluster_name(plan, one.result)}{_price_words(one.result)}." for one in others[:1]),
        ]
    )


def answer_words(plan: Plan) -> str:
    """Return the best cluster, what it serves and its price, without a full stop."""
    best = plan.ranked[0].result
    return f"{cluster_name(plan, best)} serves {plan.spec.load} with {goal_text(plan)}{_price_words(best)}"


def goal_text(plan: Plan) -> str:
    """Return the targets in words."""
    return " and ".join(target.text for target in plan.spec.targets)


def cluster_name(plan: Plan, result: ClusterResult) -> str:
    """Return a cluster in a few words."""
    return f"{result.cluster} with {design_name(plan, result.candidate)}"


def design_name(plan: Plan, candidate: Candidate) -> str:
    """Return the design of a candidate, with its models if those of the clusters that ran differ."""
    return f"{candidate.design}{_models(plan, candidate)}"


def _short(design: str) -> str:
    """Return a design with the last part of each key, where there is little room."""
    return re.sub(r"[\w.]+\.(\w+)=", r"\1=", design)


def _models(plan: Plan, candidate: Candidate) -> str:
    """Return the models of a candidate after a comma; empty if all clusters that ran have the same."""
    has_choice = len({one.candidate.models for one in plan.clusters}) > 1
    return f", {candidate.models}" if has_choice else ""


def _series(plan: Plan, candidate: Candidate) -> str:
    """Return the name of a candidate in the legend."""
    return f"{design_name(plan, candidate)} on {candidate.gpus}"


def product(plan: Plan) -> str:
    """Return what the models of a plan make: ``images`` or ``videos``."""
    return "videos" if any(makes_videos(one.summary) for one in plan.ranked) else "images"


def _price_words(result: ClusterResult) -> str:
    return ", no price being known" if result.usd_per_h is None else f" for ${result.usd_per_h:.2f} per hour"


def _slower_words(best: Ranked) -> str:
    known = "the error that its times are known to" if best.error_is_stated else "an example, as no error is stated"
    if best.gpus_if_slower is None:
        needed = f"more than {best.result.candidate.devices(best.most_gpus)} GPUs would be needed"
    elif best.gpus_if_slower == best.result.devices:
        needed = "it still does"
    else:
        needed = f"{_gpus(best.gpus_if_slower)} would be needed"
    return f"if its service took {_share(best.error)} longer ({known}), {needed}"


def _saving_words(best: Ranked) -> str:
    usd_per_h, gpus = (None, None) if best.saving is None else (best.saving.usd_per_h, best.saving.gpus)
    saved = [f"${usd_per_h:,.2f} per hour"] if usd_per_h and usd_per_h > 0 else []
    saved += [_gpus(gpus)] if gpus and gpus > 0 else []
    return f" Beside the baseline it saves {' and '.join(saved)}." if saved else ""


def _cache_words(best: Ranked) -> str:
    """Return what the cluster needs while its cache begins empty; empty if the cache was not searched both ways."""
    warming = best.warming
    if warming is None:
        return ""
    lasts = f"{warming.requests:,} requests" + ("" if warming.hours is None else f", {duration(3600 * warming.hours)}")
    costs = f", ${warming.usd:,.2f} more in all" if warming.usd else ""
    if best.from_empty is not None and best.from_empty.devices == best.result.devices:
        return " It also meets the target while its cache is empty."
    if best.from_empty is None:
        return f" Its cache is warm: from an empty one no cluster in range meets the target ({lasts})."
    return f" Its cache is warm; until it is ({lasts}{costs}) it takes {best.from_empty.cluster}."


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _share(value: float) -> str:
    """Return a share of 1 as per cent with three digits, without a line break before the sign."""
    return f"{number(100 * value, 3)}\N{NO-BREAK SPACE}%"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of ranked clusters.

    Attributes:
        unit: below the title; empty without one.
        text: the cell of a cluster.
        is_name: True if the cells are words, which are aligned to the left.
    """

    title: str
    unit: str
    text: Callable[[Ranked], str]
    is_name: bool = False


def columns(plan: Plan) -> list[Column]:
    """Return the columns of the ranking that have a value for some cluster."""
    usd_1000 = f"$ per 1,000 {product(plan)}"
    has_prices = any(one.result.usd_per_h is not None for one in plan.ranked)
    usd_per_h = Column("$ per hour", "", lambda one: _dollars(one.result.usd_per_h, NO_PRICE))
    made = [
        Column("cluster", "", lambda one: one.result.cluster, is_name=True),
        Column("design", "", lambda one: design_name(plan, one.result.candidate), is_name=True),
        *([usd_per_h] if has_prices else []),
        Column("saving", "$ per hour", _usd_saving) if has_prices else Column("saving", "GPUs", _gpus_saving),
        _target_column(plan.spec.targets[0]),
        Column(usd_1000, "", lambda one: _dollars(one.result.numbers["usd_per_image"], DASH, 1000)),
        Column("quality", "", _reader("quality")),
        Column("load up to", "", lambda one: f"{one.headroom[0]:g}x" + (" or more" * (one.headroom[1] is None))),
        Column("GPUs at error", "", _gpus_at_error),
        Column("cache empty", "", _from_empty, is_name=True),
        Column("service times", "", basis, is_name=True),
    ]
    return _drop_empty(plan, made)


def details(plan: Plan) -> list[Column]:
    """Return the columns of what a reader looks up: every latency, energy, and the least number of GPUs."""
    made = [
        Column("cluster", "", lambda one: one.result.cluster, is_name=True),
        Column("design", "", lambda one: design_name(plan, one.result.candidate), is_name=True),
        *map(_target_column, plan.spec.targets[1:]),
        *map(_beside_column, plan.spec.targets),
        *(Column(name, "s", _reader(f"{name}_s")) for name in ("mean", "p50", "p90", "p95", "p99")),
        Column(f"energy per {product(plan)[:-1]}", "kJ", _reader("energy_j_per_image", 0.001)),
        Column("GPUs at least", "", lambda one: f"{one.gpus_kept_busy:.1f}"),
        Column(
            f"$ per 1,000 {product(plan)} at the mean rate",
            "",
            lambda one: _dollars(one.usd_per_image_at_mean, DASH, 1000),
        ),
        Column("seeds", "", lambda one: str(one.result.replications)),
    ]
    return _drop_empty(plan, made)


def _drop_empty(plan: Plan, made: Sequence[Column]) -> list[Column]:
    """Return the columns that have a value for some cluster."""
    return [column for column in made if any(column.text(one) != DASH for one in plan.ranked)]


def _title(target: Target) -> tuple[str, str]:
    """Return the title and the unit of the number that a target bounds."""
    kind = kind_of(target.key)
    name = target.key.removeprefix("latency_s.").replace("queue_s.", "queue ")
    if target.limit is not None and target.key.endswith(".violation_rate"):
        name = f"share over {target.limit}"
    return name, "" if kind is None else kind.unit


def _target_column(target: Target) -> Column:
    name, unit = _title(target)
    return Column(name, unit, _reader(target.key, 100.0 if unit == "%" else 1.0))


def _beside_column(target: Target) -> Column:
    name, unit = _title(target)

    def text(one: Ranked) -> str:
        spread, scale = one.beside_first.get(target.key), 100.0 if unit == "%" else 1.0
        if spread is None:
            return DASH
        mean, low, high = (number(scale * value, 3) for value in (spread.mean, spread.low, spread.high))
        return f"{mean} ({low} to {high})"

    return Column(f"{name} less that of the first", unit, text)


def _usd_saving(one: Ranked) -> str:
    return _no_saving(one) if one.saving is None else _dollars(one.saving.usd_per_h, DASH)


def _gpus_saving(one: Ranked) -> str:
    return _no_saving(one) if one.saving is None or one.saving.gpus is None else str(one.saving.gpus)


def _no_saving(one: Ranked) -> str:
    return "baseline" if one.result.candidate.is_baseline else DASH


def _from_empty(one: Ranked) -> str:
    if one.warming is None:
        return DASH
    return "none in range" if one.from_empty is None else one.from_empty.cluster


def _reader(name: str, scale: float = 1.0) -> Callable[[Ranked], str]:
    return lambda one: _number(one, name, scale)


def _number(one: Ranked, name: str, scale: float = 1.0) -> str:
    value = one.result.numbers[name]
    return DASH if value is None else number(scale * value, 3, zeros=True)


def _dollars(usd: float | None, unknown: str, scale: float = 1.0) -> str:
    return unknown if usd is None else f"{scale * usd:,.2f}"


def _gpus_at_error(one: Ranked) -> str:
    if one.gpus_if_slower is None:
        return f"over {one.result.candidate.devices(one.most_gpus)}"
    return str(one.gpus_if_slower)


def basis(one: Ranked) -> str:
    """Return where the service times come from, with their known error, by model if they differ."""
    texts = {
        row["model"]: row["basis"]
        + (", error not known" if row["service_error"] is None else f", known to {_share(row['service_error'])}")
        for row in one.summary["models"]
    }
    if len(set(texts.values())) == 1:
        return str(next(iter(texts.values())))
    return "; ".join(f"{model} {text}" for model, text in texts.items())


def headers(plan: Plan) -> list[Header]:
    """Return the header of each ranked cluster, from its first run."""
    return [
        replace(
            header(one.summary, one.result.candidate.config(one.result.gpus, plan.spec.seed, 1.0, 1.0)),
            rests_on=one.rests_on,
        )
        for one in plan.ranked
    ]


def facts(abouts: Sequence[Header]) -> list[tuple[str, str]]:
    """Return the rows of the first header, which is that of the answer."""
    return [(name, text) for name, text in abouts[0].rows if text] if abouts else []


def table_lines(plan: Plan) -> list[str]:
    """Return the ranked table as aligned lines, then a line for each candidate that is not ranked."""
    shown = columns(plan)
    titles = [f"{column.title} [{column.unit}]" if column.unit else column.title for column in shown]
    cells = [titles, *([column.text(one) for column in shown] for one in plan.ranked)] if plan.ranked else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    if len(plan.works) > 1:
        rest = iter(lines[1:])
        groups = ((f"{work}:", *islice(rest, len(ones))) for work, ones in plan.works.items())
        lines = [lines[0], *(line for group in groups for line in group)]
    about = [f"{name}: {text}" for name, text in facts(headers(plan))]
    unranked = [f"{one.kind}: {one.candidate.name}: {one.reason}" for one in plan.unranked]
    return [*about, *lines, *unranked, *plan.notes]


def as_json(plan: Plan, command: str) -> dict[str, Any]:
    """Return the content of plan.json. Latencies are in seconds, rates per minute, prices in US$."""
    return {
        "schema": 1,
        "command": command,
        "question": asdict(plan.spec) | {"targets": [target.text for target in plan.spec.targets]},
        "answer": sentence(plan),
        "ranked": [
            _cluster(one.result)
            | {
                "header": dict(about.rows),
                "headroom": {"carries": one.headroom[0], "misses": one.headroom[1], "tried": list(HEADROOM_FACTORS)},
                "service_error": one.error,
                "service_error_is_stated": one.error_is_stated,
                "gpus_if_service_error": one.gpus_if_slower,
                "work": one.work,
                "cache": one.result.candidate.cache,
                "saving": None if one.saving is None else asdict(one.saving),
                "beside_first": {key: asdict(spread) for key, spread in one.beside_first.items()} or None,
                "from_empty": None if one.from_empty is None else _cluster(one.from_empty),
                "warming": None if one.warming is None else asdict(one.warming),
                "usd_per_image_at_mean_rate": one.usd_per_image_at_mean,
                "gpus_at_least": one.gpus_kept_busy,
                "not_monotone_at": list(one.not_monotone),
                "models": one.summary["models"],
                "assumptions": one.summary["assumptions"],
            }
            for one, about in zip(plan.ranked, headers(plan), strict=True)
        ],
        "not_ranked": [_unranked_json(one) for one in plan.unranked],
        "clusters": [_cluster(one) for one in plan.clusters],
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


def _unranked_json(one: Unranked) -> dict[str, Any]:
    return {
        "design": one.candidate.design,
        "models_choice": one.candidate.models,
        "gpu": one.candidate.gpus,
        "kind": one.kind,
        "reason": one.reason,
        "usd_per_h_at_least": one.usd_per_h,
        "best": None if one.best is None else _cluster(one.best),
    }


def figure(plan: Plan) -> Spec | None:
    """Return the figures of the page as one: cost and latency of the clusters, headroom of the ranked ones.

    None if no cluster ran.
    """
    drawn = drawn_clusters(plan)
    styles = _styles(plan, drawn)
    charts = [chart for part in _figures(plan, drawn, styles) for chart in part.charts] if drawn else []
    return picture(charts, styles) if charts else None


def drawn_clusters(plan: Plan) -> list[ClusterResult]:
    """Return the clusters to draw: those that meet the targets, and of the others no saturated ones.

    Their p95 is within ten times the lowest. Of a cache that was searched in both states, the warm one is drawn.
    """
    warm = {one.candidate.name for one in plan.clusters if one.candidate.cache == "warm"}
    drawn = [one for one in plan.clusters if one.candidate.cache != "empty" or one.candidate.name not in warm]
    known = [(p95_s, one) for one in drawn if (p95_s := one.numbers["p95_s"]) is not None]
    fastest_s = min((p95_s for p95_s, _ in known), default=0.0)
    return [one for p95_s, one in known if one.meets or p95_s <= 10 * fastest_s]


def _styles(plan: Plan, results: Sequence[ClusterResult]) -> dict[str, SeriesStyle]:
    """Return the style of each candidate, by name."""
    return {
        name: SeriesStyle(COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else (0, (5, 1.5)), "o")
        for number, name in enumerate(dict.fromkeys(_series(plan, one.candidate) for one in results))
    }


def html(plan: Plan, command: str) -> str:
    """Return the page to send: question, answer, what it rests on, figures, ranking, assumptions, the command."""
    drawn, goal, abouts = drawn_clusters(plan), goal_text(plan), headers(plan)
    styles = _styles(plan, drawn)
    prices = {kind: price for one in plan.clusters for kind, price in one.candidate.prices.items()}
    differing = [row for row in split_rows(abouts)[1] if all(row[1])] if abouts else []
    body = render(
        "mezzotint.sim.plan",
        "plan.html.jinja",
        notes=plan.notes,
        unranked=[_unranked_cells(plan, one) for one in plan.unranked],
        columns=columns(plan),
        details=details(plan),
        works=plan.works,
        at_mean=any(one.usd_per_image_at_mean is not None for one in plan.ranked),
        has_caches=any(one.warming is not None for one in plan.ranked),
        has_savings=any(one.saving is not None for one in plan.ranked),
        differing=("cluster", *(name for name, _ in differing)) if differing else (),
        facts_of=[
            (cluster_name(plan, one.result), *(values[row] for _, values in differing))
            for row, one in enumerate(plan.ranked)
        ],
        assumptions=_assumptions(plan),
        assumed=section,
        unstated=None if all(one.error_is_stated for one in plan.ranked) else UNSTATED_ERROR,
        command=command,
        prices=[(kind, f"{price.usd_per_gpu_h:,.2f}", price.source) for kind, price in prices.items()],
        goal=goal,
        order="the cheapest first" if prices else "the smallest first",
    )
    return page(
        f"{plan.spec.model}: what to rent for {goal}",
        sentence(plan),
        _figures(plan, drawn, styles) if drawn else [],
        styles,
        Markup(body),
        generator=command,
        warnings=warnings(plan),
        facts=facts(abouts),
    )


def _assumptions(plan: Plan) -> list[Stated]:
    """Return the assumptions of the ranked clusters, each once, with the designs that rest on it if not all do."""

    def designs(members: Sequence[Ranked]) -> str:
        names = dict.fromkeys(one.result.candidate.design for one in members)
        return "" if len(members) == len(plan.ranked) else ", ".join(names)

    return collect(plan.ranked, lambda one: one.summary, designs)


def _unranked_cells(plan: Plan, one: Unranked) -> tuple[str, str, str]:
    """Return the candidate, why it is not ranked, and the reason with the best cluster that it reached."""
    kind, reason = KINDS[one.kind], one.reason
    if one.usd_per_h is not None:
        kind += f": US$ {one.usd_per_h:,.2f} per hour or more"
    if one.best is not None and one.kind == "infeasible":
        latencies = (f"{name} {number(one.best.numbers[f'{name}_s'], 3)} s" for name in ("p50", "p95", "p99"))
        reason += f". Best reached: {one.best.gpus} GPUs, {', '.join(latencies)}"
    return _series(plan, one.candidate), kind, reason


def warnings(plan: Plan) -> list[str]:
    """Return what a reader must know beside the answer."""
    texts = _warnings_of_first(plan.ranked[0]) if plan.ranked else []
    if len(plan.works) > 1:
        texts.append("The clusters do not do the same work. Their prices and latencies do not compare across groups.")
    unpriced = {kind for one in plan.ranked for kind in one.result.candidate.unpriced}
    if unpriced:
        texts.append(
            f"No price is known of {', '.join(sorted(unpriced))}. Clusters without a price stand below the others, "
            "the smallest first. Give one with --prices."
        )
    if undecided := sum(one.is_undecided for one in plan.clusters):
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
    charts, caption = _cost_charts(plan, drawn, styles)
    figures = [PageFigure("What a lower latency costs", caption, charts)] if charts else []
    if plan.ranked:
        loads = pd.DataFrame(
            [
                (
                    _series(plan, candidate),
                    f"{rank}. {_short(candidate.design)} ({one.result.cluster}{_models(plan, candidate)})",
                    *one.headroom,
                )
                for ones in plan.works.values()
                for rank, one in enumerate(ones, 1)
                for candidate in [one.result.candidate]
            ],
            columns=[SERIES, "cluster", "load", "misses"],
        )
        misses = Field("misses", "misses the target at")
        chart = bars(loads, Field("load", HEADROOM_LOAD), styles, name=Field("cluster", "Cluster", ""), hover=[misses])
        caption = f"Loads tried: {', '.join(f'{factor:g}' for factor in HEADROOM_FACTORS)} times the asked."
        figures.append(PageFigure("Headroom", caption, [Chart("", chart)]))
    return figures


def _cost_charts(
    plan: Plan, drawn: Sequence[ClusterResult], styles: Mapping[str, SeriesStyle]
) -> tuple[list[Chart], str]:
    """Return a chart of each target's number and one of the quality over the price, and what they show.

    The price is the number of GPUs where no cluster has one.
    """
    made = product(plan)
    frame = pd.DataFrame(
        [
            {
                SERIES: _series(plan, one.candidate),
                "gpus": one.devices,
                "usd": math.nan if one.usd_per_h is None else one.usd_per_h,
                **{name: one.numbers[f"{name}_s"] for name in ("p50", "p95", "p99")},
                "usd_1000": 1000 * (one.numbers["usd_per_image"] or math.nan),
                "quality": one.numbers["quality"],
                "energy": (one.numbers["energy_j_per_image"] or math.nan) / 1000,
                "meets": {None: "-", True: "yes", False: "no"}[one.meets],
                **{target.text: one.numbers[target.key] for target in plan.spec.targets},
            }
            for one in drawn
        ]
    )
    has_prices = bool(frame["usd"].notna().any())
    unpriced = sum(one.usd_per_h is None for one in drawn)
    frame = frame.dropna(subset=["usd"]) if has_prices else frame
    across = Field("usd", "US$ per hour", ",.2~f", "log", _bounds(frame["usd"]))
    if not has_prices:
        across = Field("gpus", "GPUs, no price being known", ",d", "log", _bounds(frame["gpus"]))
    hover = (
        Field("gpus", "GPUs", ",d"), *(Field(name, f"{name} (s)") for name in ("p50", "p95", "p99")),
        Field("usd_1000", f"US$ per 1,000 {made}", ",.2f"), Field("energy", f"kJ per {made[:-1]}"),
        Field("quality", "quality"), Field("meets", "meets the target", ""),
    )  # fmt: skip
    charts = []
    for number_of, target in enumerate(plan.spec.targets):
        column, (name, unit) = f"target{number_of}", _title(target)
        known = frame.assign(**{column: frame[target.text]}).dropna(subset=[column])
        if known.empty:
            continue
        up = Field(column, f"{name} ({unit})" if unit == "s" else name, ".3~%" if unit == "%" else ",.3~r")
        if unit == "s" and known[column].min() > 0:  # a logarithmic axis has no zero
            ends = pd.Series([*known[column], target.bound])
            up = Field(column, up.title, up.format, "log", _bounds(ends))
        limits = [Limit(target.bound, target.text)]
        drawn_points = points(known, across, up, styles, hover=hover, connected=True, limits=limits)
        charts.append(Chart(f"Cost and {up.title}", drawn_points))
    known = frame.dropna(subset=["quality"])
    if len(set(known["quality"])) > 1:
        quality = Field("quality", "Quality (1: the model in full)", ".3f", "linear", _bounds(known["quality"]))
        charts.append(Chart("Cost and quality", points(known, across, quality, styles, hover=hover)))
    first = plan.spec.targets[0]
    caption = "Every cluster that ran, without those that are saturated."
    is_one_work = len({one.candidate.work for one in drawn}) == 1
    if first.side == "max" and is_one_work and (front := pareto_front(drawn, first.key)):
        less = "a lower price" if has_prices else "fewer GPUs"
        names = ", ".join(cluster_name(plan, one) for one in front[:MAX_NAMED])
        names += f" and {len(front) - MAX_NAMED} dearer" if len(front) > MAX_NAMED else ""
        caption += f" No other has both {less} and a lower {_title(first)[0]} than {names}."
    if has_prices and unpriced:
        caption += f" {unpriced} clusters without a price are left out."
    return charts, caption


def _bounds(values: "pd.Series[float]") -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    return low / 1.15, high * 1.15
