"""`mezzotint calibrate selector` from options to files: with planted scores, and on tiny live models."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("torchmetrics")

import mezzotint.sim.cli  # noqa: E402
from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.quality import ClipWeights, PickScore  # noqa: E402
from mezzotint.backends.quality.clip import PICKSCORE, PICKSCORE_TOKENIZER  # noqa: E402
from mezzotint.sim.cache.selector import Thresholds  # noqa: E402
from mezzotint.sim.core.errors import ConfigError  # noqa: E402
from mezzotint.sim.fit.selector import live  # noqa: E402
from mezzotint.sim.fit.selector.journal import Scores  # noqa: E402
from mezzotint.sim.fit.selector.options import Options  # noqa: E402
from mezzotint.sim.fit.selector.pairs import Pair  # noqa: E402
from mezzotint.sim.run.commands import run_command  # noqa: E402
from mezzotint.sim.run.config.build import build  # noqa: E402
from mezzotint.traces.error import TraceError  # noqa: E402
from mezzotint.traces.sources.synthetic import Synthetic  # noqa: E402
from mezzotint.traces.table.trace import write  # noqa: E402
from tests.traces.lab import tiny_clip  # noqa: E402

TINY = ["--family", "sdxl", "--scale", "tiny", "--size", "64", "--requests", "200"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def calibrate(folder: Path, *words: str) -> int:
    return run_command("calibrate selector", [*TINY, "-o", str(folder), *words])


class Planted:
    """Scores that are a known function of similarity and K, in place of models. Counts its calls."""

    def __init__(self, quality: Callable[[float, int], float], stop_after: int | None = None) -> None:
        self.quality, self.stop_after = quality, stop_after
        self.seen: list[tuple[int, int]] = []

    def __call__(self, pair: Pair) -> Scores:
        if len(self.seen) == self.stop_after:
            raise KeyboardInterrupt
        self.seen.append((pair.query, pair.cached))
        scores = {k: 30 * self.quality(pair.similarity, k) for k in (5, 10, 15, 20, 25)}
        return Scores(similarity=pair.similarity, full=30.0, by_k=scores)


def falls_with_k(similarity: float, k: int) -> float:
    """Reaches 0.9 at s = 1 - 2.5 / K: 0.5, 0.75, 0.833, 0.875, 0.9."""
    return 1 - (1 - similarity) * k / 25


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Planted], Planted]:
    def put(planted: Planted) -> Planted:
        monkeypatch.setattr("mezzotint.sim.fit.selector.live.open_models", lambda options: planted)
        return planted

    return put


def test_planted_crossing_becomes_the_written_threshold(tmp_path: Path, plant: Any, capsys: Any) -> None:
    """The simulator builds its selector from the written file."""
    plant(Planted(falls_with_k))
    assert calibrate(tmp_path, "--pairs", "60") == 0
    written = yaml.safe_load((tmp_path / "selector" / "measured.yaml").read_text())
    built = build(written, "selector")
    assert isinstance(built, Thresholds)
    table = pq.read_table(tmp_path / "pairs.parquet").to_pandas()
    assert len(table) == 60 * 5
    for k, limit in built.thresholds.items():
        rows = table[table["k"] == k]
        assert limit == rows.loc[rows["similarity"] > 1 - 2.5 / k + 1e-9, "similarity"].min()
        np.testing.assert_allclose(rows["quality"], [falls_with_k(s, k) for s in rows["similarity"]])
        assert built.skip(limit) == max(other for other, low in built.thresholds.items() if low <= limit)
    assert (built.of_steps, built.strict) == (50, False)
    assert "random weights" in (tmp_path / "selector.md").read_text()
    files = ("pairs.parquet", "selector.png", "selector/measured.yaml", "selector.md")
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in files]


@pytest.mark.parametrize("small", [(), ("--refine-family", "sana", "--refine-scale", "tiny")])
def test_run_takes_the_written_thresholds_unchanged(tmp_path: Path, plant: Any, small: tuple[str, ...]) -> None:
    """No K of the paper stays in the table, although Hydra merges mappings."""
    plant(Planted(falls_with_k))
    calibrate(tmp_path, "--pairs", "30", "--ks", "5,10", *small)
    folder = tmp_path / "out"
    head = (tmp_path / "selector" / "measured.yaml").read_text()
    command = next(line for line in head.splitlines() if "mezzotint run" in line).removeprefix("# mezzotint ")
    words = command.replace("FOLDER", str(tmp_path)).split()
    assert mezzotint.sim.cli.main([*words, "trace.requests=60", "preload=30", f"run.dir={folder}"]) == 0
    ran = yaml.safe_load((folder / "config.yaml").read_text())
    written = yaml.safe_load((tmp_path / "selector" / "measured.yaml").read_text())
    assert ran["selector"] == written
    assert set(written["thresholds"]) == {5, 10}
    if small:
        assert ran["similarity"] == {"_target_": "mezzotint.traces.similarity.similarities.TextToText"}
    else:
        assert ran["cache"]["latents_at"] == [5, 10]


def test_no_pair_is_measured_twice(tmp_path: Path, plant: Any, capsys: Any) -> None:
    """Interrupts a calibration, then resumes, extends and repeats it with another alpha and rule."""
    first = plant(Planted(falls_with_k, stop_after=7))
    with pytest.raises(KeyboardInterrupt):
        calibrate(tmp_path, "--pairs", "20")
    assert "the same command goes on" in capsys.readouterr().err
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"conditions": {"half')  # a crash would leave such a line
    second = plant(Planted(falls_with_k))
    calibrate(tmp_path, "--pairs", "20")
    assert len(first.seen) == 7
    assert len(second.seen) == 13
    assert not set(first.seen) & set(second.seen)
    more = plant(Planted(falls_with_k))
    calibrate(tmp_path, "--pairs", "25")
    assert len(more.seen) == 5
    none = plant(Planted(falls_with_k))
    calibrate(tmp_path, "--pairs", "25", "--alpha", "0.5", "--rule", "mean")
    assert none.seen == []
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 25
    other = plant(Planted(falls_with_k))
    calibrate(tmp_path, "--pairs", "3", "--steps", "40")
    assert len(other.seen) == 3
    plant(Planted(falls_with_k))
    calibrate(tmp_path / "whole", "--pairs", "25", "--alpha", "0.5", "--rule", "mean")
    calibrate(tmp_path, "--pairs", "25", "--alpha", "0.5", "--rule", "mean")
    for name in ("selector/measured.yaml", "pairs.parquet", "selector.md"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_nan_score_is_journaled_and_not_measured_again(tmp_path: Path, plant: Any) -> None:
    for measured in (3, 0):
        planted = plant(Planted(lambda similarity, k: 1.0 if k == 5 else np.nan))
        assert calibrate(tmp_path, "--pairs", "3") == 0
        assert len(planted.seen) == measured


def test_insufficient_k_is_left_out_and_no_stale_table_stays(tmp_path: Path, plant: Any) -> None:
    plant(Planted(lambda similarity, k: 1.0 if k == 5 else 0.0))
    calibrate(tmp_path, "--pairs", "8")
    assert set(yaml.safe_load((tmp_path / "selector" / "measured.yaml").read_text())["thresholds"]) == {5}
    with pytest.raises(ConfigError, match=r"K = 5.*lower --alpha"):
        calibrate(tmp_path, "--pairs", "8", "--alpha", "1")
    assert not list(tmp_path.glob("s*/*.yaml"))


def test_resuming_from_its_own_latent_gives_quality_one(tmp_path: Path) -> None:
    """At full similarity a query resumes from the latent of its own prompt, so that its quality is 1. CLIP reads the
    first 77 tokens of these prompts alone."""
    repeats = Synthetic(requests=60, users=3, repeat_share=0.5, length_words=8.0).load(np.random.default_rng(1))
    write(repeats, tmp_path / "trace.parquet")
    words = ("--pairs", "8", "--steps", "6", "--ks", "1,3", "--alpha", "0.2")
    assert calibrate(tmp_path, "--trace", str(tmp_path / "trace.parquet"), *words) == 0
    table = pq.read_table(tmp_path / "pairs.parquet").to_pandas()
    same = table[table["query_prompt"] == table["cached_prompt"]]
    assert len(same)
    np.testing.assert_allclose(same["quality"], 1.0, atol=1e-5)
    assert (table.loc[table["similarity"] < 0.99, "quality"] < 1).all()
    assert (table["quality"].between(-1, 1 + 1e-6)).all()


def test_refinement_on_another_family_is_scored_by_clipscore(tmp_path: Path) -> None:
    """As MoDM: CLIPScore, CLIP's text-to-image similarity, and a small model of another family."""
    tiny_clip(tmp_path / "clip")
    options = {
        "--pairs": "3", "--steps": "4", "--ks": "1,2", "--alpha": "0.01", "--metric": "clipscore",
        "--similarity": "image", "--clip": str(tmp_path / "clip"), "--refine-family": "sana", "--refine-scale": "tiny",
    }  # fmt: skip
    with suppress(ConfigError):  # a random CLIP may score every full image below 0, and then no similarity suffices
        calibrate(tmp_path, *(word for option in options.items() for word in option))
    table = pq.read_table(tmp_path / "pairs.parquet").to_pandas()
    assert len(table) == 6
    assert table["score"].between(-100, 100).all()
    assert table["similarity"].between(-1, 1).all()
    assert (table["similarity"] != table["text_similarity"]).all()
    positive = table["full_score"] > 0
    np.testing.assert_allclose(table["quality"][positive], (table["score"] / table["full_score"])[positive])
    assert table["quality"][~positive].isna().all()
    line = json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[0])
    assert line["conditions"]["small"]["family"] == "sana"


