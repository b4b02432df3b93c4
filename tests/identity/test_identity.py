"""The comparison of two commits finds what changed."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.identity import differences, forms
from tests.identity.cases import Case
from tests.identity.trees import HERE, checkout


def run(folder: Path, start_s: float, system: str) -> Path:
    """A run directory with the files that are compared."""
    folder.mkdir()
    for name in ("requests.parquet", "cluster.parquet"):
        pq.write_table(pa.table({"worker": [0, 1], "start_s": [0.0, start_s]}), folder / name)
    (folder / "summary.json").write_text(json.dumps({"system": system, "wall": {"cpu_s": start_s}}))
    return folder


def test_changed_value_is_found_by_row_column_and_key(tmp_path: Path) -> None:
    before, after = run(tmp_path / "before", 1.5, "vanilla"), run(tmp_path / "after", 2.5, "nirvana")
    assert not differences.runs(before, before)
    moved = "start_s, row 1: 1.5, then 2.5 (1 of 2 columns differ)"
    assert differences.runs(before, after) == {
        "requests.parquet": moved,
        "cluster.parquet": moved,
        "summary.json": "system: 'vanilla', then 'nirvana' (keys that differ: 1)",
    }


@pytest.mark.parametrize(
    ("present", "former"),
    [
        ("frontend=nirvana", "door=nirvana"),
        ("executor=static-batch", "executor=whole-batch"),
        ("executor.max_batch=4", "executor.limit=4"),
        ("similarity=text-to-image", "space=image"),
        ("+store.outages=[]", "+store.outages=[]"),
        (
            "frontend.search_s={_target_: sim.frontend.delay.LogNormal}",
            "door.search_s={_target_: sim.reuse.delay.LogNormal}",
        ),
        ("system=nirvana", "system=nirvana"),
    ],
)
def test_present_override_translates_to_the_former_version(present: str, former: str) -> None:
    assert forms.former_word(present) == former
    assert Case("one", f"'{present}'").overrides(present=False) == [former]


def test_working_tree_runs_as_it_stands(tmp_path: Path) -> None:
    ended = dict(checkout(HERE, tmp_path).runs([["trace", "--help"], ["run", "system=none"]], jobs=1))
    assert ended[0] is None
    assert ended[1].endswith("(status 2)")
