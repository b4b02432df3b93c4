"""What the points of a sweep share: the trace, and the composition of their choices."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from mezzotint.sim.cli import main
from mezzotint.sim.run import shared_trace as shared
from mezzotint.sim.run.config import compose
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.table.trace import Trace, write
from tests.sim.lab import configured


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the rows of each synthetic trace that was made."""
    made, load = list[int](), Synthetic.load

    def counted(self: Synthetic, rng: Any) -> Trace:
        made.append(self.requests)
        return load(self, rng)

    monkeypatch.setattr(Synthetic, "load", counted)
    shared.kept_traces.cache_clear()
    yield made
    shared.kept_traces.cache_clear()


def test_points_of_a_sweep_share_their_trace_and_copy_no_composition(
    loads: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, deepcopy = list[int](), compose.deepcopy
    monkeypatch.setattr(
        compose,
        "deepcopy",
        lambda part: copies.append(len(part) if isinstance(part, DictConfig) else 0) or deepcopy(part),
    )
    points = ["arrivals.rate_rpm=3,4", "trace.requests=20,30", "hydra.launcher.n_jobs=1"]
    assert main(["run", "-m", "system=vanilla", *points, f"run.dir={tmp_path / 'sweep'}"]) == 0
    assert sorted(loads) == [20, 30]
    whole = len(compose.compose_config(["system=vanilla"]))
    assert copies.count(whole) == 1, "for the launcher's settings"


def test_traces_are_kept_up_to_a_number_of_rows_and_by_content(
    loads: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MAX_ROWS", 50)
    short, long = configured("trace.requests=20"), configured("trace.requests=60")
    assert shared.shared_trace(short) is shared.shared_trace(short)
    assert len(shared.shared_trace(short, 2)) == 40
    assert shared.shared_trace(long) is shared.shared_trace(long)
    assert len(shared.shared_trace({**short, "seed": 9})) == 20
    assert loads == [20, 60, 20]
    path = tmp_path / "t.parquet"
    file = configured("trace=file", f"trace.path={path}")
    for rows in (5, 7):
        write(shared.shared_trace(long).head(rows), path)
        assert len(shared.shared_trace(file)) == rows
