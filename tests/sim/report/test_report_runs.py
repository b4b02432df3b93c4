"""Finding runs, distinguishing them, and refusing unreadable ones."""

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.compare import cells, common_loads, hit_shares, slo_multiples
from mezzotint.sim.report.runs import Run, latency_quantiles, load_runs, time_series
from mezzotint.sim.report.vllm_omni import vllm_omni

Fabricate = Callable[..., Path]


def test_sweep_is_found_below_its_folder_and_no_run_twice(fabricate: Fabricate, tmp_path: Path) -> None:
    for seed in (1, 2):
        fabricate(f"sweep/deep/{seed}", "vanilla", seed=seed, requests=20)
    fabricate("sweep/.half-written/1", "vanilla", seed=3, requests=20)
    runs = load_runs([tmp_path / "sweep", tmp_path / "sweep" / "deep" / "1"])
    assert [run.name for run in runs] == ["sweep/deep/1", "sweep/deep/2"]
    assert [run.seed for run in runs] == [1, 2]


def test_seeds_are_replicas_and_rates_are_loads(fabricate: Fabricate, tmp_path: Path) -> None:
    for rate in (5.0, 20.0):
        for seed in (1, 2):
            fabricate(f"{rate}-{seed}", "vanilla", rate_rpm=rate, seed=seed, requests=20)
    grid = cells(load_runs([tmp_path]))
    assert [(cell.series, cell.load.label, len(cell.runs)) for cell in grid] == [
        ("vanilla", "5 rpm", 2),
        ("vanilla", "20 rpm", 2),
    ]


def test_differing_runs_of_one_system_are_never_averaged(fabricate: Fabricate, tmp_path: Path) -> None:
    for size in (100, 1000):
        system = {"name": "nirvana", "cache": {"capacity": size, "bytes": size * 4096}}
        fabricate(f"n{size}", "nirvana", requests=20, config={"system": system})
    fabricate("v", "vanilla", requests=20)
    series = {run.series for run in load_runs([tmp_path])}
    assert len(series) == 3
    assert "vanilla" in series
    assert all(name.count("=") <= 1 for name in series), "what follows from a named setting is left out"


def test_second_cluster_appears_in_every_name(fabricate: Fabricate, tmp_path: Path) -> None:
    fabricate("a", "nirvana", requests=20)
    fabricate("b", "vanilla", requests=20, config={"cluster": {"count": 16, "gpu": {"name": "h100", "active_w": 700}}})
    assert {run.series for run in load_runs([tmp_path])} == {
        "nirvana (cluster.gpu=mi210)",
        "vanilla (cluster.gpu=h100)",
    }


def test_load_without_a_rate_is_named_by_its_arrivals(fabricate: Fabricate) -> None:
    (run,) = load_runs([fabricate("closed", rate_rpm=None, requests=20)])
    assert run.load.rate_rpm is None
    assert run.load.label == "closed arrivals (outstanding=4)"


def test_arrival_processes_are_loads_of_one_series(fabricate: Fabricate, tmp_path: Path) -> None:
    fabricate("a", rate_rpm=None, requests=20)
    fabricate("b", rate_rpm=10.0, requests=20)
    own = {"_target_": "mezzotint.traces.arrivals.trace_clock.TraceClock", "speedup": 2.0}
    fabricate("c", requests=20, config={"arrivals": own})
    runs = load_runs([tmp_path])
    assert {run.series for run in runs} == {"nirvana"}
    assert {run.load.label for run in runs} == {
        "10 rpm",
        "closed arrivals (outstanding=4)",
        "trace clock arrivals (speedup=2.0)",
    }


def test_same_rate_from_two_arrival_processes_is_not_averaged(fabricate: Fabricate, tmp_path: Path) -> None:
    fabricate("a", rate_rpm=10.0, requests=20)
    fabricate("b", requests=20, config={"arrivals": {"_target_": "mine.Bursts", "rate_rpm": 10, "burst": 4}})
    assert {run.series for run in load_runs([tmp_path])} == {"nirvana (arrivals=Poisson)", "nirvana (arrivals=Bursts)"}


def test_common_loads_are_shared_by_most_systems_and_include_both_ends(fabricate: Fabricate, tmp_path: Path) -> None:
    for rate in (2, 4, 6, 8, 10):
        fabricate(f"v{rate}", "vanilla", rate_rpm=float(rate), requests=10)
        if rate > 2:
            fabricate(f"n{rate}", "nirvana", rate_rpm=float(rate), requests=10)
    rates = [load.rate_rpm for load in common_loads(load_runs([tmp_path]))]
    assert rates[0] == 4
    assert rates[-1] == 10
    assert len(rates) == 3


