"""Reference tables of elastic serving, replayed and compared request by request."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.elastic import study
from mezzotint.sim.papers.elastic.study import replay_printed, replay_tables
from mezzotint.sim.papers.elastic.tables import Cost, overrides
from tests.conftest import ORACLES

REFERENCE = ORACLES / "gf_dit"

COSTS = [Cost("S", 1, 1.0, 1024), Cost("M", 1, 1.0, 4096), Cost("L", 1, 1.0, 9216)]


def made_up(folder: Path) -> Path:
    """Write a folder of two workloads with a table each, of which the second is wrong in one request."""
    (folder / "one").mkdir(parents=True)
    (folder / "two").mkdir()
    (folder / "cost.csv").write_text(
        "size_class,tokens,gpus,step_ms\nS,1024,1,100\nS,1024,4,50\nM,4096,1,400\nM,4096,4,200\n"
    )
    (folder / "policies.csv").write_text(
        'policy,groups,settings,agreement\nstatic_sp4,"2 of 4",,exact\nfcfs_sp1,"8 of 1",,exact\nthe_new,,,exact\n'
        "edf_noise,,,order\n"
    )
    head = "request_id,arrival_ms,size_class,tokens,steps,deadline_ms\n"
    rows = "a,0,S,1024,10,5000\nb,100,M,4096,10,9000\nc,200,S,1024,10,5000\n"
    for name in ("one", "two"):
        (folder / name / "workload.csv").write_text(head + rows)
        c_start_ms = 500 if name == "one" else 450
        (folder / name / "static_sp4.csv").write_text(
            "request_id,start_ms,finish_ms,pauses,paused_ms,gpu_ms\n"
            f"a,0,500,0,0,2000\nb,100,2100,0,0,8000\nc,{c_start_ms},1000,0,0,2000\n"
        )
    return folder


def replay(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(table["workload"], table["policy"]): table for table in replay_tables(folder)}


def test_made_up_tables_are_compared_and_the_first_difference_is_named(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "tables")
    shutil.copy(folder / "one" / "static_sp4.csv", folder / "one" / "the_new.csv")
    tables = replay(folder)
    assert {policy: table["skipped"] for (workload, policy), table in tables.items() if workload == "one"} == {
        "static_sp4": "",
        "fcfs_sp1": "no table",
        "the_new": "no such policy here",
        "edf_noise": "for order only",
    }
    equal, differing = tables["one", "static_sp4"], tables["two", "static_sp4"]
    assert (equal["same"], equal["same_groups"], equal["requests"], equal["first"]) == (3, 3, 3, "")
    assert (differing["same"], differing["same_groups"], differing["requests"]) == (2, 2, 3)
    assert differing["first"] == "c: start_ms 450.0, ours 500.0"
    for path in folder.glob("*/*.csv"):
        pd.read_csv(path).to_parquet(path.with_suffix(".parquet"))
        path.unlink()
    assert [table | {"per_cpu_s": 0} for table in replay(folder).values()] == [
        table | {"per_cpu_s": 0} for table in tables.values()
    ]


def test_check_fails_where_a_table_is_no_longer_equal(tmp_path: Path) -> None:
    folder, words = made_up(tmp_path / "tables"), ["reproduce", "elastic", str(tmp_path / "tables")]
    assert main([*words, "-o", str(tmp_path / "results")]) == 0
    assert main([*words, "-o", str(tmp_path / "results"), "--check"]) == 0
    table = folder / "one" / "static_sp4.csv"
    table.write_text(table.read_text().replace("500", "501"))
    assert main([*words, "-o", str(tmp_path / "results"), "--check"]) == 1


def test_table_with_stages_counts_their_sum_and_names_what_is_not_in_it(tmp_path: Path) -> None:
    """One GPU group of four: 20 + 5 + 1 ms before ten steps of 50 ms, then 30 and 2 ms; the launch delay comes once."""
    folder = made_up(tmp_path / "tables")
    others = {"text_encode": 20, "dit_prepare": 5, "timestep_prepare": 1, "vae_decode": 30, "finalize": 2}
    lines = [f"{stage},{size},{ms},1" for size in "SM" for stage, ms in others.items()]
    (folder / "stages.csv").write_text("\n".join(["stage,size_class,ms,gpus", *lines]) + "\n")
    (folder / "policies.csv").write_text("policy,agreement\nstatic_sp4_stages,exact\n")
    (folder / "one" / "static_sp4_stages.csv").write_text(
        "request_id,start_ms,finish_ms,pauses\na,0.005,558.005,0\nb,100.005,2158.005,0\n"
    )
    table = replay(folder)["one", "static_sp4_stages"]
    assert (table["requests"], table["same"], table["first"]) == (3, 2, "c: not in the table")
    (folder / "stages.csv").unlink()
    assert [table["skipped"] for table in replay(folder).values()] == ["no stages.csv", "no table"]


def test_printed_rows_are_replayed_to_their_digits(tmp_path: Path) -> None:
    """25 steps of 51 ms on all eight GPUs, with 50 + 2 x 10 + 30 + 10 ms around them: 1,385 ms each, one by one."""
    inner = tmp_path / "published"
    inner.mkdir()
    (inner / "cost.csv").write_text("size_class,gpus,step_ms\nS,1,100\nS,8,51\n")
    stages = "text_encode,S,50\nprepare,S,10\nvae_decode,S,30\nfinalize,S,10\n"
    (inner / "stages.csv").write_text(f"stage,size_class,ms\n{stages}")
    (inner / "rows.csv").write_text(
        "workload,policy,S_met_pct,S_p95_s,makespan_s,rebuilt\n"
        "w,static_sp8,50.0,,2.77,exact\nw,static_sp8,0,,,not here\n"
    )
    (inner / "workload_w.csv").write_text(
        "request_id,arrival_ms,size_class,steps,deadline_ms\na,0,S,25,1500\nb,1,S,25,2000\n"
    )
    (row,) = replay_printed(tmp_path)
    assert row["ours"] == row["printed"] == {"S_met_pct": "50.0", "makespan_s": "2.77"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("static_sp2", ["system=fixed-groups", "group_policy.groups=4x2"]),
        ("edf_best_fit_migrate7", ["system=edf-best-fit", "executor.migration_s=7"]),
        ("edf_best_fit_chunk5", ["system=edf-best-fit", "group_policy.steps=5"]),
        ("static_sp4_chunk5", None),
        ("something_else", None),
    ],
)
def test_names_of_policies_say_their_settings(name: str, words: list[str] | None) -> None:
    assert overrides(name, COSTS) == words


def test_folder_without_a_workload_is_refused(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "tables")
    for name in ("one", "two"):
        shutil.rmtree(folder / name)
    with pytest.raises(ConfigError, match=r"found no WORKLOAD/workload.csv"):
        replay(folder)


def test_without_a_folder_the_clone_says_where_its_tables_are_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tables(folder: Path) -> Iterator[dict[str, Any]]:
        assert folder == REFERENCE
        return iter([])

    monkeypatch.setattr(study, "replay_tables", tables)
    monkeypatch.setattr(study, "replay_printed", tables)
    assert main(["reproduce", "elastic", "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("tests/oracles/gf_dit: made by GF-DiT's policy simulator")


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("workload", "tables", "requests"), [("burst", 10, 2570), ("shift", 10, 2460), ("uniform", 21, 4200)]
)
def test_every_reference_table_is_equal_request_by_request(
    workload: str, tables: int, requests: int, tmp_path: Path
) -> None:
    """To a millionth of a millisecond: start, finish, pauses, moves, degree changes and GPU time of 9,230 requests."""
    for path in (*REFERENCE.glob("*.csv"), REFERENCE / workload):
        (tmp_path / path.name).symlink_to(path)
    found = [table for table in replay_tables(tmp_path) if table["skipped"] not in ("no table", "for order only")]
    for table in found:
        assert table["same"] == table["same_groups"] == table["requests"], table
    assert (len(found), sum(table["requests"] for table in found)) == (tables, requests)


@pytest.mark.oracle
def test_printed_rows_of_the_reference_are_equal_to_their_digits() -> None:
    rows = list(replay_printed(REFERENCE))
    assert len(rows) == 11
    assert all(row["printed"] == row["ours"] for row in rows)
