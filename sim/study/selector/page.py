"""What a selector calibration leaves behind: YAML that a run reads, the pairs as a table, a figure, a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from conf.atomic import atomic_files, check_ours
from sim.errors import ConfigError
from sim.study.selector.figure import draw
from sim.study.selector.journal import Scores
from sim.study.selector.pairs import Pair
from sim.study.selector.rule import Floats, Threshold

SELECTOR = "selector/measured.yaml"
PAIRS, FIGURE, PAGE = "pairs.parquet", "selector.png", "selector.md"


@dataclass(frozen=True, slots=True)
class Findings:
    """A finished calibration.

    Attributes:
        facts: what was measured and how, in words: shown on the page and at the head of the YAML.
        warning: why the numbers mean nothing, None where they do.
        pairs, scores: (n,) each.
        similarity: (n,), what the thresholds are about.
        quality: (n, len(thresholds)), share of the full image's score.
        thresholds: one per K, rising.
        alpha: the quality asked for.
        steps: N.
        refines: whether a small model refined images (MoDM), rather than the large one resuming latents (NIRVANA).
        of_images: whether ``similarity`` is of prompt and image rather than of two prompts.
        encoder: the encoder's choice in conf/encoder.
        published: K -> the paper's threshold; empty where it is of another similarity.
        paper: whose they are.
    """

    facts: Mapping[str, str]
    warning: str | None
    pairs: Sequence[Pair]
    scores: Sequence[Scores]
    similarity: Floats
    quality: Floats
    thresholds: Sequence[Threshold]
    alpha: float
    steps: int
    refines: bool
    of_images: bool
    encoder: str
    published: Mapping[int, float]
    paper: str

    @property
    def at_least(self) -> dict[int, float]:
        """K -> similarity, of those that have one."""
        return {each.k: each.at_least for each in self.thresholds if each.at_least is not None}

    @property
    def command(self) -> str:
        """What runs a system with these thresholds, but for the folder."""
        chosen = ["system=modm-throughput" if self.refines else "system=nirvana"]
        chosen += ["selector=measured", f"encoder={self.encoder}"]
        if not self.refines:
            chosen.append(f"cache.latents_at=[{','.join(map(str, self.at_least))}]")
        elif not self.of_images:
            chosen.append("space=text")
        return f"mezzotint run --config-dir FOLDER {' '.join(chosen)}"


def publish(found: Findings, folder: Path) -> list[Path]:
    """Write all files of ``found`` under ``folder``, each whole or not at all.

    Where no K has a threshold there is nothing that a run could read: the YAML files are then absent, and those of
    an earlier call removed.

    Returns:
        the files that were written.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    check_ours(folder / PAGE, ConfigError, "a page of calibrate selector", b"# How many steps")
    try:
        (folder / SELECTOR).parent.mkdir(parents=True, exist_ok=True)
        written = {SELECTOR: _selector(found)}
        if not found.at_least:
            for name in written:
                (folder / name).unlink(missing_ok=True)
            written = {}
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); name another folder with -o") from error
    texts = written | {PAGE: _page(found)}
    with atomic_files([folder / name for name in (PAIRS, FIGURE, *texts)], ConfigError) as (pairs, image, *others):
        with pairs.open("wb") as file:
            pq.write_table(_table(found), file)
        figure = draw(
            found.similarity, found.quality, found.thresholds, found.alpha, found.published, found.paper, found.warning
        )
        figure.savefig(image, format="png")
        for temporary, text in zip(others, texts.values(), strict=True):
            temporary.write_text(text, encoding="utf-8")
    return [folder / name for name in (*written, PAIRS, FIGURE, PAGE)]


def _head(found: Findings) -> str:
    lines = [f"{what}: {value}" for what, value in found.facts.items()]
    if found.warning:
        lines.insert(0, f"WARNING: {found.warning}")
    return "".join(f"# {line}\n" for line in lines)


