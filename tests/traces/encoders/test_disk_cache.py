"""The disk cache returns what computing returns, after any damage, and stays within its size."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.encoders.disk_cache import GIB, compute_once
from mezzotint.traces.error import TraceError

ROWS, BLOCK = 20, 6
COLUMNS = {"pairs": (np.float32, (2,)), "lists": (np.int64, ())}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "home"))
    return tmp_path / "home"


def values(number: int, blocks: int = 99, begun: list[int] | None = None) -> dict[str, Any]:
    """Two arrays, the second without a length of its own, computed in blocks and optionally interrupted."""

    def make(done: dict[str, Any]) -> Iterator[Sequence[Any]]:
        first = len(done["pairs"])
        for at, start in enumerate(range(first, ROWS, BLOCK)):
            if at == blocks:
                raise KeyboardInterrupt
            if begun is not None:
                begun.append(start)
            rows = np.arange(start, min(start + BLOCK, ROWS))
            yield np.outer(rows, [number, 1.5]).astype(np.float32), np.repeat(rows + number, rows % 3)

    return compute_once("neighbours", {"number": number}, ROWS, COLUMNS, make)


def same(number: int) -> list[int]:
    """Check the arrays; return the first rows of the blocks computed for it."""
    begun: list[int] = []
    found = values(number, begun=begun)
    rows = np.arange(ROWS)
    np.testing.assert_array_equal(found["pairs"], np.outer(rows, [number, 1.5]).astype(np.float32))
    np.testing.assert_array_equal(found["lists"], np.repeat(rows + number, rows % 3))
    assert not any(array.flags.writeable for array in found.values() if len(array))
    return begun


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("torn", [b"", b"half"])
def test_interrupted_computation_resumes_after_its_last_whole_block(home: Path, blocks: int, torn: bytes) -> None:
    with pytest.raises(KeyboardInterrupt):
        values(1, blocks)
    for path in home.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + torn)
    assert same(1) == [0, 6, 12, 18][blocks:]
    assert same(1) == []
    assert same(2) == [0, 6, 12, 18]


@pytest.mark.invariant(12)
def test_damaged_entry_is_reported_and_computed_again(home: Path, capsys: Capture) -> None:
    same(1)
    (path,) = home.rglob("pairs")
    path.write_bytes(path.read_bytes()[:-1])
    assert same(1) == [18]
    assert capsys.readouterr().err.endswith(": is damaged or from elsewhere; computed again\n")


@pytest.mark.invariant(12)
@pytest.mark.parametrize("source", ["another entry", "another cache folder", "another order of blocks"])
def test_entry_from_elsewhere_is_reported_and_computed_again(
    home: Path, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """No file of its kind is believed for being whole."""
    same(1)
    (entry,) = (home / "neighbours").iterdir()
    if source == "another entry":
        same(2)
        (foreign,) = set((home / "neighbours").iterdir()) - {entry}
    elif source == "another cache folder":
        monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "other"))
        same(1)
        (foreign,) = (tmp_path / "other" / "neighbours").iterdir()
        monkeypatch.setenv("MEZZOTINT_CACHE", str(home))
    else:
        foreign = Path(shutil.copytree(entry, tmp_path / "foreign"))
        log = (foreign / "blocks").read_bytes()
        half = len(log) // 2
        (foreign / "blocks").write_bytes(log[half:] + log[:half])
    shutil.rmtree(entry)
    shutil.copytree(foreign, entry)
    capsys.readouterr()
    assert same(1) == [0, 6, 12, 18]
    assert capsys.readouterr().err.endswith(": is damaged or from elsewhere; computed again\n")
    assert same(1) == []


@pytest.mark.invariant(12)
@pytest.mark.parametrize("where", ["file/below", "n" * 300, "folder"])
def test_unusable_cache_folder_changes_no_result_and_is_reported(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
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


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    used=st.lists(st.integers(0, 5), min_size=1, max_size=8).map(lambda held: list(dict.fromkeys(held))),
    keep=st.integers(0, 6),
)
def test_disk_cache_evicts_least_recently_used_entries_to_fit(home: Path, used: list[int], keep: int) -> None:
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


def test_use_of_an_entry_delays_its_eviction(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same(1), same(2)
    entries = list((home / "neighbours").iterdir())
    for entry in entries:
        os.utime(entry, (1e9, 1e9))
    same(1)
    size = sum(path.stat().st_size for path in entries[0].iterdir())
    monkeypatch.setenv("MEZZOTINT_CACHE_GIB", repr(2 * size / GIB))
    same(3)
    assert same(1) == []
    assert same(2) != []


@pytest.mark.parametrize("given_", ["much", "-1", "nan"])
def test_invalid_cache_limit_is_refused_before_work(given_: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE_GIB", given_)
    with pytest.raises(TraceError, match=r"MEZZOTINT_CACHE_GIB: found '.*', expected a number of GiB, 0 or more"):
        same(1)
    assert not home.exists()
