"""A trace's description: numbers against brute force and known laws, figures with units, tables side by side."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.traces import cli
from mezzotint.traces.describe import describe_trace, render
from mezzotint.traces.describe.arrivals import arrival_statistics
from mezzotint.traces.describe.compare import compare
from mezzotint.traces.describe.figures import SUBJECTS, subjects, write
from mezzotint.traces.describe.prompts import nearest
from mezzotint.traces.describe.prompts.prompt_similarity import prompt_similarity
from mezzotint.traces.describe.prompts.repeats import repeats
from mezzotint.traces.describe.statistics import TraceStatistics
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace, make
from mezzotint.traces.table.trace import write as write_trace
from tests.traces.test_cli import mezzotint

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> TraceStatistics:
    """Return the columns of a synthetic trace of three days that has all of them."""
    source = Synthetic(
        requests=800, rate_rpm=0.2, day_ratio=1.0, service="B", base_models=[0.6, 0.4], images=[[1, 0.6], [4, 0.4]]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEZZOTINT_CACHE", str(tmp_path_factory.mktemp("cache")))
        return describe_trace(source.load(np.random.default_rng(3)), progress=False)


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pixels draw fast."""
    monkeypatch.setattr("mezzotint.figures.save.DPI", 20)


def of_prompts(prompts: list[str], arrival_s: Any = None, users: list[str] | None = None, order: bool = False) -> Trace:
    count = len(prompts)
    columns = {
        "request_id": [str(number) for number in range(count)],
        "arrival_s": np.arange(count, dtype=float) if arrival_s is None else arrival_s,
        "user_id": users or ["u"] * count,
        "prompt": prompts,
    }
    return make(columns, name="n", source="s", notes={"arrival_s": ORDER_ONLY} if order else {})


def test_poisson_arrivals_have_no_burstiness_and_no_day_cycle() -> None:
    found = arrival_statistics(np.cumsum(np.random.default_rng(0).exponential(6.0, 60_000)))
    assert found.gap_cv == pytest.approx(1.0, abs=0.02)
    assert found.dispersion[300.0] == pytest.approx(1.0, abs=0.1)
    assert found.by_hour is not None
    assert found.by_hour * 24 == pytest.approx(np.ones(24), abs=0.12)


PEOPLE = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 3), st.floats(0, 100)), min_size=1, max_size=40)


@settings(max_examples=60)
@given(rows=PEOPLE)
def test_repeats_match_a_walk_through_the_trace(rows: list[tuple[int, int, float]]) -> None:
    prompt, user = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    arrival_s = np.sort([row[2] for row in rows])
    ages, same, last, known = [], 0, {}, set()
    for at, (what, sender) in enumerate(zip(prompt.tolist(), user.tolist(), strict=True)):
        if what < 0:
            continue
        if what in last:
            ages.append(arrival_s[at] - last[what])
            same += sender >= 0 and (what, sender) in known
        last[what] = arrival_s[at]
        known.add((what, sender))
    found = repeats(prompt, user, arrival_s)
    if not last:
        assert found is None
        return
    assert found is not None
    assert sorted(found.age_s) == pytest.approx(sorted(ages))
    assert found.times.sum() == found.requests == (prompt >= 0).sum()
    if ages and (user[prompt >= 0] >= 0).any():
        assert found.same_user_share == pytest.approx(same / len(ages))


def test_nearest_prompt_is_the_latest_of_the_most_similar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "CACHE", 15)
    rng = np.random.default_rng(0)
    words = ["fox", "owl", "castle", "river", "moon"]
    prompts = [" ".join(rng.choice(words, 3)) for _ in range(120)]
    arrival_s = np.sort(rng.random(120)) * 1e4
    trace = of_prompts(prompts, arrival_s, users=[str(one) for one in rng.integers(0, 4, 120)])
    found = describe_trace(trace, progress=False).nearest
    assert found is not None
    product = np.round(HashedNgrams().encode(prompts, False) @ HashedNgrams().encode(prompts, False).T, 6)
    users = trace.table.column("user_id").to_pylist()
    for at, query in enumerate(found.query.tolist()):
        best = max(range(query), key=lambda row: (product[query, row], row))
        near = max(range(max(0, query - 15), query), key=lambda row: (product[query, row], row))
        assert found.row[at] == best
        assert found.similarity[at] == pytest.approx(product[query, best], abs=1e-5)
        assert found.same_user[at] == (users[query] == users[best])
        assert found.age_s is not None
        assert found.cached_age_s is not None
        assert found.age_s[at] == arrival_s[query] - arrival_s[best]
        assert found.cached_similarity[at] == pytest.approx(product[query, near], abs=1e-5)
        assert found.cached_age_s[at] == arrival_s[query] - arrival_s[near]


def test_long_trace_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("EXACT", 300), ("SAMPLE", 250), ("STRETCH", 400)):
        monkeypatch.setattr(nearest, name, value)
    trace = Synthetic(requests=1000, rate_rpm=5.0).load(np.random.default_rng(0))
    found = describe_trace(trace, progress=False).to_dict()["nearest"]
    assert (found["sampled"], found["looked_up"], found["among_rows_from"]) == (True, 250, 300)
    monkeypatch.setattr(nearest, "EXACT", 2000)
    whole = describe_trace(trace, progress=False).to_dict()["nearest"]
    assert not whole["sampled"]
    assert found["quantiles"]["p50"] == pytest.approx(whole["quantiles"]["p50"], abs=0.1)


