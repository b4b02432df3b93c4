"""Published logs: their samples, and what their maps leave to code."""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.describe import describe_trace
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.table.trace import Trace
from tests.traces.lab import parquet_bytes

BETA = "est_unix_s,channel,idx,user,prompt,width,height,steps,cfg,sampler,n_images,seed,gen_seconds\n"
TIMED = (
    "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,num_images_per_prompt,num_inference_steps,"
    "checkpoint_model_version_id,num_lora\n"
)
UNTIMED = (
    "predict_type,exec_time_seconds,num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,lora_args\n"
)
in_a_folder = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def load(log: str, path: Path, seed: int = 0, **options: Any) -> Trace:
    source: Any = LOGS[log]
    trace: Trace = source(path=str(path), **options).load(np.random.default_rng(seed))
    return trace


def imported(log: str, content: str | bytes, folder: Path, **options: Any) -> Trace:
    path = folder / ("t.parquet" if content[:4] == b"PAR1" else "t.csv")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load(log, path, **options)


def test_diffusiondb_sample_is_imported(data: Path) -> None:
    path = data / "diffusiondb" / "metadata_1k.csv"
    trace = load("diffusiondb", path)
    described = describe_trace(trace).to_dict()
    assert (len(trace), described["users"]["count"], described["prompts"]["distinct"]) == (1000, 173, 917)
    assert described["sizes"]["most"]["512x512"] == 0.635
    # every arrival lies in the minute that the table states for its row
    table = pd.read_csv(path)
    stamped = pd.to_datetime(table["timestamp"])
    minute = ((stamped - stamped.min()).dt.total_seconds() // 60).to_numpy()
    rows = trace.table.column("request_id").cast(pa.int64()).to_numpy()
    assert (np.floor(trace.arrival_s / 60) == minute[rows]).all()
    assert trace.prompts().to_pylist() == table["prompt"].iloc[rows].tolist()
    one, same, other = (load("diffusiondb", path, seed) for seed in (1, 1, 2))
    assert one.digest == same.digest != other.digest
    assert abs(one.arrival_s - other.arrival_s).max() < 60.0


@in_a_folder
@given(minutes=st.lists(st.integers(0, 5_000_000), min_size=1, max_size=40), seed=st.integers(0, 99))
def test_arrivals_stay_in_their_minute_and_in_file_order(minutes: list[int], seed: int, tmp_path: Path) -> None:
    count = len(minutes)
    stamps = pa.array(np.array(minutes, np.int64) * 60_000_000).cast(pa.timestamp("us", "UTC"))
    plain = {name: pa.array([512] * count) for name in ("width", "height", "step", "seed")}
    texts = {name: pa.array(["x"] * count) for name in ("prompt", "user_name")}
    path = tmp_path / "m.parquet"
    pq.write_table(pa.table({"timestamp": stamps, **plain, **texts}), path)
    trace = load("diffusiondb", path, seed)
    rows = trace.table.column("request_id").cast(pa.int64()).to_numpy()
    assert rows.tolist() == sorted(range(count), key=lambda row: minutes[row])
    assert (np.floor(trace.arrival_s / 60) == np.array(minutes)[rows] - min(minutes)).all()


def published() -> bytes:
    """DiffusionDB's own types, as its metadata.parquet has them."""
    minutes = np.array(["2022-08-10T00:02", "2022-08-10T00:00", "2022-08-10T00:02", "NaT"], "datetime64[us]")
    return parquet_bytes(
        image_name=["w.png", "x.png", "y.png", "z.png"],
        prompt=["a", "b", "c", "d"],
        seed=pa.array([2**32 - 1, 1, 2, 3], pa.uint32()),
        step=pa.array([50, 50, 150, 50], pa.uint16()),
        width=pa.array([512, 512, 768, 512], pa.uint16()),
        height=pa.array([512, 640, 512, 512], pa.uint16()),
        user_name=["u", "deleted_account", None, "u"],
        timestamp=pa.array(minutes, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        image_nsfw=pa.array([0.1, 2.0, 0.9, 0.1], pa.float32()),
        prompt_nsfw=pa.array([0.1, 0.1, 0.1, 0.1], pa.float32()),
    )


def test_diffusiondb_parquet_is_imported(tmp_path: Path) -> None:
    trace = imported("diffusiondb", published(), tmp_path)
    table = trace.table.to_pydict()
    assert table["request_id"] == ["x.png", "w.png", "y.png"]
    assert (table["user_id"], table["seed"]) == ([None, "u", None], [1, 2**32 - 1, 2])
    assert (table["width"], table["height"], table["steps"]) == ([512, 512, 768], [640, 512, 512], [50, 50, 150])
    assert (np.floor(trace.arrival_s / 60) == [0, 2, 2]).all()
    assert (trace.notes["skipped"], trace.notes["licence"]) == ({"no timestamp": 1}, "CC0-1.0")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"nsfw_max": 1.0}, ["w.png", "y.png"]),  # 2.0 is the mark of Stable Diffusion's own filter
        ({"nsfw_max": 0.5}, ["w.png"]),
        ({"nsfw_max": 2.0}, ["x.png", "w.png", "y.png"]),
        ({"limit": 2}, ["x.png", "w.png"]),
    ],
)
def test_diffusiondb_options_select_rows(options: dict[str, Any], kept: list[str], tmp_path: Path) -> None:
    trace = imported("diffusiondb", published(), tmp_path, **options)
    assert trace.table.column("request_id").to_pylist() == kept
    assert len(trace) + sum(trace.notes["skipped"].values()) == 4


