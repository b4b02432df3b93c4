"""Output files of a selector calibration: YAML for a run, a table of the pairs, and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mezzotint.figures.page import render
from mezzotint.files.atomic import atomic_files, check_ours, output_folder
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.selector.journal import Scores
from mezzotint.sim.fit.selector.options import Options
from mezzotint.sim.fit.selector.pairs import Pair
from mezzotint.sim.fit.selector.rule import Floats, Threshold

SELECTOR = "selector/measured.yaml"
PAIRS, PAGE = "pairs.parquet", "selector.md"


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
    files = [folder / name for name in (PAIRS, *templates)]
    gone = [] if calibration.min_similarities else [folder / SELECTOR]
    with atomic_files(files, ConfigError, gone) as (pairs, *texts):
        with pairs.open("wb") as file:
            pq.write_table(_table(calibration), file)
        for temporary, template in zip(texts, templates.values(), strict=True):
            text = render("mezzotint.sim.fit.selector", template, calibration=calibration)
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
