"""Sources of any length: the trace on disk is the trace in memory, and memory does not grow with it."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.error import TraceError
from traces.sources.delimited import Csv
from traces.sources.diffusiondb import DiffusionDB
from traces.table import duplicates, external_sort
from traces.table.columns import SCHEMA
from traces.table.digest import BLOCK, content_digest, streamed_digest
from traces.table.external_sort import Runs, Spool, merged, ordered, regrouped
from traces.table.ingest import Batch, Reading, gather, since_earliest, store
from traces.table.trace import make, read
from traces.table.validation import Origin

in_a_folder = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def rows_of(times: list[int]) -> pa.Table:
    return pa.table({"time": pa.array(times, pa.int64()), "row": pa.array(range(len(times)), pa.int64())})


def reading(batches: list[tuple[list[float], dict[str, Any]]], **more: Any) -> Reading:
    def parts() -> Iterator[Batch]:
        first = 0
        for times, columns in batches:
            yield Batch(columns, pa.array(times, pa.float64()), Origin("t", rows=np.arange(first, first + len(times))))
            first += len(times)

    return Reading(where="t", name="n", source="s", batches=parts(), **more)


@in_a_folder
@given(
    times=st.lists(st.integers(0, 9), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    run_bytes=st.sampled_from([1, 64, 300]),
    fan_in=st.sampled_from([2, 3, 32]),
)
def test_the_external_sort_is_the_stable_sort(
    times: list[int], cuts: list[int], run_bytes: int, fan_in: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = rows_of(times)
    edges = sorted({0, len(times), *(min(cut, len(times)) for cut in cuts)})
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_sort, "RUN_BYTES", run_bytes)
        patch.setattr(external_sort, "FAN_IN", fan_in)
        for place in (folder, None):
            sort = Runs("time", place)
            for start, end in itertools.pairwise(edges):
                sort.add(table.slice(start, end - start))
            for _ in range(2):  # it can be read again
                got = pa.concat_tables([table.slice(0, 0), *sort.tables()])
                assert got.column("row").to_pylist() == sorted(range(len(times)), key=lambda row: times[row])
            assert sort.rows == len(times)


def test_merging_holds_one_piece_of_each_run() -> None:
    asked = []

    def run(name: int) -> Iterator[pa.Table]:
        for start in range(0, 100, 10):
            asked.append((name, start))
            yield rows_of(list(range(start, start + 10)))

    pieces = merged([run(0), run(1)], "time")
    assert next(pieces).num_rows <= 20
    assert asked == [(0, 0), (1, 0), (0, 10)]


def test_rows_in_order_are_not_moved() -> None:
    table = rows_of([1, 1, 2])
    assert ordered([table], "time").column("row").to_pylist() == [0, 1, 2]


@given(sizes=st.lists(st.integers(0, 7), max_size=12), most=st.integers(1, 9))
def test_regrouping_keeps_the_rows(sizes: list[int], most: int) -> None:
    tables = [rows_of([size] * size) for size in sizes]
    pieces = list(regrouped(iter(tables), most))
    assert sum(piece.num_rows for piece in pieces) == sum(sizes)
    assert all(piece.num_rows <= max(most, *sizes, 0) for piece in pieces)
    assert all(one.num_rows + two.num_rows > 1 for one, two in itertools.pairwise(pieces)) or most == 1


def test_a_spool_gives_back_rows_and_columns(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", SCHEMA)
    table = pa.Table.from_pylist([{"request_id": str(i), "arrival_s": i * 1.0} for i in range(5)], schema=SCHEMA)
    for start in (0, 2, 2, 5):
        spool.append(table.slice(start, 2 if start < 2 else 3 if start == 2 and spool.rows == 2 else 0))
    spool.close()
    assert pa.concat_tables(spool.tables()).equals(table)
    assert pa.chunked_array(list(spool.column("arrival_s"))).to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    spool.remove()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("rows", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_the_digest_can_be_taken_column_by_column(rows: int) -> None:
    texts = [None if i % 7 == 0 else str(i) for i in range(rows)]
    lists = [None if i % 5 == 0 else ["a", None][: i % 3] for i in range(rows)]
    table = pa.table({"t": pa.array(texts, pa.string()), "l": pa.array(lists, pa.list_(pa.string()))})

    def pieces(name: str) -> Iterator[pa.Array]:
        whole = table.column(name).combine_chunks()
        for start in range(0, rows, 999):
            yield whole.slice(start, 999)

    assert streamed_digest(table.schema, rows, pieces) == content_digest(table)


cells = st.fixed_dictionaries(
    {
        "arrival_s": st.integers(0, 20),
        "prompt": st.text(st.characters(blacklist_characters='\0\r\n,"', codec="utf-8"), max_size=9),
        "width": st.none() | st.integers(1, 999),
        "loras": st.lists(st.sampled_from("abc"), max_size=2).map(";".join),
    }
)


@in_a_folder
@given(rows=st.lists(cells, min_size=1, max_size=40), run_bytes=st.sampled_from([100, 1 << 25]))
def test_on_disk_and_in_memory_it_is_one_trace(
    rows: list[dict[str, Any]], run_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("one")
    lines = ["arrival_s,prompt,width,loras"]
    lines += [f"{r['arrival_s']},{r['prompt']},{'' if r['width'] is None else r['width']},{r['loras']}" for r in rows]
    path = folder / "t.csv"
    path.write_bytes("\n".join(lines).encode())
    source = Csv(path=str(path))
    rng = np.random.default_rng(0)
    memory = source.load(rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_sort, "RUN_BYTES", run_bytes)
        written = store(source.read(rng), folder / "o")
    disk = read(folder / "o")
    assert disk.digest == memory.digest == written.digest
    assert disk.table.to_pylist() == memory.table.to_pylist()
    assert (disk.name, disk.source, disk.notes) == (memory.name, memory.source, memory.notes)
    assert (written.requests, written.span_s) == (len(memory), memory.span_s)
    order = sorted(range(len(rows)), key=lambda row: rows[row]["arrival_s"])
    assert memory.table.column("request_id").to_pylist() == [str(row) for row in order]
    assert sorted(os.listdir(folder)) == ["o", "t.csv"]


def test_the_minutes_of_diffusiondb_spread_alike_on_disk(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DiffusionDB(path=str(data / "diffusiondb" / "metadata_1k.csv"), limit=800)
    memory = source.load(np.random.default_rng(5))
    monkeypatch.setattr(external_sort, "RUN_BYTES", 20_000)
    written = store(source.read(np.random.default_rng(5)), tmp_path / "o")
    assert written.digest == memory.digest
    assert written.requests == 800


names = st.lists(st.sampled_from([f"n{i}" for i in range(30)]), min_size=1, max_size=12)


@in_a_folder
@given(ids=names, cut=st.integers(0, 12), colliding=st.booleans(), at_once=st.sampled_from([1, 2, 99]))
def test_a_second_request_of_one_name_is_found(
    ids: list[str], cut: int, colliding: bool, at_once: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts = [([float(9 - len(part))] * len(part), {"request_id": part}) for part in (ids[:cut], ids[cut:])]
    doubled = [row for row, name in enumerate(ids) if name in ids[:row]]
    folder = tmp_path_factory.mktemp("ids")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "CANDIDATES", at_once)
        if colliding:  # every two names have one hash: the names themselves decide
            patch.setattr(duplicates, "_hashes", lambda column: np.zeros(len(column), np.uint64))
        for bring in (gather, lambda opened: store(opened, folder / "o")):
            if not doubled:
                bring(reading(parts))
                continue
            with pytest.raises(TraceError, match=r"t: row \d+, column request_id: found 'n\d+', which row") as caught:
                bring(reading(parts))
            second = int(str(caught.value).split("row ")[1].split(",")[0])
            first = int(str(caught.value).split("which row ")[1].split(" ")[0])
            assert first < second
            assert ids[first] == ids[second]
            if at_once == 99:
                assert second == doubled[0]
    assert os.listdir(folder) in ([], ["o"])


def test_arrivals_before_1970_count_from_the_earliest() -> None:
    trace = gather(reading([([-5.0, -7.5], {"prompt": ["b", "a"]})], settle=since_earliest))
    assert trace.arrival_s.tolist() == [0.0, 2.5]
    assert trace.prompts().to_pylist() == ["a", "b"]


def test_a_source_without_requests_is_refused(tmp_path: Path) -> None:
    for bring in (gather, lambda opened: store(opened, tmp_path / "o")):
        with pytest.raises(TraceError, match="found no rows"):
            bring(reading([([], {})]))
    assert os.listdir(tmp_path) == []


def test_a_source_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "o").write_text("old")
    with pytest.raises(TraceError, match="t: row 2, column width: found -1"):
        store(reading([([1.0, 2.0], {}), ([3.0], {"width": [-1]})]), tmp_path / "o")
    with pytest.raises(TraceError, match="notes cannot be kept as JSON"):
        store(reading([([1.0], {})], notes={"x": object()}), tmp_path / "o")
    assert (tmp_path / "o").read_text() == "old"
    assert os.listdir(tmp_path) == ["o"]


def test_a_name_as_long_as_may_be_is_written_and_a_longer_one_refused(tmp_path: Path) -> None:
    store(reading([([1.0], {})]), tmp_path / ("x" * 240))
    with pytest.raises(TraceError, match="xxx"):
        store(reading([([1.0], {})]), tmp_path / ("x" * 300))
    assert os.listdir(tmp_path) == ["x" * 240]


def test_row_groups_of_a_large_trace_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "RUN_BYTES", 1 << 18)
    times = np.random.default_rng(0).random(20_000)
    store(reading([(times[at : at + 500].tolist(), {}) for at in range(0, 20_000, 500)]), tmp_path / "o")
    assert pq.ParquetFile(tmp_path / "o").num_row_groups < 20


PEAK = """
import sys, pathlib, numpy as np
from traces.sources.delimited import Csv
from traces.sources.formats import delimited
from traces.table import external_sort
from traces.table.ingest import store
external_sort.RUN_BYTES = 1 << 22
delimited._block_bytes = lambda limits: 1 << 20
source = Csv(path=sys.argv[1])
store(source.read(np.random.default_rng(0)), pathlib.Path(sys.argv[1] + ".parquet"))
# what the process had at most, not counting what it had before it became this one
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory as Linux tells it")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    filler = "a prompt that goes on and on " * 30

    def peak(count: int) -> tuple[int, int]:
        path = tmp_path / f"{count}.csv"
        times = np.random.default_rng(0).permutation(count)
        with path.open("w") as file:
            file.write("request_id,arrival_s,prompt\n")
            file.writelines(f"r{row},{time},{filler}{row}\n" for row, time in enumerate(times))
        # an allocator that gives back what it is given back
        frugal = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
        ended = subprocess.run(
            [sys.executable, "-c", PEAK, str(path)],
            env={**os.environ, **frugal},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(ended.stdout), path.stat().st_size

    (small_peak, small), (large_peak, large) = peak(30_000), peak(90_000)
    assert large - small > 50e6
    # holding the content just once would take all of the difference
    assert large_peak - small_peak < 0.5 * (large - small)


def test_a_time_that_python_has_not_is_refused_by_its_row() -> None:
    """Arrow holds years that Python's datetime does not."""
    far = pa.array([10**17], pa.timestamp("ms"))
    with pytest.raises(TraceError, match="column steps: found <pyarrow"):
        make({"request_id": ["a"], "arrival_s": [0.0], "prompt": ["x"], "steps": far}, name="n", source="s")
