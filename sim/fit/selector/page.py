"""Output files of a selector calibration: YAML for a run, a table of the pairs, a figure and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mezzotint.figures.page import render
from mezzotint.figures.palette import BLUE, GREY, INK, VERMILION, house_style, panels
from mezzotint.figures.save import save_png
from mezzotint.files.atomic import atomic_files, check_ours, output_folder
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.selector.journal import Scores
from mezzotint.sim.fit.selector.options import Options
from mezzotint.sim.fit.selector.pairs import Pair
from mezzotint.sim.fit.selector.rule import Floats, Threshold

SELECTOR = "selector/measured.yaml"
PAIRS, FIGURE, PAGE = "pairs.parquet", "selector.png", "selector.md"
COLUMNS = 5


@dataclass(frozen=True, slots=True)
class SelectorCalibration:
    """A finished calibration.

    Attributes:
        facts: conditions of the measurement, in words.
        similarity: similarity of each pair, (n,).
        quality: share of the full image's score, (n, len(thresholds)); NaN if that score is 0 or less.
        thresholds: one per K, ascending.
        published: K -> the paper's threshold; empty if the paper's is for another similarity.
    """

    options: Options
    facts: Mapping[str, str]
    pairs: Sequence[Pair]
    scores: Sequence[Scores]
    similarity: Floats
    quality: Floats
    thresholds: Sequence[Threshold]
    published: Mapping[int, float]

    @property
    def warning(self) -> str | None:
        """The reason why the thresholds are meaningless; None if they are not."""
        weights = (self.options.weights, self.options.refine_weights if self.refines else None)
        return "random weights: the images, and so these thresholds, mean nothing" if "random" in weights else None

    @property
    def refines(self) -> bool:
        """True if a small model refines images (MoDM); False if the large model resumes latents (NIRVANA)."""
        return self.options.refine_family is not None

    @property
    def paper(self) -> str:
        """Paper of the published thresholds."""
        return "MoDM" if self.options.similarity == "image" else "NIRVANA"

    @property
    def min_similarities(self) -> dict[int, float]:
        """K -> threshold, for every K that has one."""
        return {
            threshold.k: threshold.min_similarity
            for threshold in self.thresholds
            if threshold.min_similarity is not None
        }

    @property
    def unscored(self) -> int:
        """Number of pairs without a quality."""
        return int((~np.isfinite(self.quality).all(axis=1)).sum())

    @property
    def command(self) -> str:
        """Command line of a run with these thresholds; FOLDER stands for the calibration's folder."""
        chosen = ["system=modm-throughput" if self.refines else "system=nirvana"]
        chosen += ["selector=measured", f"encoder={self.options.encoder}"]
        if not self.refines:
            chosen.append(f"cache.latents_at=[{','.join(map(str, self.min_similarities))}]")
        elif self.options.similarity == "text":
            chosen.append("similarity=text-to-text")
        return f"mezzotint run --config-dir FOLDER {' '.join(chosen)}"


