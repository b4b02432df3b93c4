"""The log of the Stable Diffusion beta: channels are merged, and none is reordered."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.table.trace import Trace

HEAD = "est_unix_s,channel,idx,user,prompt,width,height,steps,cfg,sampler,n_images,seed,gen_seconds\n"


def load(path: Path, **options: str) -> Trace:
    return LOGS["sd-beta"](path=str(path), **options).load(np.random.default_rng(0))


def log(folder: Path, rows: list[tuple[int, str, int]]) -> Path:
    path = folder / "requests.csv"
    lines = [f"{at},{channel},{idx},u,p,512,512,,7,,1,1,5.0\n" for at, channel, idx in rows]
    path.write_text(HEAD + "".join(lines))
    return path


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(picks=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), min_size=1, max_size=30))
def test_sd_beta_merge_never_reorders_a_channel(picks: list[tuple[str, int]], tmp_path: Path) -> None:
    """For any estimates and any order of the channels."""
    place: Counter[str] = Counter()
    rows = []
    for channel, at in picks:
        place[channel] += 1
        rows.append((at, channel, place[channel]))
    trace = load(log(tmp_path, rows))
    seen = defaultdict(list)
    for name in trace.table.column("request_id").to_pylist():
        channel, idx = name.split("/")
        seen[channel].append(int(idx))
    assert seen == {channel: list(range(1, count + 1)) for channel, count in place.items()}
    assert (np.diff(trace.arrival_s) >= 0).all()
    # where no estimate had to be raised, all are as in the log
    if not trace.notes["raised_estimates"]:
        assert trace.arrival_s.tolist() == [float(at - min(r[0] for r in rows)) for at in sorted(r[0] for r in rows)]


def test_sd_beta_message_becomes_a_request(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(HEAD + '0,c,1,,"a, fox",512,768,,,,9,,42.84\n60,c,2,u,,1024,512,150,7,ddim,1,5,\n')
    one, two = load(path).table.to_pylist()
    assert (one["request_id"], one["user_id"], one["prompt"], one["seed"]) == ("c/1", None, "a, fox", None)
    assert (one["width"], one["height"], one["steps"], one["images"], one["gen_s"]) == (512, 768, 50, 9, 42.84)
    assert (two["steps"], two["images"], two["gen_s"], two["prompt"]) == (150, 1, None, None)
    notes = load(path).notes
    assert "half an hour in the median" in notes["arrival_s"]
    assert notes["steps"] == "50 in 1 requests that name none"
    assert notes["columns_left_out"] == ["cfg", "sampler"]
    assert notes["first_arrival"] == "1970-01-01T00:00:00Z"


def test_first_arrival_is_that_of_the_kept_requests(tmp_path: Path) -> None:
    path = log(tmp_path, [(1660000000, "a", 1), (1660003600, "a", 2), (1660003605, "b", 1)])
    assert load(path, since="2022-08-09T00:00").notes["first_arrival"] == "2022-08-09T00:06:40Z"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "yesterday"}, "since='yesterday', expected a day or a time such as"),
        ({"since": "2022-08-12", "until": "2022-08-12"}, "leave no time between them"),
        ({"channel": "z"}, r"no requests are left of 1 \(channels a\)"),
    ],
)
def test_invalid_sd_beta_option_is_refused(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message):
        load(log(tmp_path, [(5, "a", 1)]), **options)


def test_sd_beta_log_is_imported_whole(data: Path) -> None:
    path = data / "sd_beta_log" / "requests.csv.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    trace = load(path, since="2022-08-13")
    assert trace.notes["rows"] == 561_190
    assert len(trace) + sum(trace.notes["skipped"].values()) == 561_190
    assert trace.notes["channels"] == 30
    assert trace.notes["raised_estimates"] == 0
    assert trace.table.column("user_id").null_count == trace.notes["users_unknown"] == 0
    assert trace.column("gen_s").min() > 0
    assert np.median(trace.column("images")) == 9