def test_missing_network_asks_for_a_downloaded_file() -> None:
    pytest.importorskip("datasets")
    # offline mode is read once, at import, so it takes a fresh process
    script = (
        "import numpy; from mezzotint.traces.sources.published import LOGS;"
        "LOGS['diffusiondb']().load(numpy.random.default_rng(0))"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "download metadata.parquet" in ended.stderr.strip().splitlines()[-1]


def test_gentd26_timed_sample_is_imported(data: Path) -> None:
    path = data / "gentd26" / "lora_request_trace.csv"
    trace = load("gentd26", path)
    assert (len(trace), len(trace.table.column("user_id").unique())) == (17_764, 3_044)
    assert trace.span_s / 86400 == pytest.approx(17.29, abs=0.01)
    assert sum(trace.notes["loras_per_request"].values()) == sum(trace.notes["status"].values()) == 17_764
    assert Counter(trace.column("images").tolist())[4] == 3_477
    # a known number of unknown LoRAs is neither none nor a name
    loras = trace.table.column("loras")
    assert loras.null_count == 17_764 - trace.notes["loras_per_request"]["0"]
    assert pc.sum(pc.list_value_length(loras)).as_py() == 0
    done = load("gentd26", path, drop_failed=True)
    assert (len(done), done.notes["skipped"]) == (17_467, {"predict_status is not SUCCEED": 297})
    assert len(load("gentd26", path, text_only=True)) == 16_296
    unnamed = load("gentd26", path, unnamed_loras=True)
    lengths = pc.list_value_length(unnamed.table.column("loras")).to_pylist()
    assert {str(length): count for length, count in Counter(lengths).items()} == trace.notes["loras_per_request"]


def test_gentd26_untimed_sample_is_imported(data: Path) -> None:
    trace = load("gentd26", data / "gentd26" / "data_trace_processed.first40k.csv.gz")
    assert len(trace) == trace.table.column("user_id").null_count == 40_000
    assert "needs an arrival process" in trace.notes["arrival_s"]
    assert pc.sum(pc.list_value_length(trace.table.column("loras"))).as_py() == 11_670
    assert trace.notes["loras_per_request"]["0"] == 29_440


def test_gentd26_rows_become_requests(tmp_path: Path) -> None:
    rows = (
        "2024-11-15 10:00:05,TXT_2_IMG,SUCCEED,3.0,g1,4.0,30.0,m1,2\n"
        "2024-11-15 10:00:00,INPAINTING,FAILED,0.0,g2,,,,0\n"
    )
    trace = imported("gentd26", TIMED + rows, tmp_path, unnamed_loras=True)
    first, second = trace.table.to_pylist()
    assert (first["request_id"], second["request_id"], trace.arrival_s.tolist()) == ("1", "0", [0.0, 5.0])
    assert (first["steps"], first["base_model"], first["loras"]) == (None, None, [])
    assert (second["images"], second["user_id"], second["loras"]) == (4, "g1", ["unnamed-1", "unnamed-2"])


def record(**changes: Any) -> dict[str, Any]:
    place = {"timestamp": "2024-03-01 00:00:00", "ip": "node-1", "scene_id": "A", "base_model_id": "m1"}
    return {**place, "controlnets": ["c1", "c2"], "loras": ["l1"], **changes}


@pytest.mark.parametrize("form", ["array", "lines", "gzipped"])
@pytest.mark.parametrize(
    ("stamps", "unit"),
    [
        (["2024-03-01 00:00:02.5", "2024-03-01 00:00:00"], "text"),
        (["2024-03-01T01:00:02.5+01:00", "2024-03-01T00:00:00Z"], "text"),
        ([1_709_251_202.5, 1_709_251_200], "seconds since 1970"),
        ([1_709_251_202_500, 1_709_251_200_000], "milliseconds since 1970"),
    ],
)
def test_katz_reads_every_form(stamps: list[Any], unit: str, form: str, tmp_path: Path) -> None:
    records = [
        record(timestamp=stamps[0], loras=None, ip="node-2", scene_id="B"),
        record(timestamp=stamps[1], base_model_id=7),
    ]
    content = ("\n".join(map(json.dumps, records)) if form == "lines" else json.dumps(records, indent=1)).encode()
    trace = imported("katz", gzip.compress(content) if form == "gzipped" else content, tmp_path)
    first, second = trace.table.to_pylist()
    assert trace.arrival_s.tolist() == [0.0, 2.5]
    assert (first["request_id"], second["request_id"]) == ("A/node-1/1", "B/node-2/0")
    assert (first["base_model"], second["base_model"]) == ("7", "m1")
    assert (first["controlnets"], first["loras"], second["loras"]) == (["c1", "c2"], ["l1"], [])
    notes = {name: trace.notes[name] for name in ("services", "nodes", "times")}
    assert notes == {"services": {"A": 1, "B": 1}, "nodes": 2, "times": unit}


def test_katz_is_filtered_by_service_and_node(tmp_path: Path) -> None:
    content = json.dumps([record(ip="n1"), record(ip="n2"), record(ip="n1", scene_id="B")])
    assert len(imported("katz", content, tmp_path, service="A")) == 2
    only = imported("katz", content, tmp_path, service="A", node="n1")
    assert only.table.column("request_id").to_pylist() == ["A/n1/0"]
    assert only.notes["skipped"] == {"another service or node": 2}


def mjhq(each: int = 4, categories: int = 10) -> dict[str, dict[str, str]]:
    """The published form in small: the categories one after another."""
    return {
        f"{category}-{index}": {"category": f"c{category}", "prompt": f"prompt {index} of {category}"}
        for category in range(categories)
        for index in range(each)
    }


def test_mjhq_takes_the_last_prompts_of_each_category(tmp_path: Path) -> None:
    trace = imported("mjhq", json.dumps(mjhq()), tmp_path)
    assert trace.table.column("request_id").to_pylist() == list(mjhq())
    assert trace.notes["categories"] == {f"c{category}": 4 for category in range(10)}
    # the last n / 10 of each category, in the order of the file
    last = imported("mjhq", json.dumps(mjhq()), tmp_path, requests=20)
    assert last.table.column("request_id").to_pylist() == [f"{c}-{index}" for c in range(10) for index in (2, 3)]
    assert last.arrival_s.tolist() == list(range(20))
    assert last.notes["skipped"] == {"before the last of their category": 20}


def test_partiprompts_sample_is_imported(data: Path) -> None:
    path = data / "partiprompts" / "PartiPrompts.tsv"
    trace = load("partiprompts", path)
    assert (len(trace), len(trace.notes["categories"])) == (1_632, 12)
    # as the file has them, quotes and all
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    assert trace.prompts().to_pylist() == [line.split("\t")[0] for line in lines]


@in_a_folder
@given(picks=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), min_size=1, max_size=30))
def test_sd_beta_merge_never_reorders_a_channel(picks: list[tuple[str, int]], tmp_path: Path) -> None:
    """For any estimates and any order of the channels."""
    place: Counter[str] = Counter()
    rows = []
    for channel, at in picks:
        place[channel] += 1
        rows.append(f"{at},{channel},{place[channel]},u,p,512,512,,7,,1,1,5.0\n")
    trace = imported("sd-beta", BETA + "".join(rows), tmp_path)
    seen = defaultdict(list)
    for name in trace.table.column("request_id").to_pylist():
        channel, idx = name.split("/")
        seen[channel].append(int(idx))
    assert seen == {channel: list(range(1, count + 1)) for channel, count in place.items()}
    # where no estimate had to be raised, all are as in the log
    if not trace.notes["raised_estimates"]:
        times = sorted(at for _, at in picks)
        assert trace.arrival_s.tolist() == [float(at - times[0]) for at in times]


