"""Panels of prompts: repeats, the nearest earlier prompt, similarity, clusters over days, the age of hits."""

from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from mezzotint.figures.palette import INK
from mezzotint.traces.describe.figures.axes import (
    Series,
    ages,
    annotate,
    draw_ranks,
    empty,
    logarithmic,
    published,
    rising,
    shares,
)
from mezzotint.traces.describe.prompts.coverage import LIMITS, Coverage, Shares
from mezzotint.traces.describe.prompts.nearest import CACHE, THRESHOLDS, YOUNG_S, Nearest
from mezzotint.traces.describe.prompts.prompt_similarity import GROUPS, PromptSimilarity
from mezzotint.traces.describe.prompts.repeats import Repeats
from mezzotint.traces.describe.prompts.survival import TOP, Survival

DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1.5, 1, 1.5)), (0, (1.2, 1.2)))


def frequency(panel: Axes, series: Series[Repeats]) -> None:
    draw_ranks(panel, [(look, part.times) for look, part in series])
    panel.set(xlabel="Distinct prompts, the most frequent first", ylabel="Times sent", title="Repeats")
    lines = [f"{len(part.age_s) / part.requests:.1%} repeat an earlier prompt" for _, part in series]
    annotate(panel, "\n".join(lines), 0.97, 0.95 - 0.04 * len(lines), left=False)


def repeat_age(panel: Axes, series: Series[Repeats]) -> None:
    ages_s = [(look, part.age_s) for look, part in series]
    ages(panel, ages_s, "Time since the same prompt was last sent", "Repeats no older", "Age of repeats")


def similarity(panel: Axes, series: Series[Nearest]) -> None:
    rising(panel, [(look, part.similarity) for look, part in series])
    for k, limit in published()["thresholds"].items():
        if k == "source":
            continue
        panel.axvline(limit, color=INK, linestyle="--", linewidth=0.8)
        panel.annotate(
            f"K={k}", (limit, 0.02), rotation=90, fontsize=7, ha="right", va="bottom", color=INK, xytext=(-1, 0),
            textcoords="offset points",
        )  # fmt: skip
    panel.set_xlim(min(float(np.percentile(part.similarity, 0.5)) for _, part in series), 1.0)
    shares(panel, "Requests no nearer")
    encoders = ", ".join(dict.fromkeys(part.encoder for _, part in series))
    panel.set(xlabel=f"Similarity ({encoders})", title="Nearest earlier prompt")
    annotate(panel, f"dashed: {published()['thresholds']['source']}", 0.03, 0.94)


def lag(panel: Axes, series: Series[Nearest]) -> None:
    rising(panel, [(look, part.lags) for look, part in series])
    logarithmic(panel, "x")
    shares(panel, "Hits no further back")
    panel.set(xlabel="Requests between", title=f"Lag of the nearest (hits above {THRESHOLDS[0]})")


def age(panel: Axes, series: Series[Nearest]) -> None:
    ages_s = [(look, age_s) for look, part in series if (age_s := part.hit_ages_s) is not None]
    if not ages_s:
        empty(panel, "needs times")
    title = f"Age of the nearest (hits above {THRESHOLDS[0]})"
    ages(panel, ages_s, "Age of the nearest earlier prompt", "Hits no older", title)


def hit_age(panel: Axes, series: Series[Nearest]) -> None:
    """Draw the age of the hits of a cache of the last requests, beside MoDM's."""
    paper = published()["hit_age"]
    limit_s, lines = paper["hours"] * 3600, []
    ages_s = [(look, age_s) for look, part in series if (age_s := part.cached_hit_ages_s) is not None]
    title = f"Hit age, cache of {CACHE:,}"
    ages(panel, ages_s, "Age of the prompt that is hit", "Hits no older", title, longest_s=YOUNG_S * 3)
    for look, age_s in ages_s:
        if len(age_s):
            lines.append(f"{look.label}: {(age_s <= limit_s).mean():.1%} at most {paper['hours']} h old")
    panel.plot([limit_s], [paper["share"]], marker="D", color=INK, linestyle="", zorder=5)
    arrow = {"arrowstyle": "->", "color": INK, "linewidth": 1.2}
    panel.annotate("", (limit_s, 1.0), (limit_s, paper["share"]), arrowprops=arrow)
    panel.axvline(limit_s, color=INK, linestyle="--", linewidth=0.8)
    lines.append(f"{paper['source']}: over {paper['share']:.0%}")
    annotate(panel, "\n".join(lines), 0.97, 0.05 + 0.035 * len(lines), left=False)


def others(panel: Axes, series: Series[Coverage]) -> None:
    """Draw the share of requests with a similar prompt of another user, over the number of prompts searched."""
    _covered(panel, [(look.colour, part.others) for look, part in series])
    panel.set(xlabel="Earlier prompts of others, at random", title="Coverage by others")


