"""The comparison of two commits finds what changed, and writes overrides in both forms."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.identity import differences, forms
from tests.identity.cases import Case
from tests.identity.trees import HERE, Failed, checkout, commit

COLUMNS = {"request_id": ["a", "b", "c"], "start_s": [0.0, 1.5, float("nan")], "worker": [0, None, 2]}
SUMMARY = {"system": "vanilla", "slo": [{"limit_s": 2.0}], "wall": {"cpu_s": 1.0}}


def run(folder: Path, columns: dict[str, list[object]] = COLUMNS, **summary: object) -> Path:
    """A run directory with the files that are compared."""
    folder.mkdir()
    for name in ("requests.parquet", "cluster.parquet"):
        pq.write_table(pa.table(columns if name == "requests.parquet" else COLUMNS), folder / name)
    (folder / "summary.json").write_text(json.dumps({**SUMMARY, **summary}))
    return folder


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"start_s": [0.0, 1.5, 2.5]}, "start_s, row 2: nan, then 2.5 (1 of 3 columns differ)"),
        ({"start_s": [0.0, 1.5, 2.5], "worker": [0, 1, 2]}, "worker, row 1: None, then 1 (2 of 3 columns differ)"),
        ({"start_s": [-0.0, 1.5, float("nan")]}, "start_s, row 0: 0.0, then -0.0 (1 of 3 columns differ)"),
        ({"worker": [0.0, None, 2.0]}, "types: worker: int64, then double"),
        ({"stall_s": [0.0, 0.0, 0.0]}, "columns: none gone, stall_s new"),
        ({"request_id": ["a"], "start_s": [0.0], "worker": [0]}, "rows: 3, then 1, the same as far as both go"),
    ],
)
def test_a_changed_value_is_found_by_row_and_column(
    tmp_path: Path, changed: dict[str, list[object]], said: str
) -> None:
    before, after = run(tmp_path / "before"), run(tmp_path / "after", {**COLUMNS, **changed})
    assert differences.runs(before, after) == {"requests.parquet": said}


def test_equal_values_in_other_bytes_are_told(tmp_path: Path) -> None:
    before, after = run(tmp_path / "before"), run(tmp_path / "after")
    pq.write_table(pa.table(COLUMNS), after / "requests.parquet", compression="gzip")
    assert differences.runs(before, after) == {"requests.parquet": "the same values, in other bytes"}


def test_of_summaries_all_but_the_wall_times_counts(tmp_path: Path) -> None:
    before = run(tmp_path / "before")
    assert not differences.runs(before, run(tmp_path / "timed", wall={"cpu_s": 9.0}))
    slower = run(tmp_path / "slower", slo=[{"limit_s": 4.0}], seed=1)
    assert differences.runs(before, slower) == {"summary.json": "slo.0.limit_s: 2.0, then 4.0 (keys that differ: 2)"}
    longer = run(tmp_path / "longer", seed=1)
    assert differences.runs(before, longer) == {"summary.json": "seed: 'absent', then 1 (keys that differ: 1)"}


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
def test_an_override_in_the_names_of_the_version_before(present: str, former: str) -> None:
    assert forms.former_word(present) == former
    assert Case("one", f"'{present}'").overrides(present=False) == [former]


def test_the_working_tree_runs_as_it_stands(tmp_path: Path) -> None:
    tree = checkout(HERE, tmp_path)
    here = Path(__file__).relative_to(Path(__file__).parents[2])
    assert (tree.code / here).read_bytes() == Path(__file__).read_bytes()
    ended = dict(tree.runs([["trace", "--help"], ["run", "system=none"]], jobs=2))
    assert ended[0] is None
    assert "system/none" in ended[1]
    assert ended[1].endswith("(status 2)")


def test_what_is_no_commit_is_refused() -> None:
    with pytest.raises(Failed, match="no-such-commit is no commit"):
        commit("no-such-commit")
