"""The built-in trace: repeatable, lawful for all settings, and shaped like the traces it is fitted to."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.describe.arrivals import arrival_statistics
from mezzotint.traces.describe.mix import popularity
from mezzotint.traces.describe.users import UserStatistics, user_statistics
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.synthetic.ancestry import Ancestry, Order, draw_lags, order_by
from mezzotint.traces.table.trace import Trace, make, read, write


def met(trace: Trace) -> UserStatistics:
    """Return its users and sessions, without the cost of comparing prompts."""
    unknown = np.full(len(trace), -1)
    found = user_statistics(users(trace), trace.arrival_s, unknown, [])
    assert found is not None
    return found


FLAT = {"day_ratio": 1.0, "burst_cv": 0.0}


def load(seed: int = 0, **given: Any) -> Trace:
    return Synthetic(**given).load(np.random.default_rng(seed))


def users(trace: Trace) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.unique(trace.table.column("user_id").to_numpy(), return_inverse=True)[1].astype(np.int64)


def test_trace_depends_on_the_seed_and_an_optional_part_changes_no_other_column() -> None:
    plain, same, full = load(requests=300), load(requests=300), load(requests=300, service="B", base_models=[0.5, 0.5])
    assert plain.digest == same.digest != load(1, requests=300).digest
    for column in ("arrival_s", "user_id", "prompt", "width", "steps", "seed"):
        assert plain.table.column(column).equals(full.table.column(column)), column
    assert plain.table.column("loras").null_count == 300
    assert full.table.column("loras").null_count == full.table.column("base_model").null_count == 0


def test_prompts_made_late_are_those_of_the_rows_and_of_the_file(tmp_path: Path) -> None:
    trace, rows = load(requests=60), np.array([5, 3, 59, 3])
    taken, head = trace.take(rows), trace.head(7)
    identities = {
        each.identity for each in (trace, taken, head, trace.take(rows[::-1]), load(requests=60, edit_power=9))
    }
    assert len(identities) == 5
    kept = read(write(trace, tmp_path / "kept.parquet").path or "")
    assert kept.digest == trace.digest == kept.identity != trace.identity
    assert taken.table.equals(kept.table.take(rows))
    assert head.digest == kept.head(7).digest
    assert trace.has("prompt")
    assert not trace.has("loras")


SHARE = st.floats(0, 1)
ANEW = {"stay_s": 1e-9, "subject_mass": 1e12}
"""No request continues an earlier prompt of its user."""


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    requests=st.integers(1, 300),
    rate_rpm=st.floats(0.01, 1000),
    users=st.none() | st.integers(1, 50),
    parts=st.fixed_dictionaries(
        {},
        optional={
            "history": st.integers(0, 600),
            "channels": st.integers(1, 6),
            "channel_stay": SHARE,
            "one_channel": st.booleans(),
            "day_ratio": st.floats(1, 100),
            "burst_cv": st.floats(0, 3),
            "session_mean": st.floats(1, 50),
            "session_sigma": st.floats(0, 2),
            "repeat_share": SHARE,
            "stay_s": st.floats(1e-6, 1e6),
            "subject_mass": st.floats(1e-6, 1e6),
            "near_share": SHARE,
            "new_mean": SHARE,
            "new_spread": st.floats(0.01, 100),
            "piece_mass": st.floats(0.01, 100),
            "change_power": st.floats(0.1, 20),
            "edit_power": st.floats(0.1, 20),
            "length_words": st.floats(0.1, 100),
            "comma_share": SHARE,
            "service": st.sampled_from([None, "A", "B"]),
        },
    ),
)
def test_every_setting_gives_a_valid_sorted_trace(
    seed: int, requests: int, rate_rpm: float, users: int | None, parts: dict[str, Any]
) -> None:
    sizes = [[512, 512, 2], [768, 512, 1]]
    parts = {"history": 300, **parts}
    source = Synthetic(requests=requests, rate_rpm=rate_rpm, users=users, sizes=sizes, steps=[[28, 1]], **parts)
    trace = source.load(np.random.default_rng(seed))
    make(trace.table, name="n", source="s")
    assert len(trace) == requests
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert trace.arrival_s[0] >= 0
    assert set(zip(trace.column("width").tolist(), trace.column("height").tolist(), strict=True)) <= {
        (512, 512), (768, 512),
    }  # fmt: skip
    assert set(trace.column("steps").tolist()) == {28}
    assert all(prompt and prompt == prompt.strip() for prompt in trace.prompts().to_pylist())
    if users is not None:
        assert pc.count_distinct(trace.table.column("user_id")).as_py() <= users
    for names in ("controlnets", "loras"):
        for used in trace.table.column(names).to_pylist():
            assert used is None or len(set(used)) == len(used)


def test_mean_session_length_is_the_requested_one() -> None:
    for mean in (1.0, 4.6, 12.0):
        trace = load(requests=20_000, rate_rpm=10.0, users=20_000, session_mean=mean, session_sigma=1.0, **FLAT)
        assert met(trace).length.mean() == pytest.approx(mean, rel=0.1)


def test_higher_rate_means_more_users_and_not_busier_ones() -> None:
    def busy(rate_rpm: float, span_s: float = 4 * 3600.0) -> tuple[int, float, float]:
        trace = load(requests=int(rate_rpm * span_s / 60), rate_rpm=rate_rpm, **FLAT)
        found = met(trace)
        return len(found.requests), float(found.requests.mean()), float(found.length.mean())

    slow, fast = busy(20.0), busy(100.0)
    assert fast[0] == pytest.approx(5 * slow[0], rel=0.1)
    assert fast[1] == pytest.approx(slow[1], rel=0.1)
    assert fast[2] == pytest.approx(slow[2], rel=0.1)


def test_flat_arrivals_of_single_requests_are_poisson() -> None:
    gaps = np.diff(load(requests=30_000, rate_rpm=30.0, session_mean=1.0, session_sigma=0.0, **FLAT).arrival_s)
    assert (gaps.mean(), gaps.std()) == (pytest.approx(2.0, rel=0.03), pytest.approx(2.0, rel=0.03))


def test_day_cycle_has_the_given_ratio_and_peak_hour() -> None:
    trace = load(
        requests=60_000, rate_rpm=6.0, day_ratio=9.0, peak_hour=15.0, users=20_000, session_mean=3.0, session_sigma=1.0
    )
    whole = trace.arrival_s[trace.arrival_s < trace.span_s // 86400 * 86400]
    by_hour = np.bincount((whole % 86400 // 3600).astype(int), minlength=24)
    peak = np.angle((by_hour * np.exp(2j * np.pi * (np.arange(24) + 0.5) / 24)).sum()) * 24 / 2 / np.pi
    assert peak % 24 == pytest.approx(15.2, abs=0.6)  # sessions go on for a while after they begin
    # quarters of a day around the peak and opposite to it: less than the ratio of the moments
    assert 5.0 < by_hour[[13, 14, 15, 16]].sum() / by_hour[[1, 2, 3, 4]].sum() < 9.0


def test_bursts_raise_the_dispersion() -> None:
    calm, wild = (
        arrival_statistics(
            load(requests=20_000, rate_rpm=10.0, session_mean=4.0, session_sigma=1.0, burst_cv=cv).arrival_s
        ).dispersion[3600.0]
        for cv in (0.0, 1.0)
    )
    assert wild > 5 * calm


def words_of(trace: Trace) -> list[list[str]]:
    return [prompt.replace(",", "").split() for prompt in trace.prompts().to_pylist()]


def test_edit_changes_one_stretch_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request continues the prompt before: the difference is one stretch, often a single word."""

    def parents(
        law: Ancestry, own: Order, time_s: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = np.arange(len(own.rank))
        return np.where(own.before > 0, own.earlier(rows, np.minimum(own.before, 1)), -1), np.zeros(len(rows), np.bool_)

    monkeypatch.setattr(Ancestry, "parents", parents)
    trace = load(requests=3000, users=1, edit_power=8.0)
    rows = words_of(trace)
    changed = []
    for before, after in pairwise(rows):
        shorter = min(len(before), len(after))
        head = next((at for at in range(shorter) if before[at] != after[at]), shorter)
        tail = next((at for at in range(shorter - head) if before[-1 - at] != after[-1 - at]), shorter - head)
        changed.append(len(after) - head - tail)
    assert np.quantile(changed, 0.6) <= 1
    assert max(changed) > 10


def test_new_mean_controls_copying_from_other_users() -> None:
    def shared(run: int, **given: Any) -> float:
        """Return the share of stretches of so many words that another user's prompt contains too."""
        trace = load(requests=3000, **ANEW, length_words=25.0, **given)
        owners: dict[tuple[str, ...], set[int]] = {}
        found = []
        for row, user in zip(words_of(trace), users(trace).tolist(), strict=True):
            found.append([tuple(row[at : at + run]) for at in range(len(row) - run + 1)])
            for stretch in found[-1]:
                owners.setdefault(stretch, set()).add(user)
        each = [len(owners[stretch]) > 1 for row in found for stretch in row]
        return float(np.mean(each))

    assert shared(4, new_mean=1.0) < 0.01
    assert shared(4, new_mean=0.0) > 0.4
    assert shared(12, new_mean=0.0, piece_mass=0.2) > 2 * shared(12, new_mean=0.0, piece_mass=10.0, change_power=0.1)


def test_donor_popularity_is_log_uniform_in_age_rank() -> None:
    law = Ancestry(repeat_share=0.0, near_share=0.0, **ANEW)
    drawn = law.donors(np.arange(1000, 3000), 50, order_by(np.arange(3000)), np.random.default_rng(0)).ravel()
    assert drawn.min() == 0
    assert drawn.max() < 1000, "what is not written yet cannot be copied"
    for first in (1, 10, 100):
        assert (drawn < first).mean() == pytest.approx(np.log(first + 1) / np.log(1001), abs=0.01)


@pytest.mark.parametrize("exponent", [0.9, 0.0])
def test_lags_follow_a_truncated_power_law(exponent: float) -> None:
    """With an exponent of 0 they are log-uniform."""
    drawn = draw_lags(np.full(200_000, 100), exponent, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (1, 100)
    end = 101**-exponent
    for lag in (2, 5, 30):
        expected = (lag**-exponent - end) / (1 - end) if exponent else 1 - np.log(lag) / np.log(101)
        assert (drawn >= lag).mean() == pytest.approx(expected, abs=0.005)
    assert (draw_lags(np.ones(50, np.int64), exponent, np.random.default_rng(0)) == 1).all()


def parents(law: Ancestry, pause_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far back the only user goes for each prompt, 0 for another subject, and which prompts repeat."""
    rows = np.arange(len(pause_s))
    parent, repeats = law.parents(order_by(np.zeros_like(rows)), np.cumsum(pause_s), np.random.default_rng(1))
    return np.where(parent < 0, 0, rows - parent), repeats


def test_pause_raises_the_chance_of_another_subject() -> None:
    """A staying user continues the current prompt; with a huge mass, every change begins another subject."""
    pause_s = np.tile([0.0, 100.0, 300.0, 1200.0], 20_000)
    lag, _ = parents(Ancestry(repeat_share=0.0, stay_s=300.0, subject_mass=1e12, near_share=0.0), pause_s)
    for kind, pause in enumerate((0.0, 100.0, 300.0, 1200.0)):
        assert (lag[4 + kind :: 4] > 0).mean() == pytest.approx(1 / (1 + pause / 300.0), abs=0.01)
    begun = np.maximum.accumulate(np.where(lag == 0, np.arange(len(lag)), 0))
    assert (np.arange(len(lag)) - lag >= begun).all(), "nobody who stays goes back to another subject"
    assert lag.max() > 10


def test_users_with_more_prompts_return_to_earlier_subjects() -> None:
    """With no staying: another subject with a chance of mass / (mass + n), else any earlier prompt, log-uniformly."""
    law = Ancestry(repeat_share=0.3, stay_s=1e-9, subject_mass=8.0, near_share=0.0)
    own = order_by(np.repeat(np.arange(2000), 64))
    parent, repeats = law.parents(own, np.arange(own.rank.size, dtype=np.float64), np.random.default_rng(0))
    back = np.where(parent < 0, 0, np.arange(len(parent)) - parent).reshape(2000, 64)
    assert (back <= np.arange(64)).all(), "nobody goes on from another's"
    for sent in (0, 1, 8, 63):
        assert (back[:, sent] == 0).mean() == pytest.approx(8 / (8 + sent), abs=0.04)
    assert (back[:, 63][back[:, 63] > 0] >= 8).mean() == pytest.approx(1 - np.log(8) / np.log(64), abs=0.04)
    assert repeats[parent >= 0].mean() == pytest.approx(0.3, abs=0.01)
    assert not repeats[parent < 0].any()


def test_single_channel_has_its_share_of_the_service() -> None:
    service = load(requests=20_000, channels=20)
    alone = load(requests=1000, channels=20, one_channel=True)
    assert len(alone) == 1000
    assert alone.span_s == pytest.approx(service.span_s, rel=0.4)
    assert met(alone).length.mean() < met(service).length.mean(), "users change the channel"
    assert load(requests=50, channels=1).digest == load(requests=50, channels=1, channel_stay=0.1).digest


def independent(service: str) -> dict[str, Any]:
    """A service whose requests are independent of the earlier ones on their node."""
    law = Synthetic().services[service] | {"node_spread": 0.0, "run_share": 0.0, "run_least": 1.0, "loras_again": 0.0}
    return {"service": service, "services": {service: law}}


@pytest.mark.parametrize(
    ("service", "controlnets", "loras"),
    [("A", [0, 0.305, 0.695], [0.002, 0.088, 0.91]), ("B", [0.019, 0.251, 0.699, 0.031], [0.072, 0.736, 0.192])],
)
def test_addons_per_request_match_katz_table_1(service: str, controlnets: list[float], loras: list[float]) -> None:
    # 4 standard errors of 30,000 independent requests
    found = popularity(load(requests=30_000, **independent(service)))
    for name, expected in (("controlnets", controlnets), ("loras", loras)):
        use = found[name]
        assert use is not None
        error = 4 * np.sqrt(np.array(expected) * (1 - np.array(expected)) / 30_000) + 1e-3
        assert (np.abs(use.per_request - expected) < error).all(), name


@pytest.mark.parametrize(
    ("service", "name", "top"),
    [
        ("A", "controlnets", {1: 0.311, 2: 0.564, 4: 0.893, 5: 0.976}),
        ("B", "controlnets", {1: 0.222, 2: 0.357, 4: 0.608, 8: 0.945}),
        ("A", "loras", {15: 0.25, 149: 0.50, 1049: 0.75}),
        ("B", "loras", {2: 0.25, 12: 0.50, 155: 0.75}),
    ],
)
def test_addon_popularity_matches_katz(service: str, name: str, top: dict[int, float]) -> None:
    use = popularity(load(requests=60_000, service=service))[name]
    assert use is not None
    for rank, share in top.items():
        assert use.share(rank) == pytest.approx(share, abs=0.04), rank


def test_sizes_steps_images_and_models_follow_their_mix() -> None:
    trace = load(
        requests=20_000, sizes=[[1024, 1024, 3], [512, 768, 1]], steps=[[28, 1], [50, 1]], images=[[1, 0.6], [4, 0.4]],
        base_models=[0.7, 0.2, 0.1],
    )  # fmt: skip
    for column, value, share in (("width", 1024, 0.75), ("steps", 50, 0.5), ("images", 4, 0.4)):
        assert (trace.column(column) == value).mean() == pytest.approx(share, abs=0.03), column
    use = popularity(trace)["base_model"]
    assert use is not None
    assert use.share(1) == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 0}, {"requests": 1.5}, {"requests": 10.0}, {"requests": "many"}, {"users": 0}, {"rate_rpm": 0.0},
        {"rate_rpm": float("nan")}, {"session_mean": 0.5}, {"repeat_share": -0.1}, {"history": -1}, {"channels": 0},
        {"near_share": 1.1}, {"stay_s": 0.0}, {"edit_power": 0.0}, {"gap_median_s": 0.0}, {"gap_median_s": 10.0},
        {"session_sigma": float("inf")}, {"new_mean": 1.5}, {"day_ratio": 0.5}, {"sizes": []}, {"subject_mass": 0.0},
        {"sizes": [[512, 512]]}, {"sizes": [[512, -1, 1.0]]}, {"sizes": [[512, 0.5, 1.0]]}, {"sizes": 5},
        {"steps": [[50, 0]]}, {"steps": [["x", 1]]}, {"base_models": [0.5, -0.5]}, {"base_models": ["x"]},
        {"service": "C"}, {"service": "X", "services": {"X": {"loras": 1}}},
        {"services": {"X": {}}}, {"services": {"X": 1}}, {"images": [[1e300, 1]]}, {"steps": [[5, 1e308], [6, 1e308]]},
        {"subject_mass": 5e-324}, {"length_words": 1.7e308}, {"base_models": [1e308, 1e308]},
    ],
)  # fmt: skip
def test_invalid_synthetic_setting_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match=f"synthetic trace: .*{next(iter(wrong))}"):
        Synthetic(**wrong)


def test_invalid_addon_setting_is_refused() -> None:
    sound = Synthetic().services["A"]
    for key, value in (
        ("controlnets", []), ("controlnets", [["a", 1]]), ("controlnets", [[["a"], 0]]), ("lora_names", 2),
        ("loras_per_request", [1]), ("loras_per_request", [-1, 2]), ("loras_per_request", "x"),
        ("loras_per_request", True), ("loras_per_request", [True, 1]),
        ("controlnets", [[["a"], True]]), ("lora_skew", -1), ("lora_shift", "x"), ("nodes", 0), ("node_shape", 0.0),
        ("node_spread", -0.1), ("run_share", 2.0), ("run_least", 0.5), ("loras_again", 1.5), ("again_lag", 0.0),
        ("other_controlnets", 3), ("other_controlnets", [3, 0.0]), ("name", "Y"), ("lora", 1),
        ("controlnets", [[["a"], 1e308], [["b"], 1e308]]), ("node_shape", 1e-300),
    ):  # fmt: skip
        with pytest.raises(TraceError, match=rf"services\.X.*{key}"):
            Synthetic(service="X", services={"X": {**sound, key: value}})
