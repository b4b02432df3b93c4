"""A similarity map is fitted on what the simulator itself would find in its FIFO caches."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.similarity_map.command import TARGETS
from mezzotint.sim.fit.similarity_map.fit import (
    KS,
    CacheReplays,
    PublishedValue,
    fit,
    misfit,
    predictions,
    published_values,
)
from mezzotint.sim.fit.similarity_map.replay import replay
from mezzotint.sim.papers.scorecard.targets import Target, load_targets
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.encoders.embeddings import embed
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.similarity.neighbours import cached_neighbours
from mezzotint.traces.similarity.similarities import TextToText
from mezzotint.traces.similarity.similarity_map import PiecewiseLinear
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.table.trace import write
from tests.sim.lab import configured

LIMITS = (0.6, 0.7, 0.85, 0.95)


@given(
    rows=st.integers(1, 60),
    prompts=st.integers(1, 12),
    preload=st.integers(0, 20),
    max_rows=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50)
def test_replay_matches_a_whole_cache_search(rows: int, prompts: int, preload: int, max_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(rows + preload, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = TextToText()
    similarity.bind(vectors, rng)
    found = replay(cached_neighbours(similarity, len(vectors), 0.5, max_rows, None), similarity, 0.7, prompts, preload)

    cache: list[int] = list(range(preload))[-prompts:]
    for row in range(preload, len(vectors)):
        best = max((float(vectors[row] @ vectors[held]) for held in cache), default=0.0)
        if best > 0.7:
            assert found[row - preload] == pytest.approx(best, abs=2e-6)
        else:
            assert np.isnan(found[row - preload])
            cache = [*cache, row][-prompts:]


@pytest.mark.parametrize("preload", [0, 100])
def test_replay_hit_rate_and_saving_match_the_simulator(tmp_path: Path, preload: int) -> None:
    trace = write(Synthetic(requests=600, history=0).load(np.random.default_rng(3)), tmp_path / "t.parquet")
    similarity, floor = TextToText(), 0.4
    similarity.bind(embed(trace, HashedNgrams()), np.random.default_rng(0))
    found = replay(cached_neighbours(similarity, len(trace), floor, 8, None), similarity, floor, 40, preload)
    ours = CacheReplays(floor, (np.sort(found[~np.isnan(found)]),) * 2, (len(found),) * 2).predicted(LIMITS)

    at = dict(zip((floor, *LIMITS, 1.0), (0.65, 0.75, 0.85, 0.90, 0.95, 1.0), strict=True))
    config = configured(
        "system=nirvana-no-predictor", "eviction=fifo", "search=exact", "index=immediate", "arrivals=closed",
        "cluster=a10g", "trace=file", f"trace.path={trace.path}", "cache.capacity=200", f"preload={preload}",
    )  # fmt: skip
    config["similarity_map"] = {
        "_target_": "mezzotint.traces.similarity.similarity_map.PiecewiseLinear",
        "at": at,
        "source": "a test",
    }
    summary = simulate(config).summary
    cache = summary["cache"]
    assert 0.1 < ours[0] < 0.9
    at_most_k = cache["hit_share_by_k"].get("25", 0.0) * cache["hit_rate"]
    assert [cache["hit_rate"], cache["compute_saving"], cache["hit_rate"], at_most_k] == pytest.approx(ours)


def made_up(seed: int = 0) -> CacheReplays:
    rng = np.random.default_rng(seed)
    similar = tuple(np.sort(rng.uniform(0.5, 1.0, hits)) for hits in (500, 700, 800, 850, 900))
    return CacheReplays(0.5, similar, (1000,) * 5)


def goals(found: CacheReplays, limits: tuple[float, ...]) -> list[PublishedValue]:
    return [PublishedValue(str(place), value, 0.01) for place, value in enumerate(found.predicted(limits))]


def test_fit_recovers_the_thresholds_that_gave_the_numbers() -> None:
    found = made_up()
    wanted = goals(found, LIMITS)
    best = fit(found, wanted)
    assert best.misfit == pytest.approx(0.0, abs=1e-9)
    assert best.limits[-1] == pytest.approx(LIMITS[-1], abs=0.01)
    assert sum(best.limits[:-1]) == pytest.approx(sum(LIMITS[:-1]), abs=0.03)
    other = fit(made_up(1), wanted)
    assert other.floor < other.limits[0] < other.limits[1] < other.limits[2] < other.limits[3] < 1
    rng = np.random.default_rng(2)
    for limits in np.sort(rng.choice(np.arange(0.51, 1.0, 0.01), (200, len(KS) - 1)), axis=1):
        if (np.diff(limits) > 0).all():
            assert misfit(made_up(1).predicted(limits), wanted) * 1.02 >= other.misfit


def test_only_targets_of_role_fit_are_fitted() -> None:
    listed = published_values(load_targets(TARGETS))
    assert [row.name.split(",")[0] for row in listed] == [*["N07-fifo"] * 4, *["N08-fifo"] * 4, "N04a", "N04b"]
    assert len(predictions(np.zeros((1, 5, len(KS))))[0]) == len(listed)
    other = Target(id="N07-fifo", what="w", role="predict", value=0.5)
    with pytest.raises(ConfigError, match="N07-fifo has role predict, expected fit"):
        published_values({"nirvana": [other]})


def test_written_similarity_map_can_be_used_by_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzotint.sim.fit.similarity_map.command.PRELOAD", 100)
    trace = write(Synthetic(requests=400, history=0).load(np.random.default_rng(3)), tmp_path / "t.parquet")
    words = ["calibrate", "similarity-map", "--trace", str(trace.path), "--floors", "0.5,0.6", "-o", str(tmp_path)]
    assert main([*words, "--check", str(trace.path), "--rows", "300"]) == 0
    assert "floor 0.55: misfit" in capsys.readouterr().err
    written = yaml.safe_load((tmp_path / "ngram.yaml").read_text())
    assert written["fitted"] == written["shown"]
    del written["_target_"]
    residuals = PiecewiseLinear(**{**written, "fitted": [], "shown": []})
    assert residuals.to_clip(min(written["at"])) == 0.65


def test_short_trace_is_refused_before_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzotint.sim.fit.similarity_map.command.PRELOAD", 100)
    words = ["calibrate", "similarity-map", "--trace", str(tmp_path / "t"), "--floors", "0.5"]
    write(Synthetic(requests=200, history=0).load(np.random.default_rng(3)), tmp_path / "t")
    assert main([*words, "-o", str(tmp_path / "new" / "scale" / "s.yaml")]) == 0
    assert "shown" not in yaml.safe_load((tmp_path / "new" / "scale" / "s.yaml").read_text())
    write(Synthetic(requests=100, history=0).load(np.random.default_rng(3)), tmp_path / "t")
    assert main([*words, "-o", str(tmp_path / "never" / "s.yaml")]) == 2
    assert "found 100 requests, expected more than the 100 preloaded ones" in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--floors", "0.5,x"], "--floors: found '0.5,x'"),
        (["--floors", "0.99"], "--floors: found '0.99'"),
        (["--encoder", "clip"], "'clip' is not one of 'ngram', 'minilm'"),
        (["--rows", "10"], "--rows: found 10"),
    ],
)
def test_invalid_similarity_map_option_is_refused(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "similarity-map", "--trace", "t.parquet", "-o", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
