"""Quality against similarity for each K, with the thresholds that follow (as NIRVANA's Fig. 9, MoDM's Fig. 5a)."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from conf.palette import BLUE, GREY, INK, VERMILION, house_style, panels
from sim.study.selector.rule import Floats, Threshold

COLUMNS = 5


@house_style()
def draw(
    similarity: Floats,
    quality: Floats,
    thresholds: Sequence[Threshold],
    alpha: float,
    published: Mapping[int, float],
    paper: str,
    warning: str | None,
) -> Figure:
    """A panel for each K: one point per pair, alpha across, our threshold down, the paper's as a tick below.

    ``similarity`` is (n,), ``quality`` (n, len(thresholds)), NaN not drawn; ``published`` K -> similarity of ``paper``.
    """
    columns = min(COLUMNS, len(thresholds))
    rows = -(-len(thresholds) // columns)
    figure, axes = panels(columns, rows, width=max(4.2, 2.1 * columns + 0.6), height=2.5 * rows + 0.8)
    finite = quality[np.isfinite(quality)]
    reach = [published[each.k] for each in thresholds if each.k in published]
    x_limits = _limits([*similarity, *reach], 0.04)
    y_limits = _limits([*(finite if finite.size else (0.0, 1.0)), alpha], 0.06)
    for index, each in enumerate(thresholds):
        panel = axes[index // columns][index % columns]
        panel.scatter(similarity, quality[:, index], s=12, color=BLUE, alpha=0.65, linewidths=0)
        panel.axhline(alpha, color=INK, linestyle="--", linewidth=1.0)
        panel.set(xlim=x_limits, ylim=y_limits)
        said = "none"
        if each.at_least is not None:
            panel.axvline(each.at_least, color=VERMILION)
            said = f"{each.at_least:.3f}"
        if each.k in published:
            below = panel.get_xaxis_transform()
            panel.plot(published[each.k], 0.02, "^", transform=below, color=GREY, markersize=7, clip_on=False)
        panel.set_title(f"K = {each.k}: {said}")
        if index % columns == 0:
            panel.set_ylabel("Quality, share of the full run's")
        if index >= len(thresholds) - columns:
            panel.set_xlabel("Similarity")
    for index in range(len(thresholds), rows * columns):
        axes[index // columns][index % columns].set_visible(False)
    handles = [
        Line2D([], [], color=BLUE, marker="o", markersize=4, linestyle="", label="a pair"),
        Line2D([], [], color=INK, linestyle="--", linewidth=1.0, label=f"α = {alpha:g}"),
        Line2D([], [], color=VERMILION, label="threshold measured here"),
    ]
    if reach:
        handles.append(Line2D([], [], color=GREY, marker="^", linestyle="", label=f"{paper}'s threshold"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    if warning:
        figure.suptitle(warning, fontsize=8.5, color=VERMILION)
    return figure


def _limits(values: Sequence[float], margin: float) -> tuple[float, float]:
    air = margin * (max(values) - min(values)) + 1e-3
    return min(values) - air, max(values) + air
