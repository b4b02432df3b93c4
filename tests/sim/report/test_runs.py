"""Finding runs, reading their columns, and refusing unreadable ones."""

import errno
import json
import re
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.files.document import dump, parse
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.runs import Run, latency_quantiles, load_runs, time_series
from mezzotint.sim.report.sensitivity import sensitivities

Fabricate = Callable[..., Path]


def test_sweep_is_found_below_its_folder_and_no_run_twice(fabricate: Fabricate, tmp_path: Path) -> None:
    for seed in (1, 2):
        fabricate(f"sweep/deep/{seed}", "vanilla", seed=seed, requests=20)
    fabricate("sweep/.half-written/1", "vanilla", seed=3, requests=20)
    runs = load_runs([tmp_path / "sweep", tmp_path / "sweep" / "deep" / "1"])
    assert [(run.name, run.seed) for run in runs] == [("sweep/deep/1", 1), ("sweep/deep/2", 2)]


def test_search_for_runs_is_bounded(fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the folders without a run: a sweep may have any number of points."""
    monkeypatch.setattr("mezzotint.sim.report.runs.MAX_FOLDERS", 5)
    for number in range(9):
        fabricate(f"sweep/{number}", requests=10)
    assert len(load_runs([tmp_path / "sweep"])) == 9
    for number in range(6):
        (tmp_path / "much" / str(number)).mkdir(parents=True)
    assert re.search("much: holds more than 5 folders without a run; give the run dir", error_of(tmp_path / "much"))


def test_latency_quantiles_match_the_summary(fabricate: Fabricate) -> None:
    (run,) = load_runs([fabricate("r", "vanilla", rate_rpm=12.0, requests=1500, warmup=200)])
    levels = np.linspace(0, 1, 2001)
    curve = latency_quantiles(run, levels)
    assert curve is not None
    assert (np.diff(curve) >= 0).all()
    assert np.interp([0.5, 0.99], levels, curve) == pytest.approx(
        [run.number("latency_s", "p50"), run.number("latency_s", "p99")], rel=1e-3
    )


@pytest.mark.parametrize(
    ("arrival_s", "finish_s", "outcome"),
    [
        ([0.0, 1.0, 2.0], [5.0, None, 900.0], ["completed", "failed", "discarded"]),
        ([0.0, 1.0, -1e308], [5.0, 1e13, 1e308], ["completed"] * 3),
    ],
)
def test_only_completed_requests_have_a_latency_and_absurd_ones_none(
    arrival_s: list[float], finish_s: list[float], outcome: list[str], fabricate: Fabricate
) -> None:
    (run,) = load_runs([fabricate("r", requests=10)])
    table = pa.table({"arrival_s": arrival_s, "finish_s": finish_s, "outcome": outcome})
    pq.write_table(table, run.path / "requests.parquet")
    assert latency_quantiles(run, np.array([0.0, 1.0])) == pytest.approx([5.0, 5.0])
    (run.path / "requests.parquet").unlink()
    assert latency_quantiles(run, np.array([0.5])) is None


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


@pytest.mark.parametrize("value", [None, "text", True, float("nan"), float("inf")])
def test_non_finite_number_is_none(value: object, fabricate: Fabricate) -> None:
    (run,) = load_runs([fabricate("r", requests=10)])
    other = Run(run.path, "r", {"a": {"b": value}}, {}, "s", "s", run.load)
    assert [other.number(*keys) for keys in (("a", "b"), ("a", "c"), ("a", "b", "c"))] == [None] * 3


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


def places(content: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the keys of each value in nested mappings."""
    for key, value in content.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, *above, key)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with all groups of a summary that its header reads."""
    path = tmp_path_factory.mktemp("runs") / "r"
    words = ["system=nirvana-no-predictor", "trace.requests=30", "preload=5", "client=retrying", "client.timeout_s=100"]
    assert main(["run", *words, f"run.dir={path}"]) == 0
    return path


@pytest.mark.parametrize("file", ["summary.json", "config.yaml"])
@pytest.mark.parametrize("to", [None, [1.5]])
def test_any_key_that_is_missing_or_wrong_is_named_or_not_read(
    finished: Path, tmp_path: Path, to: object, file: str
) -> None:
    path = Path(shutil.copytree(finished, tmp_path / "r"))
    whole = parse((path / file).read_bytes())
    refused = []
    for keys in places(whole):
        content = deepcopy(whole)
        edited(*keys, to=to)(content)
        (path / file).write_text(json.dumps(content) if file.endswith("json") else dump(content))
        try:
            (run,) = load_runs([path])
            assert run.header.line
            if keys[0] in ("backend", "models"):
                assert sensitivities([run], 0.0)
        except ConfigError as error:
            refused.append((str(error), keys))
    assert [said for said, keys in refused if not any(key in said for key in keys)] == []
    if file == "summary.json" or to is not None:  # a configuration may lack any key
        assert len(refused) > (20 if file == "summary.json" else 0)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("summary.json", '{"schema": 1, "system": ', r"is not valid JSON \(.*line 1.*\); run it again"),
        ("summary.json", f'{{"latency_s": {{"p99": 1{"0" * 399}}}}}', "a number of 400 digits.*; run it again"),
        ("summary.json", f'{{"latency_s": {{"p99": 1{"0" * 4999}}}}}', "a number of 5,000 digits.*; run it again"),
        ("summary.json", "[]", "expected an object"),
        ("config.yaml", "a: [1", "is not valid YAML"),
        ("config.yaml", "- 1", "the top level is .* expected a mapping"),
        ("config.yaml", "backend: 0.5", "key 'backend' is '0.5', expected a valid dictionary"),
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
