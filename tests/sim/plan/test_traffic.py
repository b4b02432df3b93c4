"""The requests of a plan: a log's busiest hour, states of a cache, lengths of runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.options import Options
from mezzotint.sim.plan.traffic import LEAD_S, PERIODS, Traffic, find_starts, find_traffic
from mezzotint.sim.run.shared_trace import repeat
from mezzotint.traces.table.trace import Trace, make, read


def log(folder: Path, arrival_s: list[float]) -> Path:
    rows = "\n".join(f"{at},a fox {row}" for row, at in enumerate(arrival_s))
    (path := folder / "log.csv").write_text(f"arrival_s,prompt\n{rows}\n")
    return path


def traffic_of(folder: Path, arrival_s: list[float], rate_rpm: float | None = None) -> Traffic:
    options = Options(["p95<10s"], trace=log(folder, arrival_s), rate_rpm=rate_rpm, runs=folder / "runs")
    return find_traffic(options)


def test_log_is_replayed_in_its_busiest_hour_after_the_requests_before_it(tmp_path: Path) -> None:
    """Four hours at one a minute; the third one at ten."""
    quiet_s, busy_s = np.arange(0, 4 * 3600, 60.0), np.arange(2 * 3600, 3 * 3600, 6.0)
    found = traffic_of(tmp_path, sorted({*quiet_s.tolist(), *busy_s.tolist()}))
    assert found.rate_rpm == pytest.approx(10, rel=0.01)
    assert found.mean_rpm == pytest.approx((3 * 60 + 600) / 240, rel=0.02)
    assert (found.earlier, found.lead) == (110, 10)
    assert len(found.trace) == 120 + 600
    served_s = found.trace.arrival_s[found.earlier :]
    assert served_s[0] == 0
    assert served_s[found.lead] == LEAD_S
    starts, earlier, notes = find_starts(found, 0.0, has_cache=True)
    assert starts["warm"] == {"preload": 110, "warmup": 10}
    assert len(read(starts["empty"]["trace.path"])) == 610
    assert (earlier, notes) == (110, [])


def test_warm_and_empty_cache_serve_as_many_requests(tmp_path: Path) -> None:
    found = traffic_of(tmp_path, np.arange(100.0).tolist(), rate_rpm=60.0)
    starts, earlier, _ = find_starts(found, 0.0, has_cache=True)
    assert earlier == 50
    assert starts["warm"] == {"warmup": "auto", "preload": 50}
    assert starts["empty"] == {"warmup": "auto", "trace.requests": 50, "preload": 0}


def test_log_that_is_short_for_a_controller_is_said_and_a_built_in_trace_grows(tmp_path: Path) -> None:
    found = traffic_of(tmp_path, np.arange(100.0).tolist(), rate_rpm=60.0)
    _, _, notes = find_starts(found, 30.0, has_cache=False)
    assert "100 requests are 3.3 periods of the slowest controller" in notes[0]
    grown, _, notes = find_starts(replace(found, is_file=False, rate_rpm=6e4), 30.0, has_cache=False)
    assert notes == []
    assert grown["warm"]["trace.requests"] == 1000 * 30 * (PERIODS + 1)


def test_repeated_requests_come_in_order_with_ids_of_their_own() -> None:
    once: Trace = make({"request_id": ["a", "b"], "arrival_s": [0.0, 3.0], "steps": [5, 9]}, name="t", source="test")
    twice = repeat(once, 2)
    assert twice.column("steps").tolist() == [5, 9, 5, 9]
    assert twice.arrival_s.tolist() == [0, 3, 4, 7]


def test_log_without_times_asks_for_a_rate(tmp_path: Path) -> None:
    (path := tmp_path / "log.csv").write_text("prompt,steps\na fox,20\na dog,20\n")
    with pytest.raises(ConfigError, match=r"log\.csv: has an order of requests and no times; give --rate-rpm, or map"):
        find_traffic(Options(["p95<10s"], trace=path, runs=tmp_path / "runs"))
    assert len(find_traffic(Options(["p95<10s"], trace=path, rate_rpm=60.0, runs=tmp_path / "runs")).trace) == 2