def test_slo_names_are_ordered_by_size(fabricate: Fabricate) -> None:
    def more(summary: dict[str, Any]) -> None:
        summary["slo"] = {name: {"limit_s": 1.0, "violation_rate": 0.1} for name in ("10x", "3s", "4x", "60s", "1.5x")}

    assert slo_multiples(load_runs([fabricate("r", change=more, requests=10)])) == ["1.5x", "4x", "10x", "3s", "60s"]


@pytest.mark.parametrize("system", ["vanilla", "pinecone", "nirvana", "modm-throughput"])
def test_hit_shares_sum_to_one(fabricate: Fabricate, tmp_path: Path, system: str) -> None:
    for seed in (1, 2):
        fabricate(str(seed), system, seed=seed, requests=20)
    (cell,) = cells(load_runs([tmp_path]))
    shares = hit_shares(cell)
    if system == "vanilla":
        assert shares is None
        return
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(shares)[-1] == "miss"
    assert shares["miss"] == pytest.approx(1 - cell.runs[0].summary["cache"]["hit_rate"])


@pytest.mark.parametrize("by_k", [None, {}, {"5": 0.0}, {"5": None}])
def test_hits_without_a_step_count_are_shown_as_unknown(fabricate: Fabricate, by_k: object) -> None:
    def forget(summary: dict[str, Any]) -> None:
        summary["cache"]["hit_share_by_k"] = by_k

    (cell,) = cells(load_runs([fabricate("r", change=forget, requests=10)]))
    assert hit_shares(cell) == pytest.approx({"unknown": 0.78, "miss": 0.22})


def test_latency_quantiles_match_the_summary(fabricate: Fabricate) -> None:
    (run,) = load_runs([fabricate("r", "vanilla", rate_rpm=12.0, requests=1500, warmup=200)])
    levels = np.linspace(0, 1, 2001)
    curve = latency_quantiles(run, levels)
    assert curve is not None
    assert (np.diff(curve) >= 0).all()
    assert np.interp([0.5, 0.99], levels, curve) == pytest.approx(
        [run.number("latency_s", "p50"), run.number("latency_s", "p99")], rel=1e-3
    )


def test_only_completed_requests_have_a_latency(fabricate: Fabricate) -> None:
    (run,) = load_runs([fabricate("r", requests=10)])
    columns = {"arrival_s": [0.0, 1.0, 2.0], "finish_s": [5.0, None, 900.0]}
    outcome = ["completed", "failed", "discarded"]
    pq.write_table(pa.table(columns | {"outcome": outcome}), run.path / "requests.parquet")
    assert latency_quantiles(run, np.array([0.0, 1.0])) == pytest.approx([5.0, 5.0])


def test_absurd_latency_is_ignored(fabricate: Fabricate) -> None:
    (run,) = load_runs([fabricate("r", requests=10)])
    columns = {"arrival_s": [0.0, 1.0, -1e308], "finish_s": [5.0, 1e13, 1e308], "outcome": ["completed"] * 3}
    pq.write_table(pa.table(columns), run.path / "requests.parquet")
    assert latency_quantiles(run, np.array([0.0, 1.0])) == pytest.approx([5.0, 5.0])


def test_thinning_a_time_series_keeps_its_mean(fabricate: Fabricate) -> None:
    (run,) = load_runs([fabricate("r", "vanilla", rate_rpm=20.0, requests=600)])
    full, thin = time_series(run, "queued", 10**6), time_series(run, "queued", 20)
    assert full is not None
    assert thin is not None
    assert len(thin[0]) <= 20
    assert (np.diff(thin[0]) > 0).all()
    stands = pq.read_table(run.path / "cluster.parquet")["seconds"].to_numpy()
    assert thin[1].mean() == pytest.approx((full[1] * stands).sum() / stands.sum())
    assert time_series(run, "no such column", 20) is None


def test_pause_is_weighted_by_its_duration(fabricate: Fabricate) -> None:
    """Busy for ten seconds, a pause of 990 s in one row, busy again: one part in fifty of the time."""
    (run,) = load_runs([fabricate("r", requests=10)])
    looked = {"time_s": [*range(10), 10, *range(1000, 1010)], "seconds": [1] * 10 + [990] + [1] * 10}
    pq.write_table(pa.table(looked | {"busy": [4] * 10 + [0] + [4] * 10}), run.path / "cluster.parquet")
    found = time_series(run, "busy", 10)
    assert found is not None
    np.testing.assert_allclose(found[1], [4 * 10 / 101, *[0] * 8, 4 * 10 / 101])
    np.testing.assert_allclose(found[0], (np.arange(10) + 0.5) * 101)


