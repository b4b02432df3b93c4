"""What is fitted to a measured FIFO queue is what made it, and then nothing is left to explain."""

import json
from pathlib import Path

import numpy as np
import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.measured.replay import find_scale, relative, replay_with
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.benchmark import AIPerf
from mezzotint.traces.table.trace import Trace, make
from tests.conftest import ORACLES
from tests.sim.fit.measured.lab import Floats, config, fifo, poisson, profile, served

STEPS = 10
ARRIVALS = poisson(300, 1.4)


def test_replay_of_a_right_profile_has_no_error(tmp_path: Path) -> None:
    trace = served(ARRIVALS, np.full(300, 1.0))
    plain = config(trace, tmp_path, [profile(tmp_path, 0.05, 0.1)])
    _, replay, fitted = replay_with(plain, trace, "none", tmp_path)
    rows = replay.requests
    assert np.abs(rows["latency_s"] - rows["measured_s"]).max() < 1e-9
    assert not fitted


def test_scale_is_that_between_profile_and_server(tmp_path: Path) -> None:
    """A server 1.25 times as slow as the profile: one factor explains every request."""
    trace = served(ARRIVALS, np.full(300, 1.0))
    plain = config(trace, tmp_path, [profile(tmp_path, 0.04, 0.08)])
    fitted_config, replay, fitted = replay_with(plain, trace, "scale", tmp_path)
    assert fitted["service_factor"] == pytest.approx(1.25, rel=1e-3)
    assert fitted_config["backend"]["service_factor"] == fitted["service_factor"]
    assert replay.requests["latency_s"].to_numpy() == pytest.approx(trace.column("latency_s"), rel=5e-3)


def test_no_scale_explains_latencies_below_any_service(tmp_path: Path) -> None:
    trace = served(ARRIVALS, np.full(300, 1e-4))
    plain = config(trace, tmp_path, [profile(tmp_path, 0.05, 0.1)])
    with pytest.raises(ConfigError, match=r"--fit scale: no factor up to 16"):
        replay_with(plain, trace, "scale", tmp_path)


def test_handling_is_what_quiet_requests_take_beyond_their_service(tmp_path: Path) -> None:
    """0.3 s that hold no GPU are added to each latency and lengthen no queue."""
    trace = served(ARRIVALS, np.full(300, 1.0), more_s=0.3)
    plain = config(trace, tmp_path, [profile(tmp_path, 0.05, 0.1)])
    _, replay, fitted = replay_with(plain, trace, "handling", tmp_path)
    assert fitted["handling_s"] == pytest.approx(0.3, abs=1e-9)
    assert replay.requests["latency_s"].to_numpy() == pytest.approx(trace.column("latency_s"), abs=1e-9)


def test_handling_below_zero_is_refused(tmp_path: Path) -> None:
    trace = served(ARRIVALS, np.full(300, 1.0))
    plain = config(trace, tmp_path, [profile(tmp_path, 0.06, 0.12)])
    with pytest.raises(ConfigError, match=r"take 0\.2 s less than the profile's service"):
        replay_with(plain, trace, "handling", tmp_path)


def test_quiet_requests_give_the_seconds_of_each_size_and_number_of_steps(tmp_path: Path) -> None:
    """The law of the server is 0.2 s and 10 or 40 ms a step; the profile at hand is far off and takes no part."""
    rng = np.random.default_rng(4)
    arrival_s, is_large = poisson(600, 1.0), rng.random(600) < 0.5
    steps = rng.choice([10, 20, 30], 600)
    service_s = 0.2 + steps * np.where(is_large, 0.04, 0.01)
    side = np.where(is_large, 512, 256)
    trace = served(arrival_s, service_s, width=side, height=side, steps=steps)
    plain = config(trace, tmp_path, [profile(tmp_path, 1.0, 2.0)])
    _, replay, fitted = replay_with(plain, trace, "quiet", tmp_path)
    assert fitted["step_s"] == pytest.approx({"256x256": 0.01, "512x512": 0.04}, rel=1e-3)
    assert replay.requests["latency_s"].to_numpy() == pytest.approx(trace.column("latency_s"), rel=0.02)


