"""The built-in trace: the same every time, and shaped like the sample that it is fitted to."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import conf
from traces.describe import SESSION_GAP_S, describe
from traces.schema import Trace, TraceError, validate
from traces.sources.synthetic import Synthetic


def load(seed: int = 0, **settings: Any) -> Trace:
    return Synthetic(**settings).load(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return describe(load(requests=20_000, rate_rpm=2.5))


def test_the_same_seed_gives_the_same_trace() -> None:
    one, same, other = (load(seed, requests=500) for seed in (1, 1, 2))
    assert one.digest == same.digest != other.digest
    validate(one.table, "t")
    assert one.notes["synthetic"] is True


@pytest.mark.parametrize("requests", [1, 2, 3, 17])
def test_short_traces(requests: int) -> None:
    assert len(load(requests=requests, users=1)) == requests


def test_arrivals_are_poisson() -> None:
    gaps = np.diff(load(requests=20_000, rate_rpm=30.0).arrival_s)
    assert gaps.mean() == pytest.approx(2.0, rel=0.03)
    assert gaps.std() == pytest.approx(2.0, rel=0.03)


def test_it_has_the_sample_s_proportions(facts: dict[str, Any]) -> None:
    assert facts["prompts"]["repeat_share"] == pytest.approx(0.083, abs=0.015)
    assert facts["prompts"]["repeat_same_user_share"] > 0.95
    assert facts["sizes"]["most"]["512x512"] == pytest.approx(0.635, abs=0.04)
    assert facts["steps"]["most"]["50"] == pytest.approx(0.67, abs=0.04)
    assert facts["steps"]["most"]["150"] == pytest.approx(0.26, abs=0.04)
    assert facts["null_columns"] == ["base_model", "controlnets", "loras"]


def test_it_has_the_sample_s_users_and_sessions() -> None:
    seen = [describe(load(seed, requests=1000, rate_rpm=2.5)) for seed in range(8)]

    def mean(group: str, fact: str) -> float:
        return float(np.mean([facts[group][fact] for facts in seen]))

    assert mean("users", "count") == pytest.approx(173, rel=0.1)
    assert mean("users", "top_ten_share") == pytest.approx(0.38, abs=0.06)
    assert mean("sessions", "requests_mean") == pytest.approx(4.6, rel=0.1)


def test_sessions_edit_their_own_prompts() -> None:
    trace = load(requests=3000, rate_rpm=2.5)
    users = trace.table.column("user_id").to_pylist()
    words = [set(prompt.split()) for prompt in trace.prompts().to_pylist()]
    last: dict[str, int] = {}
    shared = {True: [0, 0], False: [0, 0]}  # in a session or not: near-copies, pairs
    for row, user in enumerate(users):
        for other, within in ((last.get(user), True), (row - 1, False)):
            if other is None or other < 0 or (users[other] == user) != within:
                continue
            if within and trace.arrival_s[row] - trace.arrival_s[other] > SESSION_GAP_S:
                continue
            shared[within][0] += len(words[row] & words[other]) * 2 >= len(words[row])
            shared[within][1] += 1
        last[user] = row
    # most requests edit what the user did before; neighbours of different users have little in common
    assert shared[True][0] / shared[True][1] > 0.6
    assert shared[False][0] / shared[False][1] < 0.05


def test_repeats_and_edits_are_settings() -> None:
    none = describe(load(requests=3000, repeat_share=0.0, edit_share=0.0))
    many = describe(load(requests=3000, repeat_share=0.5, edit_share=0.1))
    assert none["prompts"]["repeat_share"] < 0.01
    assert many["prompts"]["repeat_share"] > 0.45


def test_sizes_and_steps_may_be_given() -> None:
    trace = load(requests=200, sizes=[[1024, 1024, 1.0]], steps=[[28, 1], [50, 1]])
    assert set(trace.column("width")) == {1024}
    assert set(trace.column("steps")) == {28, 50}


def test_rows_may_come_from_configuration() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    rows = [[1024, 768, 1.0], [512, 512, 1.0]]
    assert load(requests=50, sizes=omegaconf.OmegaConf.create(rows)).digest == load(requests=50, sizes=rows).digest


def test_it_is_made_at_20_000_requests_a_second() -> None:
    start = time.process_time()
    load(requests=50_000)
    assert 50_000 / (time.process_time() - start) > 20_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 0}, {"requests": 1.5}, {"requests": "many"}, {"users": 0}, {"rate_rpm": 0.0},
        {"rate_rpm": float("nan")}, {"session_mean": 0.5}, {"repeat_share": -0.1},
        {"repeat_share": 0.6, "edit_share": 0.6}, {"edit_slots": 0.0}, {"gap_median_s": 0.0},
        {"session_sigma": float("inf")}, {"sizes": []}, {"sizes": [[512, 512]]}, {"sizes": [[512, -1, 1.0]]},
        {"sizes": [[512, 0.5, 1.0]]}, {"sizes": 5}, {"steps": [[50, 0]]}, {"steps": [["x", 1]]},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match=f"synthetic trace: .*{next(iter(wrong))}"):
        Synthetic(**wrong)


def test_the_configuration_holds_the_defaults() -> None:
    settings = yaml.safe_load((Path(conf.__path__[0]) / "trace" / "synthetic.yaml").read_text())
    assert settings.pop("_target_") == "traces.sources.synthetic.Synthetic"
    assert Synthetic(**settings) == Synthetic()