def test_similarity_is_grouped_by_session_and_user() -> None:
    """Each user sends one prompt an hour, and another in the next; no two users share one."""
    user, hour = np.repeat(np.arange(10), 20), np.tile(np.repeat([0, 1], 10), 10)
    vectors = np.eye(20, dtype=np.float32)[2 * user + hour]
    order = np.argsort(hour, kind="stable")
    found = prompt_similarity(vectors[order], user[order], hour[order] * 3600.0 + 1.0)
    assert found is not None
    means = [found.pairs[group].mean() for group in ("same session", "same user, another session", "another user")]
    assert means == [1.0, 0.0, 0.0]
    assert (found.intra == 1.0).all()
    assert (found.inter == 0.0).all()
    assert len(found.intra) == 10


def test_clusters_survive_if_prompts_recur() -> None:
    rng = np.random.default_rng(0)
    words = [f"{letter * 4}{other * 4}" for letter in "abcdef" for other in "stuvwxyz"]

    def over_days(again: bool) -> dict[str, list[float]]:
        """One word is sent three times as often as the others, each day the same one or another."""
        prompts, arrival_s = [], []
        for number in range(3):
            here = words[:8] if again else words[8 * number : 8 * number + 8]
            prompts += rng.permutation(np.repeat(here, [36, *[12] * 7])).tolist()
            arrival_s += (number * DAY_S + np.sort(rng.random(120)) * DAY_S).tolist()
        described = describe_trace(of_prompts([*prompts, "end"], [*arrival_s, 3.5 * DAY_S]), progress=False).to_dict()[
            "survival"
        ]
        assert described["days"] == [2, 3]
        left: dict[str, list[float]] = described["left"]
        return left

    assert over_days(True)["eps 0.01, top 1%"] == [1.0, 1.0]
    assert over_days(False)["eps 0.01, top 1%"] == [0.0, 0.0]


def test_untimed_trace_has_no_rate_sessions_or_ages() -> None:
    prompts = [f"a fox number {number % 30}" for number in range(60)]
    described = describe_trace(of_prompts(prompts, order=True), progress=False).to_dict()
    for name in ("span_s", "rate_rpm", "arrivals", "sessions", "survival"):
        assert described[name] is None, name
    assert described["nearest"]["age_quantiles_s"] is None
    assert described["nearest"]["lag_quantiles"] is not None
    assert described["likeness"]["same session"] is None
    assert "no times" in render(described)


def test_comparison_handles_missing_statistics() -> None:
    real = {"users": {"count": 10}, "sessions": None, "rate_rpm": 2.0, "nearest": {"share_above": {"0.65": 0.5}}}
    made = {
        "users": None,
        "sessions": {"requests_mean": 4.0},
        "rate_rpm": 2.1,
        "nearest": {"share_above": {"0.65": 0.1}},
    }
    rows = {row.statistic: row for row in compare(real, [made])}
    assert rows["requests per minute"].within
    assert not rows["nearest above 0.65"].within
    assert rows["users"].cells() == ("users", "10", "–", "", "")
    assert rows["requests per session, mean"].cells() == ("requests per session, mean", "–", "4", "", "")
    assert compare({}, [{}]) == []


def test_several_traces_are_compared_by_mean_and_interval() -> None:
    def described(share: float, half: float) -> Any:
        return {
            "rate_rpm": share * 10,
            "coverage": {"others": {"30": {"0.6": share}}, "others_half": {"30": {"0.6": half}}},
        }

    rate, found = compare(described(0.5, 0.1), [described(0.3, 0.1), described(0.5, 0.1)])
    assert (rate.real, rate.synthetic) == (5.0, 4.0)
    assert (found.real_half, found.synthetic) == (0.1, pytest.approx(0.4))
    assert found.synthetic_half == pytest.approx(1.96 * math.sqrt(0.02 / 2))


def test_every_subject_is_drawn_and_described(everything: TraceStatistics, tmp_path: Path) -> None:
    described = everything.to_dict()
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert all(name in render(described) for name in ("day cycle", "sessions", "hits of a cache", "loras"))
    other = describe_trace(of_prompts([f"a fox {number}" for number in range(40)]), progress=False)
    written = write([everything, other], tmp_path / "figures")
    assert [path.stem for path in written] == ["overview", *(subject.name for subject in SUBJECTS)]
    assert sorted((tmp_path / "figures").iterdir()) == sorted(written)


@pytest.mark.parametrize("rows", [1, 2, 25])
def test_small_trace_has_few_figures(rows: int, tmp_path: Path) -> None:
    columns = {"request_id": [str(number) for number in range(rows)], "arrival_s": np.arange(rows) * 7.0}
    apart = describe_trace(make(columns, name="n", source="s"), progress=False)
    assert len(write([apart], tmp_path)) == (0 if rows == 1 else 2)
    same = describe_trace(make({**columns, "arrival_s": np.zeros(rows)}, name="n", source="s"), progress=False)
    assert write([same], tmp_path) == []


def test_compare_and_describe_write_what_they_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subjects, "SUBJECTS", SUBJECTS[:2])
    real, made, page, figures = (tmp_path / name for name in ("real", "made", "t.md", "f"))
    write_trace(of_prompts([f"a fox {number}" for number in range(40)]), real)
    write_trace(Synthetic(requests=120, rate_rpm=0.2).load(np.random.default_rng(3)), made)
    assert mezzotint("trace", "compare", real, made, made, "--out", page, "--figures", figures) == 0
    assert (figures / "overview.png").is_file()
    assert capsys.readouterr().err == f"{figures}: 3 figures\n"  # and no progress bar off a terminal
    assert mezzotint("trace", "compare", real, made, made) == 0
    assert capsys.readouterr().out == page.read_text()
    monkeypatch.setattr(cli, "ENCODERS", {**cli.ENCODERS, "minilm": lambda: HashedNgrams(dim=64)})
    assert mezzotint("trace", "describe", made, "--json", "--encoder", "minilm") == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["requests"], described["nearest"]["encoder"]) == (120, "ngram-64-v1")