def edited(*keys: str, to: object = None) -> Callable[[dict[str, Any]], None]:
    """Return an edit that sets a key of the summary, or deletes it without a value."""

    def edit(summary: dict[str, Any]) -> None:
        for key in keys[:-1]:
            summary = summary[key]
        del summary[keys[-1]]
        if to is not None:
            summary[keys[-1]] = to

    return edit


def error_of(path: Path) -> str:
    """Return the one line with which `load_runs` refuses `path`."""
    with pytest.raises(ConfigError) as refused:
        load_runs([path])
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("keys", "to", "expected"),
    [
        ("schema", None, "key 'schema' is missing"),
        ("latency_s.p99", None, "key 'latency_s.p99' is missing"),
        ("slo.2x.limit_s", None, "key 'slo.2x.limit_s' is missing"),
        ("schema", 2, "this version reads 1; report it with the version"),
        ("throughput_rpm", "fast", "'throughput_rpm' is 'fast', expected a valid number"),
        ("latency_s.p50", True, "'latency_s.p50' is 'True', expected a valid number"),
        ("cache.hit_share_by_k", {"5": 78}, "'cache.hit_share_by_k.5' is '78', expected less"),
        ("assumptions", ["none"], "'assumptions.0' is 'none', expected a valid dictionary"),
    ],
)
def test_missing_or_wrong_summary_key_is_named(fabricate: Fabricate, keys: str, to: object, expected: str) -> None:
    message = error_of(fabricate("r", change=edited(*keys.split("."), to=to), requests=10))
    assert "summary.json: " in message
    assert expected in message


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("summary.json", '{"schema": 1, "system": ', r"is not valid JSON \(.*line 1.*\); run it again"),
        ("summary.json", f'{{"latency_s": {{"p99": 1{"0" * 399}}}}}', "too large to convert to float.*; run it again"),
        ("summary.json", f'{{"latency_s": {{"p99": 1{"0" * 4999}}}}}', "Exceeds the limit.*; run it again"),
        ("summary.json", "[]", "expected an object"),
        ("config.yaml", "a: [1", "is not valid YAML"),
        ("config.yaml", "- 1", "the top level is .* expected a mapping"),
    ],
)
def test_malformed_file_is_named(fabricate: Fabricate, file: str, content: str, message: str) -> None:
    path = fabricate("r", requests=10)
    (path / file).write_text(content)
    assert re.search(rf"{file}: .*{message}", error_of(path))


