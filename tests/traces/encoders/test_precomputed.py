"""The user's own vectors are looked up by prompt, and impossible ones are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.traces.encoders.embeddings import Encoder, embed
from mezzotint.traces.encoders.precomputed import Precomputed
from mezzotint.traces.encoders.vectors import BLOCK
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.trace import Trace, make, write
from tests.sim.lab import simulated

TEXTS = ["a red fox", "a blue fox", "a queen's portrait", ""]
VECTORS = np.array([[3.0, 4, 0], [0, 2, 0], [0, 0, -5], [0, 0, 0]])
UNIT = np.array([[0.6, 0.8, 0], [0, 1, 0], [0, 0, -1], [0, 0, 0]], np.float32)


def _file(path: Path, prompts: Any = None, vectors: Any = None) -> str:
    table = {"prompt": TEXTS if prompts is None else prompts, "vector": list(VECTORS) if vectors is None else vectors}
    pq.write_table(pa.table(table), path)
    return str(path)


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., str]:
    return lambda prompts=None, vectors=None: _file(tmp_path / "v.parquet", prompts, vectors)


def _array(tmp_path: Path, vectors: Any, prompts: Any = None) -> Precomputed:
    np.save(tmp_path / "v.npy", vectors)
    pq.write_table(pa.table({"prompt": TEXTS if prompts is None else prompts}), tmp_path / "p.parquet")
    return Precomputed(str(tmp_path / "v.npy"), str(tmp_path / "p.parquet"))


def test_vector_of_a_prompt_is_found_and_normalized(stored: Callable[..., str]) -> None:
    encoder = Precomputed(stored())
    assert isinstance(encoder, Encoder)
    assert encoder.dim == 3
    asked = [2, 3, 0, 0, 1]
    found = encoder.encode([TEXTS[at] for at in asked], False)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, UNIT[asked])
    assert encoder.encode([], False).shape == (0, 3)
    assert not encoder.encode(["  "], False).any()  # needs no row of its own


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float16(), 3), pa.large_list(pa.int64())])
def test_any_numeric_list_type_is_read(stored: Callable[..., str], kind: pa.DataType) -> None:
    rows = [[3, 4, 0], [0, 2, 0], [0, 0, -5], [0, 0, 0]]
    if pa.types.is_float16(kind.value_type):
        rows = [[np.float16(x) for x in row] for row in rows]
    encoder = Precomputed(stored(vectors=pa.array(rows, kind)))
    np.testing.assert_array_equal(encoder.encode(TEXTS, False), UNIT)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8])
def test_array_with_a_table_of_prompts_is_read(tmp_path: Path, kind: Any) -> None:
    encoder = _array(tmp_path, VECTORS.astype(kind))
    assert encoder.dim == 3
    np.testing.assert_array_equal(encoder.encode(TEXTS[::-1], False), UNIT[::-1])
    encoder = _array(tmp_path, np.asfortranarray(VECTORS))
    np.testing.assert_array_equal(encoder.encode(TEXTS, False), UNIT)


def test_every_row_across_blocks_is_found(tmp_path: Path, rng: np.random.Generator) -> None:
    rows = 2 * BLOCK + 7
    vectors = rng.normal(size=(rows, 4))
    vectors[-10:] = 3 * vectors[:10]  # repeats that agree
    prompts = [f"prompt {at % (rows - 10)}" for at in range(rows)]
    parquet = _file(tmp_path / "v.parquet", prompts, list(vectors))
    np.save(tmp_path / "v.npy", vectors)
    asked = rng.permutation(rows)
    expected = vectors[asked] / np.linalg.norm(vectors[asked], axis=1, keepdims=True)
    for encoder in (Precomputed(parquet), Precomputed(str(tmp_path / "v.npy"), parquet)):
        np.testing.assert_allclose(encoder.encode([prompts[at] for at in asked], False), expected, atol=1e-6)


def test_prompts_without_a_vector_are_counted_and_the_first_is_named(stored: Callable[..., str]) -> None:
    encoder = Precomputed(stored())
    with pytest.raises(TraceError, match=r"v\.parquet: has no vector for 2 of 3 prompts .* first is 'A red fox'"):
        encoder.encode(["a red fox", "A red fox", "", "new"], False)
    with pytest.raises(TraceError, match="1 of 1"):
        Precomputed(stored(prompts=["", " ", "", ""], vectors=[[1.0, 0]] * 4)).encode(["x"], False)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 0], [np.nan, 0], [0, 1], [0, 0]], "row 1: found a vector with a number that is not finite"),
        ([[1.0, 0], [0, 0], [0, 1], [0, 0]], "row 1: found a vector of zeros for 'a blue fox'"),
        ([[1.0, 0], [0, 1], [0], [0, 0]], "row 2, column vector: found 1 numbers, expected 2"),
        ([[1.0, 0], None, [0, 1], [0, 0]], "row 1, column vector: found null, expected 2"),
        ([1.0, 2, 3, 4], "column vector: found double, expected lists of numbers"),
    ],
)
def test_malformed_vectors_are_refused(stored: Callable[..., str], vectors: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Precomputed(stored(vectors=vectors)).encode(["a red fox"], False)


def test_vectors_of_one_prompt_must_agree(stored: Callable[..., str]) -> None:
    twice = ["a fox", "a queen", "a fox"]
    agree = Precomputed(stored(twice, [[1.0, 0], [0, 1], [2, 1e-6]]))  # another length is the same direction
    np.testing.assert_allclose(agree.encode(["a fox"], False), [[1, 0]], atol=1e-5)
    with pytest.raises(TraceError, match="rows 0 and 2 hold one prompt and their vectors disagree by 1, "):
        Precomputed(stored(twice, [[1.0, 0], [0, 1], [0, 1]])).encode(["a fox"], False)


def test_malformed_vector_files_are_refused(tmp_path: Path, stored: Callable[..., str]) -> None:
    def refused(encoder: Precomputed, message: str) -> None:
        with pytest.raises(TraceError, match=message):
            encoder.encode(["a red fox"], False)

    refused(Precomputed(str(tmp_path / "none.parquet")), "no such file")
    (tmp_path / "cut.parquet").write_bytes(Path(stored()).read_bytes()[:-9])
    refused(Precomputed(str(tmp_path / "cut.parquet")), r"cut\.parquet: cannot be read as Parquet")
    pq.write_table(pa.table({"text": ["a"], "vector": [[1.0]]}), tmp_path / "t.parquet")
    refused(Precomputed(str(tmp_path / "t.parquet")), "found columns text, vector, expected one named prompt")
    refused(_array(tmp_path, VECTORS[:2]), "found 4 prompts, expected 2")
    (tmp_path / "v.npy").write_bytes(b"")
    refused(Precomputed(str(tmp_path / "v.npy"), str(tmp_path / "p.parquet")), "cannot be read")
    for path, prompts in (("v.npy", None), ("v.parquet", "p.parquet")):
        with pytest.raises(TraceError, match="expected prompts="):
            Precomputed(path, prompts)


def test_encoder_name_depends_on_the_content(stored: Callable[..., str], tmp_path: Path) -> None:
    """The cached embeddings of a trace are never those of an earlier version of the user's file."""
    name = Precomputed(stored()).name
    assert Precomputed(stored()).name == name
    changed = Precomputed(stored(vectors=list(2 * VECTORS))).name
    assert changed != name
    assert _array(tmp_path, VECTORS).name != _array(tmp_path, VECTORS, TEXTS[::-1]).name


