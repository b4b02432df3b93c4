"""What is kept from run to run takes no more than it may, and nothing else is touched."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.encoders import disk_cache
from traces.encoders.embeddings import embed
from traces.encoders.ngram import HashedNgrams
from traces.error import TraceError
from traces.similarity.neighbours import remembered
from traces.similarity.spaces import TextToText
from traces.sources.synthetic import Synthetic

DIGEST = "0123456789abcdef" * 4


def vectors(number: int, size: int, used_s: float) -> Path:
    """A stem with ``size`` bytes of vectors, last used at ``used_s``."""
    stem = disk_cache.home() / f"{number:064x}.ngram-512-v1"
    for suffix, content in ((".npy", b"v" * size), (".json", b"")):
        path = stem.with_name(stem.name + suffix)
        path.write_bytes(content)
        os.utime(path, (used_s, used_s))
    return stem


def lists(number: int, size: int, used_s: float) -> Path:
    """A folder of neighbours, likewise."""
    folder = disk_cache.home() / "neighbours" / f"{number:032x}"
    folder.mkdir(parents=True)
    (folder / "rows.npy").write_bytes(b"n" * size)
    os.utime(folder, (used_s, used_s))
    return folder


def there(item: Path) -> bool:
    parts = [item.is_dir(), *(item.with_name(item.name + suffix).exists() for suffix in (".npy", ".json"))]
    assert parts in ([True, False, False], [False, True, True], [False, False, False]), "all of it or nothing"
    return any(parts)


@settings(max_examples=60)
@given(
    held=st.lists(st.tuples(st.booleans(), st.integers(0, 40)), min_size=1, max_size=12),
    allowed=st.integers(0, 200),
    data=st.data(),
)
def test_what_was_used_longest_ago_goes_until_the_rest_fits(
    held: list[tuple[bool, int]], allowed: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEZZOTINT_CACHE", str(tmp_path_factory.mktemp("kept")))
        patch.setenv("MEZZOTINT_CACHE_GIB", repr(allowed / disk_cache.GIB))
        items = [(lists if folder else vectors)(at, size, 1e9 + at) for at, (folder, size) in enumerate(held)]
        newest = data.draw(st.sampled_from(items))
        disk_cache.make_room(newest)
        left, total = set(items), sum(size for _, size in held)
        for item, (_, size) in zip(items, held, strict=True):
            if total > allowed and item != newest:
                left.remove(item)
                total -= size
        assert {item for item in items if there(item)} == left


def test_a_file_of_somebody_else_is_neither_counted_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path))
    monkeypatch.setenv("MEZZOTINT_CACHE_GIB", "0")
    mine = [tmp_path / "thesis.npy", tmp_path / "photos" / "a.png", tmp_path / f"{DIGEST}.txt", tmp_path / "neighbours"]
    mine[1].parent.mkdir()
    mine[3].mkdir()
    for path in (mine[0], mine[1], mine[2], mine[3] / "list.txt"):
        path.write_bytes(b"x" * 1000)
    old = vectors(1, 10, 1e9)
    disk_cache.make_room(vectors(2, 10, 1e9))
    assert all(path.exists() for path in (*mine, mine[3] / "list.txt"))
    assert not there(old)


def test_a_use_keeps_embeddings_and_neighbours_from_going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two traces are embedded and searched; the older is used again, so the other goes when a third one comes."""
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path))

    def work(seed: int) -> set[Path]:
        before = set(tmp_path.rglob("*"))
        trace = Synthetic(requests=200).load(np.random.default_rng(seed))
        space = TextToText()
        space.bind(embed(trace, HashedNgrams()), np.random.default_rng(0))
        remembered(space, 200, 0.5, 8, trace.digest)
        return set(tmp_path.rglob("*")) - before

    made = [work(0), work(1)]
    for path in tmp_path.rglob("*"):
        os.utime(path, (1e9, 1e9))
    assert not work(0), "all was remembered"
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    monkeypatch.setenv("MEZZOTINT_CACHE_GIB", repr(1.1 * size / disk_cache.GIB))
    work(2)
    (gone,) = (path for path in made[1] if path.suffix == ".npy" and path.parent == tmp_path)
    assert not gone.exists()
    assert all(path.exists() for path in made[0])


@pytest.mark.parametrize("given_", ["much", "-1", "nan"])
def test_a_wrong_limit_is_refused_before_the_work(given_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path))
    monkeypatch.setenv("MEZZOTINT_CACHE_GIB", given_)
    with pytest.raises(TraceError, match=r"MEZZOTINT_CACHE_GIB: found '.*', expected a number of GiB, 0 or more"):
        embed(Synthetic(requests=20).load(np.random.default_rng(0)), HashedNgrams())
    assert not list(tmp_path.iterdir())
