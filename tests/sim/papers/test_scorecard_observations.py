"""NIRVANA's observations on its traffic, in traces that show it, the opposite, and nothing."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs
from mezzotint.sim.papers.scorecard.measures import observations
from mezzotint.sim.papers.scorecard.measures.observations import Observation, observe
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import make, write

DAY_S = 86_400.0
WORDS = tuple(f"{one}{two}{one}" for one, two in itertools.product("bcdfghjklmnp", "aeiou"))

Served = Callable[..., Runs]


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()  # where the runs were made


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """A run of nirvana on a trace of these columns, by default without a hit."""
    made = itertools.count()

    def put(
        times_s: Sequence[float],
        prompts: Sequence[str],
        users: Sequence[str | None] | None = None,
        hits: Sequence[float | None] | None = None,
        *,
        timed: bool = True,
    ) -> Runs:
        folder = tmp_path / f"run{next(made)}"
        folder.mkdir()
        rows = range(len(prompts))
        columns: dict[str, Any] = {"request_id": [f"r{n}" for n in rows], "arrival_s": times_s, "prompt": prompts}
        columns |= {} if users is None else {"user_id": users}
        notes = {} if timed else {"arrival_s": ORDER_ONLY}
        write(make(columns, name="made", source="made up", notes=notes), folder / "t.parquet")
        similar = hits or [None] * len(prompts)
        source = [None if each is None else "r0" for each in similar]
        table = pa.table({"similarity": pa.array(similar, pa.float64()), "source_id": pa.array(source, pa.string())})
        pq.write_table(table, folder / "requests.parquet")
        config = {
            "trace": {"_target_": "mezzotint.traces.sources.file.File", "path": str(folder / "t.parquet")},
            "preload": 0,
            "seed": 1,
        }
        point = Point("nirvana-table2", {"system": "nirvana"}, ())
        return Runs(((point, Finished(point, config, folder, {"system": "nirvana"})),))

    return put


def seen(runs: Runs, tmp_path: Path) -> tuple[Observation, Observation, Observation]:
    """Return whether sessions are alike, popular prompts stay popular, and short prompts find more similar ones."""
    alike, survive, short = observe(runs, tmp_path / "work")
    return alike, survive, short


def unique_words(*what: int) -> str:
    """Words that no other user has."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:12]


def sessions(near: bool) -> tuple[list[float], list[str], list[str]]:
    """Twenty users with six sessions of six prompts, half of each prompt the user's own words. The other half is one
    for the whole session, or, where ``near`` is false, differs by prompt and is the same in all sessions."""
    rows = []
    for user, session, nth in itertools.product(range(20), range(6), range(6)):
        half = unique_words(user, session) if near else unique_words(user, nth)
        rows.append((3 * 3600.0 * session + 60 * nth + user, f"{unique_words(user)} {half}", f"u{user}"))
    times, prompts, users = zip(*sorted(rows), strict=True)
    return list(times), list(prompts), list(users)


def test_sessions_are_alike_if_their_prompts_share_words(served: Served, tmp_path: Path) -> None:
    found, survive, short = seen(served(*sessions(near=True)), tmp_path)
    within, own, other = found.numbers.values()
    assert found.as_seen is True
    assert within == pytest.approx(1.0, abs=1e-3), "the same words"
    assert within > own > other
    assert survive.reason == "the trace has not two whole days with enough prompts, or no clusters"
    assert short.reason == "one of the two kinds of prompts has no hit"
    found, *_ = seen(served(*sessions(near=False)), tmp_path)
    assert found.as_seen is False
    assert found.numbers["mean cosine, same session:"] < found.numbers["mean cosine, same user, another session:"]


def test_observation_without_data_is_not_measured(served: Served, tmp_path: Path) -> None:
    times, prompts, users = sessions(near=True)
    alike, *_ = seen(served(times, prompts), tmp_path)
    assert (alike.as_seen, alike.reason) == (None, "the trace names no users")
    alike, survive, _ = seen(served(times, prompts, users, timed=False), tmp_path)
    assert (alike.as_seen, alike.reason) == (None, "the trace has no times, or no user with two sessions")
    assert (survive.as_seen, survive.reason) == (None, "the trace has no times")
    for each in observe(Runs(()), tmp_path / "work"):
        assert (each.as_seen, each.reason) == (None, "not simulated yet")


@pytest.mark.parametrize(("stays", "left"), [(True, 1.0), (False, 0.0)])
def test_clusters_that_recur_every_day_survive(served: Served, tmp_path: Path, stays: bool, left: float) -> None:
    """Three days with one popular prompt, which the second and third day repeat or replace."""
    rows = []
    for day in range(3):
        popular = "a castle on a hill at night" if stays or day == 0 else "many green apples"
        rows += [(DAY_S * day + n, popular) for n in range(80)]
        rows += [(DAY_S * day + 100 + n, f"{WORDS[n]} {WORDS[(7 * n + day) % 60]} {n}") for n in range(40)]
    rows.append((3 * DAY_S + 1, "the end"))
    times, prompts = (list(column) for column in zip(*rows, strict=True))
    _, found, _ = seen(served(times, prompts), tmp_path)
    assert found.as_seen is stays
    assert found.numbers == {f"left on day {day} of the first day's top:": left for day in (2, 3)}


def test_short_prompts_are_compared_by_hit_similarity(served: Served, tmp_path: Path) -> None:
    """Fourteen words are few and fifteen are many; a request without a hit is on neither side."""
    prompts = [" ".join(WORDS[:14]), f"  {' '.join(WORDS[:15])} ", "one", "two", " ".join(WORDS[:20])]
    times = [float(n) for n in range(5)]
    for hits, as_seen in (([0.9, 0.6, 0.8, None, 0.7], True), ([0.5, 0.8, 0.6, None, 0.7], False)):
        *_, found = seen(served(times, prompts, hits=hits), tmp_path)
        short, long = found.numbers.values()
        assert (short, long) == pytest.approx(((hits[0] + hits[2]) / 2, (hits[1] + hits[4]) / 2))  # type: ignore[operator]
        assert found.as_seen is as_seen


def test_observations_of_a_trace_are_cached(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And believed as long as nobody changes them."""
    runs = served(*sessions(near=True))
    first = observe(runs, tmp_path / "work")
    (kept,) = (tmp_path / "work").glob("observed-*.json")
    whole = kept.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(observations, "survival", None)
        patch.setattr(observations, "prompt_similarity", None)
        assert observe(runs, tmp_path / "work") == first
    kept.write_bytes(whole.replace(b"the trace has not two", b"FORGED"))
    assert observe(runs, tmp_path / "work") == first
    assert kept.read_bytes() == whole
