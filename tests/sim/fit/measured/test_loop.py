"""A loop closed over HTTP: export a trace, drive a FIFO server with it, import what the client wrote, and validate."""

import json
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from shutil import which
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.traces.table.trace import make, read, write
from tests.sim.fit.measured.lab import MODEL, fifo, poisson, profile

REQUESTS, SERVICE_S, GAP_S = 40, 0.06, 0.09


@contextmanager
def images_server(seed: int = 7) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """Serve /v1/images/generations, one request at a time in the order of arrival; yield its URL and its log.

    A request takes a time that is drawn, slept and logged: start and end on the machine's clock.
    """
    log: list[dict[str, float]] = []
    waiting: Queue[tuple[float, threading.Event] | None] = Queue()
    rng = np.random.default_rng(seed)

    def work() -> None:
        while (entry := waiting.get()) is not None:
            arrived_s, done = entry
            start_s = time.time()
            time.sleep(float(SERVICE_S * rng.lognormal(0.0, 0.1)))
            log.append({"arrived_s": arrived_s, "start_s": start_s, "end_s": time.time()})
            done.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            done = threading.Event()
            waiting.put((time.time(), done))
            done.wait()
            body = json.dumps({"created": 0, "data": [{"b64_json": "AAAA"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threads = [threading.Thread(target=run, daemon=True) for run in (work, server.serve_forever)]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        server.server_close()
        waiting.put(None)


def drive(url: str, schedule: Path, folder: Path) -> Path:
    """Send a schedule as AIPerf does, and write what AIPerf would; return profile_export.jsonl."""
    lines = [json.loads(line) for line in schedule.read_text().splitlines()]
    records, sessions = [], []
    begin_s = time.time() + 0.1

    def send(line: dict[str, Any]) -> None:
        time.sleep(max(0.0, begin_s + line["timestamp"] / 1000 - time.time()))
        name, body = str(uuid.uuid4()), {"prompt": line["text"], "n": 1, "size": "512x512", "num_inference_steps": 10}
        asked = urllib.request.Request(
            f"{url}/v1/images/generations", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        start_ns = time.time_ns()
        with urllib.request.urlopen(asked) as answer:
            answer.read()
        end_ns = time.time_ns()
        metadata = {"x_request_id": name, "conversation_id": name, "turn_index": 0, "benchmark_phase": "profiling"}
        metadata |= {"request_start_ns": start_ns, "request_end_ns": end_ns, "was_cancelled": False}
        latency = {"value": (end_ns - start_ns) / 1e6, "unit": "ms"}
        records.append({"metadata": metadata, "metrics": {"request_latency": latency}})
        sessions.append({"session_id": name, "payloads": [body]})

    threads = [threading.Thread(target=send, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (folder / "inputs.json").write_text(json.dumps({"data": sessions}))
    (folder / "profile_export.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder / "profile_export.jsonl"


def drive_aiperf(url: str, schedule: Path, folder: Path) -> Path:
    """Send a schedule with AIPerf itself, offline; return profile_export.jsonl."""
    if which("aiperf") is None:
        pytest.skip("AIPerf is not installed")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder / "tokenizer")
    command = ["aiperf", "profile", "--url", url, "--model", "tiny", "--endpoint-type", "image_generation"]
    command += ["--tokenizer", str((folder / "tokenizer").resolve()), "--input-file", str(schedule), "--ui", "simple"]
    command += ["--custom-dataset-type", "single_turn", "--fixed-schedule", "--artifact-dir", str(folder / "out")]
    command += ["--extra-inputs", "size:512x512", "num_inference_steps:10"]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    return folder / "out" / "profile_export.jsonl"


@pytest.mark.parametrize("client", [drive, drive_aiperf])
def test_export_drive_import_validate(
    client: Callable[[str, Path, Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With nothing fitted but the quiet requests, a simulation explains a real server.

    The bounds on the errors follow from the log of the server: what a busy machine adds to a sleep is in it, and the
    simulation is not held to the delays of the client beyond that.
    """
    alike = {name: [size] * REQUESTS for name, size in (("width", 512), ("height", 512), ("steps", 10))}
    rows = {"request_id": [f"r{row}" for row in range(REQUESTS)], "prompt": [f"fox {row}" for row in range(REQUESTS)]}
    write(make({**rows, **alike, "arrival_s": poisson(REQUESTS, GAP_S)}, name="t", source="s"), tmp_path / "t.parquet")
    schedule = tmp_path / "schedule.jsonl"
    assert main(["trace", "export", str(tmp_path / "t.parquet"), "--format", "aiperf", "-o", str(schedule)]) == 0
    assert "--extra-inputs size:512x512 num_inference_steps:10" in capsys.readouterr().out

    for attempt in range(3):  # other work on the machine may spoil one
        try:
            hold(client, schedule, tmp_path / f"{attempt}", rows["prompt"])
            return
        except AssertionError:
            if attempt == 2:
                raise


def hold(client: Callable[[str, Path, Path], Path], schedule: Path, folder: Path, prompts: list[str]) -> None:
    """Drive a server, and hold a simulation against what the client measured."""
    folder.mkdir()
    with images_server() as (url, log):
        result = client(url, schedule, folder)

    assert main(["trace", "import", "aiperf", str(result), "-o", str(folder / "m.parquet")]) == 0
    measured = read(folder / "m.parquet")
    assert len(measured) == REQUESTS == len(log)
    assert sorted(measured.prompts().to_pylist()) == sorted(prompts)

    words = ["--measured", str(result), "--fit", "quiet", profile(folder, 9.0, 9.0), f"run.dir={folder / 'held'}"]
    assert main(["validate", *words, *MODEL]) == 0
    facts = json.loads((folder / "held" / "validation.json").read_text())
    errors = {row["what"]: row["error"] for row in facts["rows"]}
    log.sort(key=lambda entry: entry["start_s"])
    queue_s = fifo(measured.arrival_s, np.array([entry["end_s"] - entry["start_s"] for entry in log]))
    unexplained = measured.column("latency_s").mean() / queue_s.mean() - 1  # HTTP, and the machine's other work
    assert facts["fitted"]["quiet_requests"] >= 3
    assert abs(errors["mean"]) < 0.2 + 2 * abs(unexplained)
    assert abs(errors["throughput"]) < 0.05
    assert max(abs(errors[name]) for name in ("p50", "p90", "p95", "p99")) < 0.4 + 3 * abs(unexplained)