def test_sd_beta_message_becomes_a_request(tmp_path: Path) -> None:
    rows = '0,c,1,,"a, fox",512,768,,,,9,,42.84\n60,c,2,u,,1024,512,150,7,ddim,1,5,\n'
    trace = imported("sd-beta", BETA + rows, tmp_path)
    one, two = trace.table.to_pylist()
    assert (one["request_id"], one["user_id"], one["prompt"], one["seed"]) == ("c/1", None, "a, fox", None)
    assert (one["width"], one["height"], one["steps"], one["images"], one["gen_s"]) == (512, 768, 50, 9, 42.84)
    assert (two["steps"], two["images"], two["gen_s"], two["prompt"]) == (150, 1, None, None)
    assert trace.notes["columns_left_out"] == ["cfg", "sampler"]


@pytest.mark.parametrize(
    ("options", "names", "skipped"),
    [
        ({"channel": "b"}, ["b/1"], {"another channel": 2}),
        (
            {"since": "2022-08-09T00:00", "until": "2022-08-09T02:06:43+02:00"},
            ["a/2"],
            {"before `since`": 1, "from `until` on": 1},
        ),
    ],
)
def test_sd_beta_keeps_a_channel_or_a_stretch(
    options: dict[str, str], names: list[str], skipped: dict[str, int], tmp_path: Path
) -> None:
    places = ((1660000000, "a", 1), (1660003600, "a", 2), (1660003605, "b", 1))
    rows = "".join(f"{at},{channel},{idx},u,p,512,512,,7,,1,1,5.0\n" for at, channel, idx in places)
    trace = imported("sd-beta", BETA + rows, tmp_path, **options)
    assert trace.table.column("request_id").to_pylist() == names
    assert trace.notes["skipped"] == skipped
    assert trace.notes["first_arrival"].startswith("2022-08-09T00:06:4")  # of the kept requests


