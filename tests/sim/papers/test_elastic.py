"""Reference tables of elastic serving, replayed and compared request by request."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.elastic import page, replay
from mezzotint.sim.papers.elastic.policies import overrides
from mezzotint.sim.papers.study import committed
from tests.conftest import ORACLES

REFERENCE = ORACLES / "gf_dit"

SIZES = {"S": "512x512", "M": "1024x1024", "L": "1536x1536"}


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


def test_made_up_tables_are_compared_and_the_first_difference_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, results = made_up(tmp_path / "tables"), tmp_path / "results"
    assert main(["reproduce", "elastic", str(folder), "-o", str(results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("one static_sp4: 3 of 3 requests equal")
    assert lines[1:4] == [
        "one fcfs_sp1: skipped, no table",
        "one the_new: skipped, no table",
        "one edf_noise: skipped, for order only",
    ]
    assert "two static_sp4: 2 of 3 requests equal" in lines[4]
    assert lines[4].endswith("first c: start_ms 450, ours 500.0")
    assert "1 of 2 tables equal, 5 of 6 requests" in lines
    facts = json.loads((results / "elastic.json").read_text())
    assert [each["same_groups"] for each in facts["tables"] if not each["skipped"]] == [3, 2]
    assert "the first request that differs is c" in (results / "elastic.md").read_text()
    assert main(["reproduce", "elastic", str(folder), "-o", str(results), "--check"]) == 0
    table = folder / "one" / "static_sp4.csv"
    table.write_text(table.read_text().replace("500", "501"))
    assert main(["reproduce", "elastic", str(folder), "-o", str(results), "--check"]) == 1


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
    found = next(each for each in replay.tables(folder) if not each.skipped)
    assert (found.requests, found.same) == (3, 2)
    assert found.first == "c: not in the table"
    (folder / "stages.csv").unlink()
    assert [each.skipped for each in replay.tables(folder)] == ["no stages.csv", "no table"]


def test_printed_rows_are_replayed_to_their_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """25 steps of 50 ms on all eight GPUs, with 50 + 20 + 55 + 10 ms around them: a ends at 1,385 ms, b at 2,770."""
    folder = made_up(tmp_path / "tables")
    inner = folder / "published"
    inner.mkdir()
    (inner / "cost.csv").write_text(
        "size_class,gpus,text_encode_ms,prepare_ms,step_ms,vae_decode_ms,finalize_ms\n"
        "S,1,50,20,100,30,10\nS,8,50,20,50,55,10\n"
    )
    (inner / "rows.csv").write_text(
        "workload,policy,S_met_pct,S_p95_s,makespan_s,rebuilt\n"
        "w,static_sp8,50.0,,2.77,exact\nw,static_sp8,0,,,not here\n"
    )
    (inner / "workload_w.csv").write_text(
        "request_id,arrival_ms,size_class,steps,deadline_ms\na,0,S,25,1500\nb,1,S,25,2000\n"
    )
    (row,) = replay.published_rows(folder)
    assert row.ours == row.printed == {"S_met_pct": "50.0", "makespan_s": "2.77"}
    assert main(["reproduce", "elastic", str(folder), "-o", str(tmp_path / "results")]) == 0
    assert "published w static_sp8" in capsys.readouterr().out


def test_tables_kept_as_parquet_are_those_of_their_csv(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "tables")
    before = [(each.workload, each.policy, each.same, each.skipped) for each in replay.tables(folder)]
    for path in folder.glob("*/*.csv"):
        pd.read_csv(path).to_parquet(path.with_suffix(".parquet"))
        path.unlink()
    assert [(each.workload, each.policy, each.same, each.skipped) for each in replay.tables(folder)] == before


def test_policy_without_a_configuration_is_skipped(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "tables")
    shutil.copy(folder / "one" / "static_sp4.csv", folder / "one" / "the_new.csv")
    found = {(each.workload, each.policy): each.skipped for each in replay.tables(folder)}
    assert found["one", "the_new"] == "no such policy here"


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
    assert overrides(name, SIZES) == words


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("cost.csv", None, r"cost.csv: cannot be read"),
        ("cost.csv", "size_class,gpus\nS,1\n", r"cost.csv: found no column step_ms or no row"),
        ("cost.csv", "size_class,gpus,step_ms\nS,1,fast\n", r"cost.csv: step_ms: found 'fast', expected a number"),
        ("one/workload.csv", "request_id\n", r"workload.csv: found no column request_id or no row"),
        ("one/workload.parquet", "request_id\n", r"workload.parquet: cannot be read"),
    ],
)
def test_unusable_folder_is_refused(file: str, text: str | None, message: str, tmp_path: Path) -> None:
    folder = made_up(tmp_path / "tables")
    (folder / file).with_suffix(".csv").unlink()
    if text is not None:
        (folder / file).write_text(text)
    with pytest.raises(ConfigError, match=message):
        list(replay.tables(folder))


def test_folder_without_a_workload_is_refused(tmp_path: Path) -> None:
    folder = made_up(tmp_path / "tables")
    for name in ("one", "two"):
        shutil.rmtree(folder / name)
    with pytest.raises(ConfigError, match=r"found no WORKLOAD/workload.csv"):
        list(replay.tables(folder))


def test_outside_of_a_clone_the_folder_is_asked_for() -> None:
    """No wheel has the folder of the tests."""
    with pytest.raises(ConfigError, match=r"^DIR: found none, and tests/none is in a clone .* name a folder of tables"):
        committed("tests/none", "tables")


def test_without_a_folder_the_clone_says_where_its_tables_are_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = replay.Table("one", "x", "exact", skipped="here")
    monkeypatch.setattr(replay, "tables", lambda folder: iter([table] if folder == REFERENCE else []))
    monkeypatch.setattr(replay, "published_rows", lambda folder: iter([]))
    assert main(["reproduce", "elastic", "-o", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "tests/oracles/gf_dit: made by GF-DiT's policy simulator (SJTU-Liquid/GF-DiT at 442531e4"
    )
    assert lines[1] == "one x: skipped, here"


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
    found = [table for table in replay.tables(tmp_path) if table.skipped not in ("no table", "for order only")]
    for table in found:
        assert table.same == table.same_groups == table.requests, page.line_of(asdict(table))
    assert (len(found), sum(table.requests for table in found)) == (tables, requests)


@pytest.mark.oracle
def test_printed_rows_of_the_reference_are_equal_to_their_digits() -> None:
    rows = list(replay.published_rows(REFERENCE))
    assert len(rows) == 11
    assert all(row.printed == row.ours for row in rows)