@pytest.mark.parametrize(
    ("words", "refused", "message"),
    [
        ("--family dalle", BackendError, r"unknown model family 'dalle'; live families are"),
        ("--ks five", ConfigError, r"whole numbers"),
        ("--size 8by8", ConfigError, r"--size: found '8by8'"),
        ("--trace nowhere.parquet", TraceError, r"nowhere.parquet"),
        ("--ks 5,50", ConfigError, r"--ks: found 5,50, .*1 to 49"),
        ("--alpha 0", ConfigError, r"--alpha.*found '0'"),
        ("--pairs 500", TraceError, r"200 prompts make 199 pairs, expected 500"),
        ("--size 30 --pairs 2", BackendError, r"multiples of"),
        ("--metric ms-ssim --pairs 2", BackendError, r"64x64.*smallest side is 176"),
        ("--metric clipscore", ConfigError, r"openai/clip-vit-large-patch14.*--clip"),
        ("--metric pickscore", ConfigError, r"PickScore_v1.*--pickscore"),
        ("--metric clipscore --clip nowhere --pairs 2", BackendError, r"nowhere: a CLIP model.*--clip"),
        ("--refine-dtype float32", ConfigError, r"need --refine-family"),
    ],
)
def test_invalid_selector_option_is_refused(tmp_path: Path, words: str, refused: type[Exception], message: str) -> None:
    with pytest.raises(refused, match=message) as caught:
        calibrate(tmp_path, *words.split())
    assert "\n" not in str(caught.value)


