"""An imported source is in order of arrival, complete and with unique names, or refused as a whole."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.table import Table
from mezzotint.traces.table import ingest
from mezzotint.traces.table.ingest import ROWS, Batch, Reading, gather, since_earliest, store
from mezzotint.traces.table.trace import read
from mezzotint.traces.table.validation import Origin

in_a_folder = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def reading(batches: list[tuple[list[float], dict[str, Any]]], **more: Any) -> Reading:
    def parts() -> Iterator[Batch]:
        first = 0
        for times, columns in batches:
            yield Batch(columns, pa.array(times, pa.float64()), Origin("t", rows=np.arange(first, first + len(times))))
            first += len(times)

    return Reading(where="t", name="n", source="s", batches=parts(), **more)


cells = st.fixed_dictionaries(
    {
        "arrival_s": st.integers(0, 20),
        "prompt": st.text(st.characters(blacklist_characters='\0\r\n,"', codec="utf-8"), max_size=9),
        "width": st.none() | st.integers(1, 999),
        "loras": st.lists(st.sampled_from("abc"), max_size=2).map(";".join),
    }
)


@in_a_folder
@given(rows=st.lists(cells, min_size=1, max_size=40), piece=st.sampled_from([3, ROWS]))
def test_stored_and_in_memory_imports_give_the_same_sorted_trace(
    rows: list[dict[str, Any]], piece: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("one")
    lines = ["arrival_s,prompt,width,loras"]
    lines += [f"{r['arrival_s']},{r['prompt']},{'' if r['width'] is None else r['width']},{r['loras']}" for r in rows]
    path = folder / "t.csv"
    path.write_bytes("\n".join(lines).encode())
    source = Table(path=str(path))
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "ROWS", piece)
        memory = source.load(rng)
        written = store(source.read(rng), folder / "o")
    disk = read(folder / "o")
    assert disk.digest == memory.digest == written.digest
    assert disk.table.to_pylist() == memory.table.to_pylist()
    assert (disk.name, disk.source, disk.notes) == (memory.name, memory.source, memory.notes)
    assert (len(written), written.path) == (len(memory), folder / "o")
    order = sorted(range(len(rows)), key=lambda row: rows[row]["arrival_s"])
    assert memory.table.column("request_id").to_pylist() == [str(row) for row in order]
    assert sorted(os.listdir(folder)) == ["o", "t.csv"]


names = st.lists(st.sampled_from([f"n{i}" for i in range(30)]), min_size=1, max_size=12)


@in_a_folder
@given(ids=names, cut=st.integers(0, 12))
def test_duplicate_request_id_is_refused(ids: list[str], cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    parts = [([float(9 - len(part))] * len(part), {"request_id": part}) for part in (ids[:cut], ids[cut:])]
    doubled = [row for row, name in enumerate(ids) if name in ids[:row]]
    folder = tmp_path_factory.mktemp("ids")
    for bring in (gather, lambda opened: store(opened, folder / "o")):
        if not doubled:
            bring(reading(parts))
            continue
        second, name = doubled[0], ids[doubled[0]]
        message = f"t: row {second}, column request_id: found '{name}', which row {ids.index(name)} has already"
        with pytest.raises(TraceError, match=message):
            bring(reading(parts))
    assert os.listdir(folder) in ([], ["o"])


def test_arrivals_before_1970_count_from_the_earliest() -> None:
    trace = gather(reading([([-5.0, -7.5], {"prompt": ["b", "a"]})], settle=since_earliest))
    assert trace.arrival_s.tolist() == [0.0, 2.5]
    assert trace.prompts().to_pylist() == ["a", "b"]


def test_failed_import_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "o").write_text("old")
    with pytest.raises(TraceError, match="t: row 2, column width: found -1"):
        store(reading([([1.0, 2.0], {}), ([3.0], {"width": [-1]})]), tmp_path / "o")
    with pytest.raises(TraceError, match="notes cannot be kept as JSON"):
        store(reading([([1.0], {})], notes={"x": object()}), tmp_path / "o")
    assert (tmp_path / "o").read_text() == "old"
    assert os.listdir(tmp_path) == ["o"]