FAILED = "2024-11-15 10:00:00,INPAINTING,FAILED,0,g,1,1,m,{}\n"
ONE = "5,a,1,u,p,1,1,1,1,,1,1,1\n"


@pytest.mark.parametrize(
    ("log", "content", "options", "message"),
    [
        ("diffusiondb", published(), {"nsfw_max": 0.0}, "no requests are left of 4"),
        ("diffusiondb", published(), {"limit": 0}, "limit=0"),
        ("diffusiondb", published(), {"nsfw_max": float("nan")}, "nsfw_max=nan"),
        (
            "diffusiondb",
            '{"a.png": {"p": "a fox"}}',
            {},
            "holds JSON, expected DiffusionDB .*trace import table`",
        ),
        ("gentd26", "a,b\n1,2\n", {}, "column 'num_inference_steps' is missing"),
        ("gentd26", TIMED + FAILED.format(-1), {}, "row 0, column num_lora: found -1, expected 0 to 1000"),
        ("gentd26", TIMED + FAILED.format(0) * 2, {"drop_failed": True}, "no requests are left of 2"),
        ("gentd26", UNTIMED + "T,3,4,30,m,[]\n", {"drop_failed": True}, "has no times, status and kinds"),
        ("gentd26", UNTIMED + "T,3,4,30,m,__import__('os')\n", {}, "row 0, column lora_args: found"),
        ("katz", json.dumps([7]), {}, "row 0: found 7, expected a valid dict"),
        ("katz", json.dumps([record(), {"timestamp": 1}]), {}, "row 1, column ip: found nothing, expected a value"),
        ("katz", json.dumps([record(), record(timestamp=5)]), {}, "row 1, column timestamp: found 5, expected text as"),
        ("katz", json.dumps([record(loras="l1")]), {}, "row 0, column loras: found 'l1', expected a valid list"),
        ("katz", json.dumps([record()] * 3), {"service": "C"}, r"no requests are left of 3 \(services A\)"),
        ("mjhq", "[]", {}, "expected a JSON object"),
        ("mjhq", '{"a": 1}', {}, "row 0: found 1, expected a valid dict"),
        ("mjhq", '{"a": {"category": "x", "prompt": "p"}', {}, "found the end of the file, expected a comma or }"),
        ("mjhq", json.dumps(mjhq()), {"requests": 50}, "found 40 prompts in 10 categories, expected 5 or more"),
        ("mjhq", json.dumps(mjhq(categories=9)), {"requests": 10}, "in 9 categories"),
        ("mjhq", json.dumps(mjhq()), {"requests": 15}, "expected a multiple of 10"),
        ("partiprompts", "text\tCategory\na\tb\n", {}, "column 'Prompt' is missing"),
        ("sd-beta", BETA + ONE, {"since": "yesterday"}, "since='yesterday', expected a day or a time such as"),
        ("sd-beta", BETA + ONE, {"since": "2022-08-12", "until": "2022-08-12"}, "leave no time between them"),
        ("sd-beta", BETA + ONE, {"channel": "z"}, r"no requests are left of 1 \(channels a\)"),
        ("sd-beta", BETA + ONE * 2, {}, "row 1, column idx: found 1, expected more than 1"),
    ],
)
def test_malformed_log_or_option_is_refused(
    log: str, content: str | bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        imported(log, content, tmp_path, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stretch", [{"since": "2022-08-13"}])
def test_sd_beta_log_is_imported(data: Path, stretch: dict[str, str]) -> None:
    path = data / "sd_beta_log" / "requests.csv.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    trace = load("sd-beta", path, **stretch)
    assert len(trace) + sum(trace.notes["skipped"].values()) == trace.notes["rows"] == 561_190
    assert (trace.notes["channels"], trace.notes["raised_estimates"]) == (30, 0)
    assert trace.table.column("user_id").null_count == trace.notes["users_unknown"] == 0