def publish(calibration: SelectorCalibration, folder: Path) -> list[Path]:
    """Write all files of ``calibration`` under ``folder``, atomically, and return their paths.

    Without any threshold no YAML file is written, and that of an earlier call is removed.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    check_ours(folder / PAGE, ConfigError, "a page of calibrate selector", b"# How many steps")
    output_folder((folder / SELECTOR).parent, ConfigError)
    templates = {**({SELECTOR: "measured.yaml.jinja"} if calibration.min_similarities else {}), PAGE: "page.md.jinja"}
    files = [folder / name for name in (PAIRS, FIGURE, *templates)]
    gone = [] if calibration.min_similarities else [folder / SELECTOR]
    with atomic_files(files, ConfigError, gone) as (pairs, image, *texts):
        with pairs.open("wb") as file:
            pq.write_table(_table(calibration), file)
        save_png(draw(calibration), image)
        for temporary, template in zip(texts, templates.values(), strict=True):
            text = render("mezzotint.sim.fit.selector", template, calibration=calibration, figure=FIGURE)
            temporary.write_text(text, encoding="utf-8")
    return files


def _table(calibration: SelectorCalibration) -> pa.Table:
    """Return a table with one row per pair and K."""
    ks = calibration.options.ks
    scores = [[pair.by_k[k] for k in ks] for pair in calibration.scores]
    return pa.table(
        {
            "query": pa.array(np.repeat([pair.query for pair in calibration.pairs], len(ks)), pa.int64()),
            "cached": pa.array(np.repeat([pair.cached for pair in calibration.pairs], len(ks)), pa.int64()),
            "query_prompt": pa.array([pair.query_prompt for pair in calibration.pairs for _ in ks]),
            "cached_prompt": pa.array([pair.cached_prompt for pair in calibration.pairs for _ in ks]),
            "text_similarity": pa.array(np.repeat([pair.similarity for pair in calibration.pairs], len(ks))),
            "similarity": pa.array(np.repeat(calibration.similarity, len(ks))),
            "k": pa.array(np.tile(ks, len(scores)), pa.int32()),
            "score": pa.array(np.array(scores, np.float64).reshape(-1)),
            "full_score": pa.array(np.repeat([pair.full for pair in calibration.scores], len(ks))),
            "quality": pa.array(calibration.quality.reshape(-1), from_pandas=True),
        }
    )


@house_style()
def draw(calibration: SelectorCalibration) -> Figure:
    """Draw quality against similarity in a panel for each K, with alpha and the thresholds."""
    similarity, quality, thresholds = calibration.similarity, calibration.quality, calibration.thresholds
    alpha, published = calibration.options.alpha, calibration.published
    columns = min(COLUMNS, len(thresholds))
    rows = -(-len(thresholds) // columns)
    figure, axes = panels(columns, rows, width=max(4.2, 2.1 * columns + 0.6), height=2.5 * rows + 0.8)
    finite = quality[np.isfinite(quality)]
    reach = [published[threshold.k] for threshold in thresholds if threshold.k in published]
    limits = {
        "xlim": _limits([*similarity, *reach], 0.04),
        "ylim": _limits([*(finite if finite.size else (0.0, 1.0)), alpha], 0.06),
    }
    for panel, threshold, qualities in zip(axes.flat, thresholds, quality.T, strict=False):
        panel.scatter(similarity, qualities, s=12, color=BLUE, alpha=0.65, linewidths=0)
        panel.axhline(alpha, color=INK, linestyle="--", linewidth=1.0)
        measured = "none"
        if threshold.min_similarity is not None:
            panel.axvline(threshold.min_similarity, color=VERMILION)
            measured = f"{threshold.min_similarity:.3f}"
        if threshold.k in published:
            at_axis = panel.get_xaxis_transform()
            panel.plot(published[threshold.k], 0.02, "^", transform=at_axis, color=GREY, markersize=7, clip_on=False)
        panel.set(**limits, title=f"K = {threshold.k}: {measured}")
    for panel in axes.flat[len(thresholds) :]:
        panel.set_visible(False)
    figure.supxlabel("Similarity")
    figure.supylabel("Quality / full run's")
    handles = [
        Line2D([], [], color=BLUE, marker="o", markersize=4, linestyle="", label="pair"),
        Line2D([], [], color=INK, linestyle="--", linewidth=1.0, label=f"α = {alpha:g}"),
        Line2D([], [], color=VERMILION, label="threshold measured here"),
    ]
    if reach:
        handles.append(Line2D([], [], color=GREY, marker="^", linestyle="", label=f"{calibration.paper}'s threshold"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    if calibration.warning:
        figure.suptitle(calibration.warning, fontsize=8.5, color=VERMILION)
    return figure


def _limits(values: Sequence[float], margin: float) -> tuple[float, float]:
    air = margin * (max(values) - min(values)) + 1e-3
    return min(values) - air, max(values) + air
