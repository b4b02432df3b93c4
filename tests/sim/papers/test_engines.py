"""Closed loops of engines on a serial server."""

from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.engines import compare, measure, replay

HEAD = "file,timestamp,gpu,num_gpus,framework,profile,case_id,"
SINGLE = HEAD + "client_s,overhead_s,error\n"
LOOP = HEAD + "completed,concurrency,duration_s,mean_s,p95_s,error\n"
ON = "r.json,2026-07-01T10:00:00,A,2,engine,tp"


@pytest.mark.parametrize(("clients", "requests"), [(1, 4), (2, 7), (4, 32)])
def test_closed_loop_on_a_serial_server_waits_for_all_other_clients(clients: int, requests: int) -> None:
    latency_s, end_s = replay(3.0, clients, requests)
    assert end_s == pytest.approx(3.0 * requests)
    assert latency_s.tolist() == pytest.approx([3.0 * min(number, clients) for number in range(1, requests + 1)])


@pytest.mark.parametrize(
    ("clients", "clips_h", "mean_s", "p50_s", "p99_s"),
    [(1, 28.21, 127.6, 127.6, 127.8), (2, 30.43, 208.2, 230.1, 243.9)],
)
def test_cosmos3_loop_follows_from_handling_that_overlaps(
    clients: int, clips_h: float, mean_s: float, p50_s: float, p99_s: float
) -> None:
    """vLLM-Omni (Apache-2.0), 8 x H200: 127.6 s alone, of which 14.4 s overlap the next request."""
    latency_s, end_s = replay(127.6 - 14.4, clients, 2 * clients, handling_s=14.4)
    assert 3600 * len(latency_s) / end_s == pytest.approx(clips_h, rel=0.02)
    assert latency_s.mean() == pytest.approx(mean_s, rel=0.02)
    assert sorted(latency_s)[len(latency_s) // 2] == pytest.approx(p50_s, rel=0.02)
    assert latency_s.max() == pytest.approx(p99_s, rel=0.02)
    without = replay(127.6, clients, 2 * clients)[1]
    assert (3600 * len(latency_s) / without < 0.95 * clips_h) == (clients > 1)


@pytest.mark.parametrize(("clients", "clips_h"), [(1, 119.72), (2, 131.17), (4, 134.59), (8, 136.49)])
def test_one_handling_explains_every_number_of_clients(clients: int, clips_h: float) -> None:
    """Cosmos3's clips of 81 frames and 20 steps: 30.07 s alone; 3.94 s of handling, fitted to eight clients."""
    latency_s, end_s = replay(30.07 - 3.94, clients, 2 * clients, handling_s=3.94)
    assert 3600 * 2 * clients / end_s == pytest.approx(clips_h, rel=0.015)
    if clients == 8:
        assert latency_s.mean() == pytest.approx(165.47, rel=0.005)


def test_wan22_replicas_make_as_many_times_the_videos() -> None:
    """vLLM-Omni (Apache-2.0), A800: 4.71, 9.20 and 18.02 videos a minute on 1, 2 and 4 replicas."""
    single = 60 / 4.71
    _, end_s = replay(single, 1, 7)
    assert [7 * count / end_s * 60 for count in (2, 4)] == pytest.approx([9.20, 18.02], rel=0.05)


def folder_of(tmp_path: Path, loops: str) -> Path:
    (tmp_path / "single_requests.csv").write_text(f"{SINGLE}{ON},a,2.0,0.1,\n{ON},b,60.0,,\n")
    (tmp_path / "closed_loops.csv").write_text(LOOP + loops)
    return tmp_path


def test_study_takes_the_request_alone_of_the_same_report_and_names_the_rest(tmp_path: Path) -> None:
    loops = f"{ON},a,4,2,8.0,3.5,4.0,\n{ON},b,4,2,16.0,7.0,8.0,\n{ON},c,4,2,8.0,3.5,4.0,\n{ON},a,,,,,,exit 1\n"
    folder = folder_of(tmp_path, loops)
    facts = measure(folder)
    (row,) = facts["rows"]
    assert row["error"] == pytest.approx({"mean": 0.0, "p95": 0.0, "throughput": 0.0})
    reasons = [reason.partition(": ")[2] for reason in facts["skipped"]]
    assert reasons == [
        "the request alone is a compilation (60.0 s, in the loop 4.0 s each)",
        "its report has no request alone",
        "failed",
    ]
    assert compare(folder, tmp_path / "out") == 0
    page = (tmp_path / "out" / "engines.md").read_text(encoding="utf-8")
    assert "| engine | 1 | 0.0 % | 0.0 % | 0.0 % |" in page


def test_loops_that_cannot_be_replayed_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"closed_loops\.csv: none of its loops can be replayed; .*: failed"):
        measure(folder_of(tmp_path, f"{ON},a,,,,,,exit 1\n"))
    assert main(["reproduce", "engines", str(tmp_path / "none")]) == 2
