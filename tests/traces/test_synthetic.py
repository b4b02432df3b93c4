"""The built-in trace: the same every time, lawful whatever the settings, and shaped like what it is fitted to."""

from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.describe.people import People, people
from traces.describe.popularity import popularity
from traces.describe.rhythm import rhythm
from traces.encoders.ngram import HashedNgrams
from traces.error import TraceError
from traces.sources.synthetic import Synthetic
from traces.synthetic.themes import Themes
from traces.table.sessions import SESSION_GAP_S, sessions
from traces.table.trace import Trace, validate


def met(trace: Trace) -> People:
    """Its users and sessions, without the cost of comparing prompts."""
    nobody = np.full(len(trace), -1)
    found = people(users(trace), trace.arrival_s, nobody, [])
    assert found is not None
    return found


def repeats(trace: Trace) -> float:
    return 1 - pc.count_distinct(trace.prompts()).as_py() / len(trace)


FLAT = {"day_ratio": 1.0, "burst_cv": 0.0}


def load(seed: int = 0, **given: Any) -> Trace:
    return Synthetic(**given).load(np.random.default_rng(seed))


def users(trace: Trace) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.unique(trace.table.column("user_id").to_numpy(), return_inverse=True)[1].astype(np.int64)


def test_the_same_seed_gives_the_same_trace() -> None:
    everything = {"requests": 500, "service": "A", "base_models": [0.6, 0.4], "images": [[1, 0.6], [4, 0.4]]}
    one, same, other = (load(seed, **everything) for seed in (1, 1, 2))
    assert one.digest == same.digest != other.digest
    assert one.notes["synthetic"] is True


def test_a_part_that_is_switched_on_leaves_the_others_as_they_were() -> None:
    plain, full = load(requests=300), load(requests=300, service="B", base_models=[0.5, 0.5])
    for column in ("arrival_s", "user_id", "prompt", "width", "steps", "seed"):
        assert plain.table.column(column).equals(full.table.column(column)), column
    assert plain.table.column("loras").null_count == 300
    assert full.table.column("loras").null_count == full.table.column("base_model").null_count == 0


@pytest.mark.parametrize("requests", [1, 2, 3, 17])
def test_short_traces(requests: int) -> None:
    assert len(load(requests=requests, users=1)) == requests


SHARE = st.floats(0, 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    requests=st.integers(1, 400),
    rate_rpm=st.floats(0.01, 1000),
    users=st.none() | st.integers(1, 50),
    parts=st.fixed_dictionaries(
        {},
        optional={
            "day_ratio": st.floats(1, 100),
            "burst_cv": st.floats(0, 3),
            "session_mean": st.floats(1, 50),
            "session_sigma": st.floats(0, 2),
            "session_contrast": st.floats(0, 0.99),
            "repeat_share": st.floats(0, 0.4),
            "edit_share": st.floats(0, 0.6),
            "return_share": SHARE,
            "resume_share": SHARE,
            "borrow_share": SHARE,
            "borrow_median_s": st.floats(1, 1e6),
            "resume_s": st.floats(1, 1e6),
            "style_share": SHARE,
            "styles": st.integers(1, 500),
            "style_skew": st.floats(0, 3),
            "style_follow": SHARE,
            "style_age_s": st.floats(1, 1e6),
            "style_fill": SHARE,
            "rare_share": SHARE,
            "copy_share": SHARE,
            "focus_share": SHARE,
            "name_share": SHARE,
            "edit_median": st.floats(0.01, 5),
            "theme_sigma": st.floats(0, 3),
            "service": st.sampled_from([None, "A", "B"]),
        },
    ),
)
def test_laws_of_every_trace(
    seed: int, requests: int, rate_rpm: float, users: int | None, parts: dict[str, Any]
) -> None:
    sizes = [[512, 512, 2], [768, 512, 1]]
    source = Synthetic(requests=requests, rate_rpm=rate_rpm, users=users, sizes=sizes, steps=[[28, 1]], **parts)
    trace = source.load(np.random.default_rng(seed))
    validate(trace.table, "t")
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