def test_place_without_runs_is_named(fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(content: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert "gone: no such directory; give" in error_of(tmp_path / "gone")
    assert re.search("empty: holds no finished run .*mezzotint run", error_of(tmp_path / "empty"))
    assert "file: found a file, expected a run directory" in error_of(tmp_path / "file")
    path = fabricate("r", requests=10)
    monkeypatch.setattr("mezzotint.sim.metrics.run_files.parse", denied)
    assert re.search("config.yaml: cannot be read .*check its permissions$", error_of(path))


def test_search_for_runs_is_bounded(fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the folders without a run: a sweep may have any number of points."""
    monkeypatch.setattr("mezzotint.sim.report.runs.MAX_FOLDERS", 5)
    for number in range(9):
        fabricate(f"sweep/{number}", requests=10)
    assert len(load_runs([tmp_path / "sweep"])) == 9
    for number in range(6):
        (tmp_path / "much" / str(number)).mkdir(parents=True)
    assert re.search("much: holds more than 5 folders without a run; give the run dir", error_of(tmp_path / "much"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "is not a readable Parquet file"),
        (("arrival_s",), "column 'finish_s' is missing; run it again"),
        (("arrival_s", "finish_s", "outcome", "arrival_s"), "column 'arrival_s' is there twice; run it again"),
        (("arrival_s", "finish_s", "lists"), "column 'outcome': found Unsupported cast from list"),
        (("arrival_s", "words", "outcome"), "column 'finish_s': found Failed to parse string"),
    ],
)
def test_malformed_table_column_is_named(fabricate: Fabricate, columns: tuple[str, ...] | None, message: str) -> None:
    (run,) = load_runs([fabricate("r", requests=10)])
    path = run.path / "requests.parquet"
    if columns is None:
        path.write_bytes(b"PAR1 cut off")
    else:
        of = {"words": pa.array(["x"]), "lists": pa.array([[1.0]])}
        names = [{"words": "finish_s", "lists": "outcome"}.get(name, name) for name in columns]
        pq.write_table(pa.table([of.get(name, pa.array([1.0])) for name in columns], names=names), path)
    with pytest.raises(ConfigError) as refused:
        latency_quantiles(run, np.array([0.5]))
    assert str(refused.value).startswith(f"{path}: {message}")
    path.unlink()
    assert latency_quantiles(run, np.array([0.5])) is None


@pytest.mark.parametrize("value", [None, "text", True, float("nan"), float("inf")])
def test_non_finite_number_is_none(fabricate: Fabricate, value: object) -> None:
    (run,) = load_runs([fabricate("r", requests=10)])
    other = Run(run.path, "r", {"a": {"b": value}}, {}, "s", "s", run.load)
    assert other.number("a", "b") is None
    assert other.number("a", "c") is None
    assert other.number("a", "b", "c") is None


def test_time_series_without_valid_samples_is_none(fabricate: Fabricate) -> None:
    """A missing or very old time has no place on an axis, and a missing value is no point."""
    (run,) = load_runs([fabricate("r", requests=10)])
    nan = float("nan")

    def sampled(time_s: list[float], queued: list[float]) -> tuple[list[float], list[float]] | None:
        table = pa.table({"time_s": np.array(time_s), "seconds": np.ones(len(time_s)), "queued": np.array(queued)})
        pq.write_table(table, run.path / "cluster.parquet")
        found = time_series(run, "queued", 10)
        return None if found is None else (list(found[0]), list(found[1]))

    assert sampled([], []) is None
    assert sampled([nan, 0.0, 1e13], [1.0, nan, 1.0]) is None
    assert sampled([0.0, 1.0], [1e308, -1e308]) is None
    assert sampled([nan, 2.0, 1.0, 1e13], [1.0, 4.0, 3.0, 1.0]) == ([1.0, 2.0], [3.0, 4.0])


STAGES = dict.fromkeys(("search_s", "fetch_s", "load_s", "denoise_s", "decode_s"), 0.5)


def staged(run: Path) -> None:
    """Half a second of each stage, for every request of a run."""
    table = pq.read_table(run / "requests.parquet")
    for name, seconds in STAGES.items():
        table = table.append_column(name, pa.array([seconds] * len(table)))
    pq.write_table(table, run / "requests.parquet")


def test_vllm_omni_results_exclude_only_the_warmup(fabricate: Fabricate) -> None:
    whole, warm = fabricate("whole", "vanilla", requests=50), fabricate("warm", "vanilla", requests=50, warmup=20)
    for path, count in ((whole, 50), (warm, 30)):
        staged(path)
        found = vllm_omni([path])
        (run,) = load_runs([path])
        assert found["completed_requests"] == count
        assert found["latency_mean"] == pytest.approx(run.number("latency_s", "mean"))
        assert found["stage_durations_mean"]["load"] == 0.5
        late = run.number("slo", "2x", "violation_rate")
        assert late is not None
        assert (found["slo_scale"], found["slo_met_success"]) == (2.0, round((1 - late) * count))


def test_vllm_omni_results_with_limits_in_seconds_have_no_scale(fabricate: Fabricate) -> None:
    def seconds(summary: dict[str, Any]) -> None:
        summary["slo"] = {
            name: {"limit_s": None, "violation_rate": share} for name, share in (("60s", 0.1), ("5s", 0.4))
        }

    path = fabricate("seconds", requests=10, change=seconds)
    staged(path)
    found = vllm_omni([path])
    assert (found["slo_attainment_rate"], found["slo_met_success"], found["slo_scale"]) == (0.6, 6, None)


def test_vllm_omni_results_without_a_limit_are_null(fabricate: Fabricate) -> None:
    for name, slo in (("none", None), ("empty", {})):
        path = fabricate(name, requests=10, change=lambda summary, slo=slo: summary.update(slo=slo))
        staged(path)
        found = vllm_omni([path])
        assert [found[f"slo_{key}"] for key in ("attainment_rate", "met_success", "scale")] == [None] * 3


def test_vllm_omni_result_without_requests_is_refused(fabricate: Fabricate, capsys: pytest.CaptureFixture[str]) -> None:
    path = fabricate("r", requests=10)
    staged(path)
    assert main(["report", str(path), "--format", "vllm-omni"]) == 0
    assert json.loads(capsys.readouterr().out) == vllm_omni([path])
    table = pq.read_table(path / "requests.parquet")
    for name in ("finish_s", "outcome", "decode_s"):
        pq.write_table(table.drop_columns([name]), path / "requests.parquet")
        with pytest.raises(ConfigError, match=rf"requests\.parquet: column '{name}' is missing; run it again"):
            vllm_omni([path])
    (path / "requests.parquet").unlink()
    assert main(["report", str(path), "--format", "vllm-omni"]) == 2
    assert "requests.parquet: is missing; run it again" in capsys.readouterr().err