def test_malformed_journal_line_is_named(tmp_path: Path, plant: Any) -> None:
    plant(Planted(falls_with_k))
    (tmp_path / "journal.jsonl").write_text('{"query": 1}\n')
    with pytest.raises(BackendError, match=r"journal.jsonl: line 1: .*name another folder with -o"):
        calibrate(tmp_path, "--pairs", "2")


def test_metric_loads_weights_only_if_it_needs_them(tmp_path: Path) -> None:
    asked = partial(Options, output=tmp_path, family="sdxl")
    dark, light = np.zeros((1, 16, 16, 3), np.uint8), np.full((1, 16, 16, 3), 255, np.uint8)
    psnr = live.metric(asked(metric="psnr"), None)
    assert psnr.score(dark, references=light) == pytest.approx([0.0])  # 10 log10(255^2 / 255^2) dB
    tiny_clip(tmp_path)
    scored = live.metric(asked(metric="pickscore", pickscore=str(tmp_path)), None).score(light, prompts=["a cat"])
    assert scored == pytest.approx(PickScore(ClipWeights(str(tmp_path))).score(light, prompts=["a cat"]))
    hub = live.metric(asked(metric="pickscore", allow_hub=True), None)
    assert isinstance(hub, PickScore)
    assert (hub.clip.weights, hub.clip.tokenizer) == (PICKSCORE, PICKSCORE_TOKENIZER)


def test_larger_k_with_a_lower_threshold_is_raised(tmp_path: Path, plant: Any) -> None:
    """K = 5 needs a similarity and K = 10 needs none: both get that of K = 5. Without random weights, no warning."""
    plant(Planted(lambda similarity, k: 1.0 if k == 10 else falls_with_k(similarity, 25)))
    assert calibrate(tmp_path, "--pairs", "40", "--ks", "5,10", "--weights", str(tmp_path), "--alpha", "0.5") == 0
    text = (tmp_path / "selector" / "measured.yaml").read_text()
    limits = yaml.safe_load(text)["thresholds"]
    assert limits[5] == limits[10]
    assert "WARNING" not in text