def test_sessions_are_as_long_as_they_are_asked_to_be() -> None:
    for mean in (1.0, 4.6, 12.0):
        trace = load(requests=20_000, session_mean=mean, session_sigma=1.0, **FLAT)
        assert met(trace).length.mean() == pytest.approx(mean, rel=0.1)


def test_twice_the_rate_is_twice_the_users_and_none_of_them_busier() -> None:
    def busy(rate_rpm: float, span_s: float = 6 * 3600.0) -> tuple[int, float, float]:
        trace = load(requests=int(rate_rpm * span_s / 60), rate_rpm=rate_rpm, **FLAT)
        found = met(trace)
        return len(found.each), float(found.each.mean()), float(found.length.mean())

    slow, fast = busy(5.0), busy(50.0)
    assert fast[0] == pytest.approx(10 * slow[0], rel=0.1)
    assert fast[1] == pytest.approx(slow[1], rel=0.1)
    assert fast[2] == pytest.approx(slow[2], rel=0.1)


def test_arrivals_without_day_and_bursts_keep_their_rate() -> None:
    trace = load(requests=30_000, rate_rpm=30.0, session_mean=1.0, session_sigma=0.0, **FLAT)
    gaps = np.diff(trace.arrival_s)
    assert gaps.mean() == pytest.approx(2.0, rel=0.03)
    assert gaps.std() == pytest.approx(2.0, rel=0.03), "sessions of one request are a Poisson process"