def recent(panel: Axes, series: Series[Coverage]) -> None:
    """Draw the share of requests with a similar prompt among the latest requests of any user."""
    _covered(panel, [(look.colour, part.recent) for look, part in series])
    panel.set(xlabel="Latest requests of any user", title="Coverage by the latest")


def _covered(panel: Axes, series: list[tuple[str, Shares]]) -> None:
    if not any(part for _, part in series):
        empty(panel, "too few requests")
        return
    for colour, part in series:
        for limit, dash in zip(LIMITS, DASHES, strict=True):
            values = [row[limit] for row in part.values()]
            panel.plot(list(part), values, color=colour, linestyle=dash, marker=".", markersize=4)
    logarithmic(panel, "x")
    shares(panel, "Requests with a similar prompt")
    _dashes(panel, [f"above {limit:g}" for limit in LIMITS], "upper left")


def _dashes(panel: Axes, labels: list[str], where: Any) -> None:
    lines = [Line2D([], [], color=INK, linestyle=dash, label=label) for label, dash in zip(labels, DASHES, strict=True)]
    panel.legend(handles=lines, fontsize=7.5, loc=where)


def groups(panel: Axes, series: Series[PromptSimilarity]) -> None:
    """Draw cosines of pairs: quartiles as boxes, 5 to 95 % as whiskers, the mean as a point."""
    for look, part in series:
        shift, width = look.offset(0.6)
        for position, group in enumerate(GROUPS):
            values = part.pairs[group]
            if not len(values):
                continue
            low, first, middle, third, high = np.percentile(values, (5, 25, 50, 75, 95))
            box = {"med": middle, "q1": first, "q3": third, "whislo": low, "whishi": high, "mean": values.mean()}
            panel.bxp(
                [box], [position + shift], widths=0.8 * width, showfliers=False, showmeans=True, patch_artist=True,
                manage_ticks=False, boxprops={"facecolor": look.colour, "alpha": 0.35, "edgecolor": look.colour},
                medianprops={"color": look.colour, "linewidth": 1.8},
                whiskerprops={"color": look.colour}, capprops={"color": look.colour},
                meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": look.colour, "markersize": 4},
            )  # fmt: skip
    panel.set_xticks(range(len(GROUPS)), [fill(group, 12) for group in GROUPS])
    panel.set_xlim(-0.6, len(GROUPS) - 0.4)
    panel.set_ylim(top=1.03)
    panel.grid(False, axis="x")
    panel.set(ylabel="Similarity of two prompts (cosine)", title=f"Likeness ({published()['likeness']['source']}b)")


def users(panel: Axes, series: Series[PromptSimilarity]) -> None:
    """Draw the mean similarity within a user's sessions against that between them."""
    for look, part in series:
        panel.scatter(part.inter, part.intra, s=14, color=look.colour, alpha=0.6, linewidths=0)
    panel.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=0.8)
    panel.set(
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
        xlabel="Between the user's sessions (mean cosine)",
        ylabel="Within the user's sessions (mean cosine)",
        title=f"Users ({published()['likeness']['source']}a)",
    )
    pairs = [(part.intra, part.inter) for _, part in series if len(part.intra)]
    above = [f"{(intra > inter).mean():.0%} of {len(intra)} users" for intra, inter in pairs]
    annotate(panel, f"above the line: {', '.join(above) or 'no user has both'}", 0.02, 0.04)


def clusters(panel: Axes, series: Series[Survival], *, eps: float) -> None:
    """Draw the share of the first day's top clusters that are still among the top, day by day."""
    last = max(part.days[-1] for _, part in series)
    for look, part in series:
        for top, dash in zip(TOP, DASHES, strict=True):
            if (left := part.left.get((eps, top))) is not None:
                share = [1.0, *left]
                panel.plot([1, *part.days], share, color=look.colour, linestyle=dash, marker=".", markersize=4)
    paper = published()["survival"]
    if eps == paper["eps"]:
        at, to = [paper["day"]] * 2, [0, paper["below"]]
        panel.plot(at, to, color=INK, linewidth=4, alpha=0.35, solid_capstyle="butt")
        annotate(panel, f"grey: {paper['source']}, day 2,\nbelow {paper['below']:.0%}", 0.97, 0.9, left=False)
    panel.set_xlim(1, max(last, 2))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not any((eps, top) in part.left for _, part in series for top in TOP):
        empty(panel, "no cluster on the first day")
    shares(panel, "Still among the top")
    panel.set(xlabel="Day", title=f"Popular clusters, eps {eps:g}")
    _dashes(panel, [f"top {top} %" for top in TOP], "upper right" if eps != paper["eps"] else "center right")