def _trace(tmp_path: Path) -> Trace:
    prompts = ["a red fox", None, "a blue fox", "a red fox"]
    columns = {"request_id": list("abcd"), "arrival_s": [0.0, 600, 1200, 1800], "prompt": prompts}
    return write(make(columns, name="four", source="a test"), tmp_path / "t.parquet")


def test_trace_file_names_the_prompts(tmp_path: Path) -> None:
    trace = _trace(tmp_path)
    np.save(tmp_path / "v.npy", UNIT[[0, 3, 1, 0]])
    encoder = Precomputed(str(tmp_path / "v.npy"), str(trace.path))
    np.testing.assert_array_equal(embed(trace, encoder), UNIT[[0, 3, 1, 0]])


@pytest.mark.parametrize(("cosine", "hits"), [(0.94, 2), (0.5, 1)])
def test_run_hits_follow_the_given_vectors(tmp_path: Path, cosine: float, hits: int) -> None:
    """The blue fox starts from the red one only where the user's vectors make them similar."""
    trace = _trace(tmp_path)
    vectors = [[1.0, 0], [cosine, (1 - cosine**2) ** 0.5]]
    path = _file(tmp_path / "v.parquet", TEXTS[:2], vectors)
    run = ["system=nirvana", "trace=file", f"trace.path={trace.path}", "arrivals=trace", "encoder=precomputed"]
    outcome = simulated(*run, f"encoder.path={path}")
    assert outcome.summary["cache"]["hit_rate"] == hits / 4