def test_too_few_quiet_requests_are_refused(tmp_path: Path) -> None:
    trace = served(np.linspace(0, 1, 50), np.full(50, 1.0))
    plain = config(trace, tmp_path, [profile(tmp_path, 0.05, 0.1)])
    for what in ("quiet", "handling"):
        with pytest.raises(ConfigError, match="1 of 50 requests began when no other was in flight, expected 3"):
            replay_with(plain, trace, what, tmp_path)  # type: ignore[arg-type]


def test_quiet_fit_refuses_a_system_of_several_models(tmp_path: Path) -> None:
    trace = served(ARRIVALS, np.full(300, 1.0))
    words = ["allocation=uniform-small", "frontend=direct-small", profile(tmp_path, 0.05, 0.1)]
    small = (tmp_path / "own" / "p.yaml").read_text().replace("sdxl-tiny", "sana-tiny")
    (tmp_path / "own" / "small.yaml").write_text(small)
    plain = config(trace, tmp_path, words)
    with pytest.raises(ConfigError, match="sana-tiny answered too, and the result does not say which"):
        replay_with(plain, trace, "quiet", tmp_path)


def test_logged_seconds_replay_as_a_fifo_queue(tmp_path: Path) -> None:
    """AIPerf's arrivals with the seconds that the server logged: Lindley's recursion, to 1e-9 s."""
    trace, logged_s = with_logged_seconds()
    plain = config(trace, tmp_path, ["backend.service=trace", profile(tmp_path, 0.05, 0.1)])
    rows = simulate(plain).requests.to_pandas()
    latency_s = (rows.finish_s - rows.arrival_s).to_numpy()
    assert latency_s == pytest.approx(fifo(trace.arrival_s, logged_s), abs=1e-9)


def test_what_the_client_sees_beyond_the_server_is_named_as_handling(tmp_path: Path) -> None:
    """The queue alone gives 0.727 s and the client measured 0.768: 0.041 s of HTTP, or a service 2 % longer."""
    trace, _ = with_logged_seconds()
    plain = config(trace, tmp_path, ["backend.service=trace", profile(tmp_path, 0.05, 0.1)])
    _, replay, _ = replay_with(plain, trace, "none", tmp_path)
    missing_s = float(trace.column("latency_s").mean()) - replay.statistics()["mean"]
    assert missing_s == pytest.approx(0.041, abs=0.002)
    scaled = find_scale(plain, replay, float(trace.column("latency_s").mean()))
    assert scaled is not None
    assert 1.01 < scaled[0] < 1.03
    assert abs(relative(scaled[1].statistics(), {"p95": replay.target()[1].max()})["p95"]) < 0.15
    _, handled, fitted = replay_with(plain, trace, "handling", tmp_path)
    assert 0.0 < fitted["handling_s"] < missing_s  # the rest holds the server between two requests
    assert handled.statistics()["mean"] == pytest.approx(replay.statistics()["mean"] + fitted["handling_s"])


def test_trace_without_logged_seconds_is_refused_by_request(tmp_path: Path) -> None:
    trace = served(ARRIVALS, np.full(300, 1.0))
    plain = config(trace, tmp_path, ["backend.service=trace", profile(tmp_path, 0.05, 0.1)])
    with pytest.raises(TraceError, match=r"request r0: has no gen_s, which backend.service=trace needs"):
        simulate(plain)


def with_logged_seconds() -> tuple[Trace, Floats]:
    """Return the requests of AIPerf with the seconds that the server logged as gen_s, and those seconds, (80,)."""
    trace = AIPerf(path=ORACLES / "loopback" / "profile_export.jsonl").load(np.random.default_rng(0))
    log = [json.loads(line) for line in (ORACLES / "loopback" / "server_log.jsonl").read_text().splitlines()]
    log.sort(key=lambda entry: entry["arrived_s"])
    seconds = np.array([entry["end_s"] - entry["start_s"] for entry in log])
    columns = {name: trace.table.column(name) for name in trace.table.column_names}
    return make(columns | {"gen_s": seconds}, name="logged", source="s"), seconds
