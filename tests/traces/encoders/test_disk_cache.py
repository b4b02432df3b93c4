"""What the disk cache gives is what computing gives, whatever happens to it; it stays within its size."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.encoders.disk_cache import GIB, cached
from traces.encoders.embeddings import embed
from traces.encoders.ngram import HashedNgrams
from traces.error import TraceError
from traces.similarity.neighbours import cached_neighbours
from traces.similarity.similarities import TextToText
from traces.sources.synthetic import Synthetic

ROWS, BLOCK = 20, 6
COLUMNS = {"pairs": (np.float32, (2,)), "lists": (np.int64, ())}
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "home"))
    return tmp_path / "home"


def values(number: int, blocks: int = 99, begun: list[int] | None = None) -> dict[str, Any]:
    """Two arrays of which the second has no length of its own, computed in blocks and interrupted after some."""

    def make(done: dict[str, Any]) -> Iterator[Sequence[Any]]:
        first = len(done["pairs"])
        for at, start in enumerate(range(first, ROWS, BLOCK)):
            if at == blocks:
                raise KeyboardInterrupt
            if begun is not None:
                begun.append(start)
            rows = np.arange(start, min(start + BLOCK, ROWS))
            yield np.outer(rows, [number, 1.5]).astype(np.float32), np.repeat(rows + number, rows % 3)

    return cached("neighbours", {"number": number}, ROWS, COLUMNS, make)


def same(number: int) -> list[int]:
    """Check the arrays; returns the first rows of the blocks that were computed for it."""
    begun: list[int] = []
    found = values(number, begun=begun)
    rows = np.arange(ROWS)
    np.testing.assert_array_equal(found["pairs"], np.outer(rows, [number, 1.5]).astype(np.float32))
    np.testing.assert_array_equal(found["lists"], np.repeat(rows + number, rows % 3))
    assert not any(array.flags.writeable for array in found.values() if isinstance(array, np.memmap))
    return begun


def test_what_is_kept_is_not_computed_again() -> None:
    assert same(1) == [0, 6, 12, 18]
    assert same(1) == []
    assert same(2) == [0, 6, 12, 18]


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("torn", [b"", b"half"])
def test_an_interrupted_computation_goes_on_after_its_last_whole_block(home: Path, blocks: int, torn: bytes) -> None:
    with pytest.raises(KeyboardInterrupt):
        values(1, blocks)
    for path in home.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + torn)
    assert same(1) == [0, 6, 12, 18][blocks:]
    assert same(1) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), blocks=st.sampled_from([1, 2, 99]))
def test_whatever_is_flipped_cut_or_swapped_the_arrays_are_the_same(
    home: Path, data: st.DataObject, blocks: int
) -> None:
    shutil.rmtree(home, ignore_errors=True)
    same(2)
    other = sorted(path for path in home.rglob("*") if path.is_file())
    with suppress(KeyboardInterrupt):
        values(1, blocks)
    files = sorted(path for path in home.rglob("*") if path.is_file() and path not in other)
    path = data.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    at, flipped = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 256))
    if flipped == 256:  # another entry's files
        for mine, theirs in zip(files, other, strict=True):
            shutil.copy(theirs, mine)
    elif flipped:
        content[at] ^= flipped
        path.write_bytes(content)
    elif data.draw(st.booleans()):
        path.write_bytes(content[:at])
    else:
        path.unlink()
    same(1)
    assert same(1) == []


def test_a_damaged_entry_is_told(home: Path, capsys: Said) -> None:
    same(1)
    (path,) = home.rglob("pairs")
    path.write_bytes(path.read_bytes()[:-1])
    assert same(1) == [18]
    assert capsys.readouterr().err.endswith(": was damaged; computed again\n")


@pytest.mark.parametrize("where", ["file/below", "n" * 300, "folder"])
def test_where_nothing_can_be_kept_the_arrays_are_the_same_and_it_is_said(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "neighbours").touch()  # tests may run as root, whom no mode stops
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / where))
    assert same(1) == same(1) == [0, 6, 12, 18]
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("mezzotint: note: ") for line in lines)
    assert [
        line for line in lines if "neighbours are computed for this run alone; set MEZZOTINT_CACHE" in line
    ] == lines


def test_what_is_mapped_stays_readable_when_its_entry_goes(home: Path) -> None:
    found = values(1)
    shutil.rmtree(home)
    np.testing.assert_array_equal(found["pairs"][:, 0], np.arange(ROWS))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    used=st.lists(st.integers(0, 5), min_size=1, max_size=8).map(lambda held: list(dict.fromkeys(held))),
    keep=st.integers(0, 6),
)
def test_what_was_used_longest_ago_goes_until_the_rest_fits(home: Path, used: list[int], keep: int) -> None:
    shutil.rmtree(home, ignore_errors=True)
    foreign = [home / "thesis.npy", home / "neighbours" / "list.txt", home / "neighbours" / ("a" * 32) / "photo.png"]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
    for at, number in enumerate(used):
        before = set((home / "neighbours").iterdir())
        same(number)
        (entry,) = set((home / "neighbours").iterdir()) - before
        os.utime(entry, (1e9 + at, 1e9 + at))
    size = sum(path.stat().st_size for path in entry.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEZZOTINT_CACHE_GIB", repr(keep * size / GIB))
        same(99)
    assert all(path.exists() for path in foreign)
    left = [number for number in used if same(number) == []]
    assert left == used[len(used) - min(max(keep - 1, 0), len(used)) :]


def test_a_use_keeps_embeddings_and_neighbours_from_going(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two traces are embedded and searched; the older is used again, so the other goes when a third one comes."""

    def work(seed: int) -> set[Path]:
        before = set(home.glob("*/*"))
        trace = Synthetic(requests=200).load(np.random.default_rng(seed))
        space = TextToText()
        space.bind(embed(trace, HashedNgrams()), np.random.default_rng(0))
        cached_neighbours(space, 200, 0.5, 8, trace.digest)
        return set(home.glob("*/*")) - before

    made = [work(0), work(1)]
    for path in home.glob("*/*"):
        os.utime(path, (1e9, 1e9))
    assert not work(0), "all was remembered"
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    monkeypatch.setenv("MEZZOTINT_CACHE_GIB", repr(1.1 * size / GIB))
    work(2)
    assert not all(path.exists() for path in made[1])
    assert all(path.exists() for path in made[0])


@pytest.mark.parametrize("given_", ["much", "-1", "nan"])
def test_a_wrong_limit_is_refused_before_the_work(given_: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE_GIB", given_)
    with pytest.raises(TraceError, match=r"MEZZOTINT_CACHE_GIB: found '.*', expected a number of GiB, 0 or more"):
        same(1)
    assert not home.exists()
