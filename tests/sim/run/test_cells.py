"""Cells: every request is in one, each has its share of the arrivals, and their runs join exactly."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.metrics.merge import join
from mezzotint.sim.run.cells import Cells
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, assemble
from mezzotint.traces.table.trace import Trace, make
from tests.sim.lab import configured, simulated

COUNT = 2
BUSY = ("models=sdxl", "cluster=h100", "cluster.count=4", "trace.requests=400", "arrivals.rate_rpm=100")


def trace(users: list[str | None]) -> Trace:
    regions = [json.dumps({} if user is None else {"region": user}) for user in users]
    columns = {"request_id": [f"r{row}" for row in range(len(users))], "arrival_s": np.arange(len(users)) * 1.0}
    return make({**columns, "user_id": users, "extras": regions}, name="t", source="test")


def cell(number: int, *words: str, by: str = "user_id", count: int = COUNT) -> Outcome:
    return simulated(*BUSY, f"cells.count={count}", f"cells.number={number}", f"cells.by={by}", *words)


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=4, max_size=40).map(lambda u: [*u, *"abcd"]),
    st.sampled_from(["request_id", "user_id", "extras.region"]),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_every_row_is_in_one_cell_and_those_of_one_value_in_the_same(
    users: list[str | None], by: str, count: int
) -> None:
    rows = [Cells(count, number, by).rows(trace(users)) for number in range(count)]
    assert sorted(np.concatenate(rows)) == list(range(len(users)))
    assert all((np.diff(each) > 0).all() for each in rows)
    if by != "request_id":
        for value in "abcd":
            holding = [number for number, each in enumerate(rows) if any(users[row] == value for row in each)]
            assert len(holding) == 1


def test_hash_spreads_requests_evenly_and_values_are_dealt_out_by_their_number() -> None:
    many = trace([None] * 4000)
    sizes = [len(Cells(8, number, "request_id").rows(many)) for number in range(8)]
    assert max(abs(size - 500) for size in sizes) < 5 * 500**0.5
    uneven = trace([*"a" * 9, *"b" * 5, *"c" * 4])
    assert [len(Cells(2, number, "extras.region").rows(uneven)) for number in range(2)] == [13, 5]


def test_cells_have_the_arrivals_of_the_whole_between_them() -> None:
    whole = simulated(*BUSY).requests.to_pandas().set_index("request_id").arrival_s
    for number in range(COUNT):
        own = cell(number).requests.to_pandas().set_index("request_id").arrival_s
        assert 0 < len(own) < len(whole)
        assert (whole[own.index] == own).all()


def test_rows_that_fill_a_cache_and_the_warm_up_are_split_too() -> None:
    words = ("system=nirvana", "preload=100", "warmup=60", "cache.capacity=1000")
    runs = [cell(number, *words) for number in range(COUNT)]
    assert sum(run.summary["state"]["preloaded"] for run in runs) == 100
    assert sum(run.summary["requests"]["arrived"] for run in runs) == 400 - 100 - 60


def test_parts_of_different_cells_draw_different_numbers() -> None:
    """Else all cells would have their random failures at the same instants."""
    words = (*BUSY, f"cells.count={COUNT}")
    seeds = [assemble(check(configured(*words, f"cells.number={number}"))).engine.seed for number in (0, 1, 1)]
    assert seeds[0] != seeds[1] == seeds[2]
    assert cell(0).summary["seed"] == 1


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells") / "sweep"
    words = [*BUSY, "warmup=30", f"cells.count={COUNT}", f"cells.number=range(0,{COUNT})", "cells.by=user_id"]
    assert main(["run", "-m", *words, "hydra.launcher.n_jobs=1", f"run.dir={folder}"]) == 0
    return folder


def test_merged_summary_is_that_of_all_requests_together(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", str(swept)]) == 0
    assert f"{COUNT} cells by user_id" in capsys.readouterr().out
    merged = json.loads((swept / "merged.json").read_text())
    folders = [swept / str(number) for number in range(COUNT)]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    measured = [
        pq.read_table(folder / "requests.parquet").to_pandas()[-summary["requests"]["arrived"] :]
        for folder, summary in zip(folders, summaries, strict=True)
    ]
    latency_s = np.concatenate([each.finish_s - each.arrival_s for each in measured])
    assert merged["requests"]["arrived"] == len(latency_s) == 400 - 30
    assert merged["latency_s"]["p95"] == pytest.approx(np.percentile(latency_s, 95), rel=1e-12)
    assert merged["slo"]["2x"]["violation_rate"] == pytest.approx((latency_s > 2 * 4.719).mean(), rel=1e-12)
    assert merged["gpu"]["seconds"] == pytest.approx(sum(each["gpu"]["seconds"] for each in summaries))
    busy_s = sum(each["gpu"]["seconds"] * each["gpu"]["busy_fraction"] for each in summaries)
    assert merged["gpu"]["busy_fraction"] == pytest.approx(busy_s / merged["gpu"]["seconds"])
    assert merged["cells"]["latency_p95_s"]["max"] == max(each["latency_s"]["p95"] for each in summaries)
    total = sum(each["cost_usd"]["total"] for each in summaries)
    assert merged["cost_usd"]["total"] == pytest.approx(total)
    images = sum(each["cost_usd"]["total"] / each["cost_usd"]["per_image"] for each in summaries)
    assert merged["cost_usd"]["per_image"] == pytest.approx(total / images)


def test_one_cell_joins_to_its_own_summary(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    assert main(["run", *BUSY, "system=nirvana", "preload=50", "warmup=20", f"run.dir={folder}"]) == 0
    summary = json.loads((folder / "summary.json").read_text())

    def compare(joined: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        for key, value in joined.items():
            if isinstance(value, dict):
                compare(value, own[key])
            elif isinstance(value, float):
                assert value == pytest.approx(own[key], rel=1e-12), key
            else:
                assert value == own[key], key

    joined = join([folder])
    del joined["cells"]
    compare(joined, summary)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cells.number=4", "cells.count=4"], "found number=4, expected 0 to 3"),
        (["cells.count=2", "arrivals=closed", "arrivals.outstanding=4"], "found a closed loop"),
        (["cells.count=2", "cells.by=user"], "did you mean user_id"),
        (["cells.count=2", "cells.by=width"], "found width"),
        (["cells.count=2", "cells.by=extras.region"], "found 0 different values of extras.region"),
        (["cells.count=900", "cells.number=7"], "has no request to measure"),
    ],
)
def test_split_that_cannot_be_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated("models=sdxl", "cluster=h100", "trace.requests=60", *words)


def test_merge_refuses_cells_that_do_not_make_a_whole(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = tmp_path / "part"
    part.mkdir()
    assert main(["merge", str(part)]) == 2
    (part / "0").symlink_to(swept / "0")
    assert main(["merge", str(part)]) == 2
    (part / "1").symlink_to(swept / "0")
    assert main(["merge", str(part)]) == 2
    assert main(["run", *BUSY, f"run.dir={part / '2'}"]) == 0
    (part / "1").unlink()
    assert main(["merge", str(part)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mezzotint: error")]
    expected = ("holds no finished run", "lacks 1 of 2 cells (1)", "holds cell 0, as", "has another ")
    assert all(text in line for text, line in zip(expected, errors, strict=True))
    assert not (part / "merged.json").exists()
