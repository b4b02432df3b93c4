"""The header names what decides a result, and one line of it fits a terminal."""

from typing import Any

import pytest

from mezzotint.sim.metrics.header import (
    MAX_LINE,
    MAX_RUN_LINE,
    Header,
    header,
    ignored_work,
    run_line,
    split_rows,
    unlike_work,
)

MODEL = {
    **{"role": "large", "model": "sdxl-mlperf", "gpu": "l40s", "width": 1024, "height": 1024, "steps": 20},
    **{"precision": "fp8", "basis": "published", "service_error": 0.15, "date": "2025-09"},
    **{"software": "TensorRT 10.11, CUDA 12.9", "source": "MLPerf Inference v5.1, closed, Dell: https://example.org"},
}
LOAD = {"offered_rpm": 12.2, "served_rpm": 11.93, "growth_per_hour": 34.2, "verdict": "overloaded", "note": None}
STATE = {
    **{"cache_start": "empty", "preloaded": 0, "warmup_s": 180.0, "warmup_rule": "MSER-5", "span_s": 1320.0},
    **{"periods": {"GlobalMonitor": 7.3}, "note": None},
}


def summary(**changes: Any) -> dict[str, Any]:
    return {
        **{"system": "nirvana", "trace": {"name": "log"}, "models": [MODEL], "load": LOAD, "state": STATE},
        **{"requests": {"arrived": 300, "completed": 298}, "latency_s": {"p95": 131.26}, "throughput_rpm": 11.9},
        "cache": {"hit_rate": None},
        "slo": {"2x": {"violation_rate": 0.956, "goodput_rpm": 0.51}},
        **changes,
    }


CONFIG = {"arrivals": {"_target_": "mezzotint.traces.arrivals.poisson.Poisson", "rate_rpm": 12.2}}


def headed(**changes: Any) -> Header:
    return header(summary(**changes), CONFIG)


def test_header_names_work_basis_traffic_state_and_load() -> None:
    found = dict(headed().rows)
    assert found["work"] == "sdxl-mlperf, 1024x1024, 20 steps, fp8, TensorRT 10.11"
    assert found["times"] == "measured by others (MLPerf Inference v5.1, Sep 2025), known to 15.0 %"
    assert found["traffic"] == "log: poisson arrivals at 12.2 a minute"
    assert found["state"] == (
        "cache empty at the start; 22 min measured, 7.3 periods of global monitor; first 3 min left out (MSER-5)"
    )
    assert found["load"] == "offered 12.2 a minute, served 11.9: overloaded, 34 more waiting an hour, 0.7 % lost"
    assert found["goodput"] == "0.51 a minute within 2x"


@pytest.mark.parametrize(
    ("untimed", "said"),
    [
        (["text_encode", "vae_decode"], "text encoding and decoding inside the steps"),
        (["vae_decode"], "decoding inside the steps"),
        (["text_encode"], "text encoding inside other stages"),  # such as a decoding that was fitted to a log
    ],
)
def test_stages_without_a_time_are_said_to_be_inside_those_that_have_one(untimed: list[str], said: str) -> None:
    assert f"({said})" in dict(headed(models=[MODEL | {"untimed": untimed}]).rows)["times"]


def test_work_says_which_share_other_models_served() -> None:
    small = MODEL | {"role": "small", "model": "sd-turbo", "requests": 30}
    work = headed(models=[MODEL | {"requests": 70}, small]).work
    assert work == "sdxl-mlperf, 1024x1024, 20 steps, fp8, TensorRT 10.11; 30 % on sd-turbo"
    assert "sd-turbo" not in headed(models=[MODEL | {"requests": 70}, small | {"requests": 0}]).work


@pytest.mark.parametrize(("verdict", "words"), [("below", "below capacity"), ("undecided", "undecided")])
def test_load_is_overloaded_where_the_summary_says_so_alone(verdict: str, words: str) -> None:
    assert words in headed(load=LOAD | {"verdict": verdict}).load
    assert "overloaded" not in headed(load=LOAD | {"verdict": verdict}).load


@pytest.mark.parametrize(
    ("change", "is_unlike"),
    [
        ({"steps": 21}, True),
        ({"precision": "fp16"}, True),
        ({"model": "flux"}, True),
        ({"gpu": "a40", "software": "other", "date": None, "basis": "assumed", "service_error": None}, False),
    ],
)
def test_work_is_unlike_by_images_and_not_by_gpu_or_engine(change: dict[str, Any], is_unlike: bool) -> None:
    assert unlike_work([headed(), headed(models=[MODEL | change])]) is is_unlike


def test_shared_rows_are_those_of_all_runs() -> None:
    common, differing = split_rows([headed(), headed(), headed(state=STATE | {"cache_start": None})])
    assert [name for name, _ in differing] == ["state"]
    assert [values[0] == values[1] != values[2] for _, values in differing] == [True]
    assert {name for name, _ in common} | {"state"} == {name for name, _ in headed().rows}


def test_line_of_a_run_fits_and_its_latency_and_load_come_first() -> None:
    line = run_line(summary(), CONFIG, "arrivals.rate_rpm=12.2", "results/runs/2026-01-01_00-00-00_nirvana")
    assert len(line) < MAX_RUN_LINE
    values = "overloaded, 298 of 300 requests completed, p95 131 s, 95.6 % over 2x"
    assert line.startswith(f"nirvana (arrivals.rate_rpm=12.2): {values}")
    assert values in run_line(summary(), CONFIG, "x" * 200, "out"), "long names take nothing from the values"
    assert len(headed(models=[MODEL | {"model": "m" * 200}]).line) < MAX_LINE


def test_header_of_an_older_summary_says_what_is_not_recorded() -> None:
    rows = dict(header(summary(models=None, state=None, slo=None, trace=None), {}).rows)
    assert rows["work"] == "model not known"
    assert rows["state"] == "state not recorded"
    assert rows["goodput"] == "no limit was set"


def test_declared_hits_are_no_cache_and_too_few_periods_are_said() -> None:
    found = headed(
        cache={"hit_rate": 0.4}, state=STATE | {"cache_start": None, "note": "GlobalMonitor decided 2 times"}
    )
    assert found.state.startswith("hits declared; 22 min measured")
    assert found.state.endswith("; GlobalMonitor decided 2 times")


def test_work_that_a_trace_asks_for_and_a_run_does_not_serve_is_named() -> None:
    unused = {
        "prompt": "no part compares prompts",
        "width": "shapes=model",
        "height": "shapes=model",
        "loras": "addons",
    }
    found = {"trace": {"name": "log", "columns": {"unused": unused}}}
    assert ignored_work(found) == "log: its own work is not served: sizes (shapes=model); LoRAs (addons)"
    assert ignored_work({"trace": {"name": "log", "columns": {"unused": {"prompt": "none compares"}}}}) == ""
    assert ignored_work({"trace": None}) == ""