def _selector(found: Findings) -> str:
    table = ", ".join(f"{k}: {limit:.6f}" for k, limit in found.at_least.items())
    without = [str(each.k) for each in found.thresholds if each.at_least is None]
    said = f"# no similarity of the pairs sufficed for K = {', '.join(without)}: left out\n" if without else ""
    return (
        "# How many steps a similarity allows to skip, measured by `mezzotint calibrate selector`.\n"
        f"# {found.command}\n{_head(found)}{said}"
        "_target_: sim.reuse.selector.Thresholds\n"
        f"at_least: {{{table}}}\n"
        f"of_steps: {found.steps}\n"
        "strict: false  # the pairs at a threshold were good enough themselves\n"
        f"alpha: {found.alpha:g}\n"
        "# quality=alpha asks for alpha_for too: the models that this was measured on, by their names in profiles,\n"
        "# the space, and the table once more. conf/selector/nirvana.yaml has one.\n"
    )


def _table(found: Findings) -> pa.Table:
    """A row per pair and K."""
    ks = [each.k for each in found.thresholds]
    count = len(found.pairs)
    scores = [[each.by_k[k] for k in ks] for each in found.scores]
    return pa.table(
        {
            "query": pa.array(np.repeat([pair.query for pair in found.pairs], len(ks)), pa.int64()),
            "cached": pa.array(np.repeat([pair.cached for pair in found.pairs], len(ks)), pa.int64()),
            "query_prompt": pa.array([pair.query_prompt for pair in found.pairs for _ in ks]),
            "cached_prompt": pa.array([pair.cached_prompt for pair in found.pairs for _ in ks]),
            "text_similarity": pa.array(np.repeat([pair.similarity for pair in found.pairs], len(ks))),
            "similarity": pa.array(np.repeat(found.similarity, len(ks))),
            "k": pa.array(np.tile(ks, count), pa.int32()),
            "score": pa.array(np.array(scores, np.float64).reshape(-1)),
            "full_score": pa.array(np.repeat([each.full for each in found.scores], len(ks))),
            "quality": pa.array(found.quality.reshape(-1), from_pandas=True),
        }
    )


def _page(found: Findings) -> str:
    published = f" {found.paper} |" if found.published else ""
    rows = []
    for each in found.thresholds:
        own = "none suffices" if each.at_least is None else f"{each.at_least:.4f}"
        if each.at_least is not None and each.at_least != each.alone:
            own += " (raised)"
        worst, mean = (f"{value:.4f}" if np.isfinite(value) else "-" for value in (each.worst, each.mean))
        theirs = f" {found.published[each.k]:g} |" if each.k in found.published else " - |" if published else ""
        rows.append(f"| {each.k} | {own} | {each.pairs} | {worst} | {mean} |{theirs}")
    unscored = int((~np.isfinite(found.quality).all(axis=1)).sum())
    notes = [
        "Quality is the image's score over that of the full run's image.",
        "*raised*: by itself this K would do with a lower similarity than a smaller K; thresholds never fall as K "
        "grows, and a K for which none suffices leaves out the larger ones.",
        "Pairs are drawn evenly over the range of similarities, not as traffic brings them, so that every part of a "
        "curve rests on as many.",
    ]
    if unscored:
        notes.append(f"{unscored} pairs have no quality: their full image scores 0 or less. They count as bad.")
    if found.published:
        notes.append(
            f"{found.paper}'s thresholds are of its own model, its metric and CLIP's similarity: to be compared in "
            "shape only."
        )
    end = "|---|---|---|---|---|" + ("---|" if published else "")
    parts = [
        "# How many steps a similarity allows to skip",
        f"**{found.warning}**" if found.warning else "",
        "\n".join(f"- {what}: {value}" for what, value in found.facts.items()),
        f"| K | similarity at least | pairs there | worst quality | mean quality |{published}\n{end}\n"
        + "\n".join(rows),
        f"![Quality against similarity, a panel for each K]({FIGURE})",
        "\n\n".join(notes),
        f"`{found.command}` runs {'MoDM' if found.refines else 'NIRVANA'} with these thresholds, FOLDER being this one."
        if found.at_least
        else "There is no YAML for a run to read: no K has a threshold.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
