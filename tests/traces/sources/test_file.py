"""A canonical trace on disk as the source of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.frames import trace as trace_of
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.file import File
from mezzotint.traces.sources.result import open_result
from mezzotint.traces.sources.table import Table, import_table
from mezzotint.traces.table.trace import Trace, about, write


def test_file_source_reads_all_rows_or_a_head(trace: Trace, tmp_path: Path) -> None:
    path, rng = tmp_path / "t.parquet", np.random.default_rng(0)
    write(trace, path)
    assert about(path) == (len(trace), trace.digest)
    head = File(path=path, requests=2).load(rng)
    assert head.table == trace.table.slice(0, 2)
    write(head, tmp_path / "head.parquet")
    assert File(path=tmp_path / "head.parquet").load(rng).digest == head.digest != trace.digest
    assert head.path is None, "what is kept of a part must not lie where that of the whole does"
    for requests in (len(trace), len(trace) + 1, None):
        assert File(path=path, requests=requests).load(rng).path == path
    with pytest.raises(TraceError, match="requests=0"):
        File(path=path, requests=0).load(rng)


def test_map_of_a_run_means_the_same_as_that_of_an_import(trace: Trace, tmp_path: Path) -> None:
    path, rng = tmp_path / "log.csv", np.random.default_rng(0)
    path.write_text("my_when,txt,took,my_prompt\n0,a fox,5,x\n7,a hare,6,y\n")
    columns = {"arrival_s": "my_when", "prompt": "txt", "latency_s": "took", "seed": None}
    choices = {"leave_out": ["my_prompt"], "units": {"took": "ms"}}
    read = File(path=path, map=columns, **choices).load(rng)
    assert read.table == Table(path=path, columns=columns | {"seed": ""}, **choices).load(rng).table
    assert read.table.column("latency_s").to_pylist() == [0.005, 0.006]
    write(trace, tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"t.parquet: is a trace, .*leave out trace.map"):
        File(path=tmp_path / "t.parquet", map=columns).load(rng)


@pytest.mark.parametrize(
    ("read", "way"),
    [
        (
            lambda path: File(path=path).load(np.random.default_rng(0)),
            "a run has trace.map, leave_out, units and dates",
        ),
        (open_result, "make a trace of the file with it, and name that trace here"),
        (lambda path: import_table(path, path.parent), "make a trace of the file with it, and name that trace here"),
        (trace_of, "mezzotint.trace has columns="),
    ],
)
@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ("time,promt,latency_s\n0,a,1\n", "--leave-out promt"),
        ("time,latency_s,prompt\n0,1,a\n1,1," + "b" * (1 << 21) + "\n", "raise --max-prompt-bytes"),
        ('time,latency_s,prompt\n0,1,a\n1,2,"b\n2,3,c\n', "--no-quotes"),
    ],
)
def test_option_that_a_reader_of_tables_lacks_is_named_with_the_command_that_has_it(
    read: Callable[[Path], Any], way: str, content: str, remedy: str, tmp_path: Path
) -> None:
    (path := tmp_path / "log.csv").write_text(content)
    with pytest.raises(TraceError, match=f"{remedy}.* .an option of `mezzotint trace import table`; {way}"):
        read(path)
    with pytest.raises(TraceError, match=remedy) as caught:
        Table(path=path).load(np.random.default_rng(0))
    assert "an option of" not in str(caught.value)


def test_error_without_an_option_stays_as_it_is(tmp_path: Path) -> None:
    (path := tmp_path / "log.csv").write_text("time,size\n0,1x1\n-1,1x1\n")
    with pytest.raises(TraceError, match=r"fix or drop the row$"):
        File(path=path).load(np.random.default_rng(0))