def test_the_day_has_the_ratio_and_the_hour_that_it_is_given() -> None:
    trace = load(requests=60_000, rate_rpm=6.0, day_ratio=9.0, peak_hour=15.0, burst_cv=0.0)
    whole = trace.arrival_s[trace.arrival_s < trace.span_s // 86400 * 86400]
    by_hour = np.bincount((whole % 86400 // 3600).astype(int), minlength=24)
    peak = np.angle((by_hour * np.exp(2j * np.pi * (np.arange(24) + 0.5) / 24)).sum()) * 24 / 2 / np.pi
    assert peak % 24 == pytest.approx(15.2, abs=0.6)  # sessions go on for a while after they begin
    # quarters of a day around the peak and opposite to it: less than the ratio of the moments
    assert 5.0 < by_hour[[13, 14, 15, 16]].sum() / by_hour[[1, 2, 3, 4]].sum() < 9.0


def test_bursts_spread_the_counts() -> None:
    calm, wild = (
        rhythm(load(requests=20_000, day_ratio=1.0, burst_cv=cv).arrival_s).dispersion[3600.0] for cv in (0.0, 1.0)
    )
    assert wild > 5 * calm


def test_prompts_of_a_session_are_edits_and_of_strangers_are_not() -> None:
    trace = load(requests=3000, rate_rpm=2.5, **FLAT)
    vectors = HashedNgrams().encode(trace.prompts().to_pylist(), False)
    found = sessions(users(trace), trace.arrival_s)
    follows = np.flatnonzero(found.previous >= 0)
    own = (vectors[follows] * vectors[found.previous[follows]]).sum(1)
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 3000, (2, 20_000))
    strangers = (vectors[left] * vectors[right]).sum(1)[users(trace)[left] != users(trace)[right]]
    assert np.median(own) > 0.8
    assert 0.05 < strangers.mean() < 0.15
    assert (np.diff(trace.arrival_s[np.stack((found.previous[follows], follows))], axis=0) <= SESSION_GAP_S).all()


def test_repeats_and_edits_are_settings() -> None:
    apart = {"borrow_share": 0.0, "resume_share": 0.0, "style_share": 0.0}
    none = repeats(load(requests=3000, repeat_share=0.0, edit_share=0.0, **apart))
    edits = repeats(load(requests=3000, repeat_share=0.0, edit_share=0.6, **apart))
    many = repeats(load(requests=3000, repeat_share=0.5, edit_share=0.1, **apart))
    assert none < 0.03  # some new prompts are of one or two words
    assert edits < 0.04
    assert many == pytest.approx(0.5, abs=0.04)


def test_popular_prompts_are_taken_up_by_others_for_a_while() -> None:
    lent = load(
        requests=20_000, rate_rpm=20.0, borrow_share=0.8, borrow_median_s=3600.0, copy_share=1.0, edit_share=0.0
    )
    askers: dict[str, set[int]] = {}
    for prompt, user in zip(lent.prompts().to_pylist(), users(lent).tolist(), strict=True):
        askers.setdefault(prompt, set()).add(user)
    many = sorted(map(len, askers.values()))
    assert many[-1] > 50
    assert many[len(many) // 2] == 1
    alone = load(requests=20_000, rate_rpm=20.0, borrow_share=0.0, style_share=0.0)
    assert 0.05 < repeats(alone) < 0.12


def modifiers(trace: Trace) -> list[str]:
    return [prompt.partition(", ")[2] for prompt in trace.prompts().to_pylist()]


def test_a_list_in_fashion_ends_prompts_of_many_users() -> None:
    def askers(**fashion: Any) -> list[int]:
        apart = {"borrow_share": 0.0, "resume_share": 0.0, "repeat_share": 0.7, "edit_share": 0.0, "rare_share": 0.0}
        trace = load(requests=5000, style_power=1e-6, style_fill=0.5, **apart, **fashion)
        found: dict[str, set[int]] = {}
        for end, user in zip(modifiers(trace), users(trace).tolist(), strict=True):
            found.setdefault(end, set()).add(user)
        return sorted(len(each) for end, each in found.items() if end.count(",") >= 4)

    none, some, one = askers(style_share=0.0), askers(style_share=0.7), askers(style_share=0.7, styles=1)
    assert none[-1] < 5
    assert some[-1] > 50  # Zipf's law: one is everywhere
    assert sum(each > 1 for each in some) > 20  # and many are somewhere
    assert one[-1] > 1.5 * some[-1]


def test_fashions_are_followed_while_they_last() -> None:
    def lag(follow: float) -> float:
        trace = load(requests=4000, style_share=1.0, style_follow=follow, style_age_s=600.0, style_power=1e-6,
            style_fill=0.5, styles=1000, style_skew=0.0, borrow_share=0.0, resume_share=0.0, repeat_share=0.7,
            edit_share=0.0)  # fmt: skip
        last: dict[str, tuple[int, int]] = {}
        lags = []
        for row, (end, user) in enumerate(zip(modifiers(trace), users(trace).tolist(), strict=True)):
            if end.count(",") >= 4:
                if end in last and last[end][1] != user:
                    lags.append(row - last[end][0])
                last[end] = row, user
        return float(np.median(lags))

    assert lag(0.8) < lag(0.0) / 5


def test_rare_words_are_their_own() -> None:
    def words(share: float) -> int:
        prompts = load(requests=2000, rare_share=share).prompts().to_pylist()
        return len({word for prompt in prompts for word in prompt.replace(",", " ").split()})

    few, some, many = words(0.0), words(0.2), words(0.5)
    assert 2 * few < 1.5 * some < many


def test_what_is_taken_up_again_fades_with_the_time_away() -> None:
    def resumed(fades_s: float) -> float:
        trace = load(requests=20_000, users=200, rate_rpm=5.0, resume_share=1.0, resume_s=fades_s, copy_share=1.0,
            borrow_share=0.0, style_share=0.0, repeat_share=0.0, edit_share=0.0)  # fmt: skip
        return repeats(trace)

    assert resumed(1e6) > 1.7 * resumed(3600.0)


def test_themes_drift() -> None:
    """What is popular on a day says less and less about the days after it."""

    def alike(sigma: float) -> list[float]:
        arrival_s = np.arange(0, 12 * 86400.0, 3600.0)
        law = Themes(theme_sigma=sigma, theme_days=2.0)
        heights, period = law.heights(200, 0.0, arrival_s, np.random.default_rng(0))
        shares = np.diff(heights.reshape(-1, 200) - np.arange(period[-1] + 1)[:, None], axis=1, prepend=0)
        logs = np.log(shares)
        return [float(np.mean([np.corrcoef(logs[at], logs[at + lag])[0, 1] for at in range(8)])) for lag in (1, 8, 32)]

    near, later, far = alike(1.0)
    assert near > 0.8 > later > far


@pytest.mark.parametrize(
    ("service", "controlnets", "loras"),
    [("A", [0, 0.305, 0.695], [0.002, 0.088, 0.91]), ("B", [0.019, 0.251, 0.699, 0.031], [0.072, 0.736, 0.192])],
)
def test_add_ons_per_request_are_those_of_katz_table_1(
    service: str, controlnets: list[float], loras: list[float]
) -> None:
    # 4 standard errors of 30,000 independent requests
    found = popularity(load(requests=30_000, service=service, addon_change=1.0))
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
def test_add_ons_are_as_popular_as_katz_shows(service: str, name: str, top: dict[int, float]) -> None:
    use = popularity(load(requests=60_000, service=service))[name]
    assert use is not None
    for rank, share in top.items():
        assert use.share(rank) == pytest.approx(share, abs=0.04), rank


def test_sizes_steps_images_and_models_are_drawn_from_their_mix() -> None:
    trace = load(
        requests=20_000, sizes=[[1024, 1024, 3], [512, 768, 1]], steps=[[28, 1], [50, 1]], images=[[1, 0.6], [4, 0.4]],
        base_models=[0.7, 0.2, 0.1],
    )  # fmt: skip
    for column, value, share in (("width", 1024, 0.75), ("steps", 50, 0.5), ("images", 4, 0.4)):
        assert (trace.column(column) == value).mean() == pytest.approx(share, abs=0.03), column
    use = popularity(trace)["base_model"]
    assert use is not None
    assert use.share(1) == pytest.approx(0.7, abs=0.03)


def test_rows_may_come_from_configuration() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    rows = [[1024, 768, 1.0], [512, 512, 1.0]]
    assert load(requests=50, sizes=omegaconf.OmegaConf.create(rows)).digest == load(requests=50, sizes=rows).digest


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 0}, {"requests": 1.5}, {"requests": "many"}, {"users": 0}, {"rate_rpm": 0.0},
        {"rate_rpm": float("nan")}, {"session_mean": 0.5}, {"repeat_share": -0.1},
        {"repeat_share": 0.6, "edit_share": 0.6}, {"edit_median": 0.0}, {"gap_median_s": 0.0}, {"gap_median_s": 30.0},
        {"session_sigma": float("inf")}, {"session_contrast": 1.0}, {"day_ratio": 0.5}, {"sizes": []},
        {"sizes": [[512, 512]]}, {"sizes": [[512, -1, 1.0]]}, {"sizes": [[512, 0.5, 1.0]]}, {"sizes": 5},
        {"steps": [[50, 0]]}, {"steps": [["x", 1]]}, {"base_models": [0.5, -0.5]}, {"base_models": ["x"]},
        {"service": "C"}, {"service": "X", "services": {"X": {"loras": 1}}},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match=f"synthetic trace: .*{next(iter(wrong))}"):
        Synthetic(**wrong)


def test_add_ons_that_make_no_sense() -> None:
    sound = Synthetic().services["A"]
    for key, value in (
        ("controlnets", []), ("controlnets", [["a", 1]]), ("controlnets", [[["a"], 0]]), ("lora_names", 2),
        ("loras_per_request", [1]), ("loras_per_request", [-1, 2]), ("lora_skew", -1), ("lora_shift", "x"),
    ):  # fmt: skip
        with pytest.raises(TraceError, match=rf"services\.X.*{key}"):
            Synthetic(service="X", services={"X": {**sound, key: value}})
