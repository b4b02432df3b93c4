"""A run says which columns of its trace decide its results, and which do not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.metrics.header import header
from mezzotint.traces.synthetic.prompt_writer import PromptWords, PromptWriter
from tests.sim.lab import simulated

ROWS = """arrival_s,prompt,width,height,steps,user_id,guidance,note
0,a cat,512,512,30,ann,7,x
9,a cat,768,512,30,bob,7,y
20,a cat in a hat,512,512,20,ann,7,z
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(ROWS)
    return path


def summarise(log: Path, words: Sequence[str]) -> dict[str, Any]:
    return simulated("trace=file", f"trace.path={log}", "extrapolate=warn", "arrivals=poisson", *words).summary


@pytest.mark.parametrize(
    ("words", "used"),
    [
        (["arrivals=trace"], {"arrival_s"}),
        ([], set()),
        (["arrivals=trace", "shapes=trace", "system=vanilla"], {"arrival_s", "width", "height", "steps"}),
        (["system=nirvana"], {"prompt"}),
        (["system=nirvana", "cache.key=[size,steps]"], {"prompt"}),
        (["system=nirvana", "cache.key=[size,steps,tenant]"], {"prompt", "user_id"}),
        (["system=nirvana", "hits=declared", "hits.hit_rate=0.5"], set()),
    ],
)
def test_columns_are_used_by_the_part_that_reads_them(words: Sequence[str], used: set[str], log: Path) -> None:
    columns = summarise(log, words)["trace"]["columns"]
    assert set(columns["used"]) == used
    present = {"arrival_s", "prompt", "width", "height", "steps", "user_id", "guidance"}
    assert set(columns["unused"]) == present - used, "no column is neither"
    assert columns["left_out"] == ["note"]


def test_header_names_the_sizes_of_the_log_only_where_they_are_served(log: Path) -> None:
    served = header(summarise(log, ["shapes=trace", "arrivals=trace"]), {})
    assert "2 sizes (mostly 512x512, 67 %), 20 to 30 steps" in served.work
    ignored = header(summarise(log, ["arrivals=trace"]), {})
    assert "1024x1024, 50 steps" in ignored.work
    assert "not used: users, prompts, sizes, steps, guidance and its column note" in ignored.traffic


def test_prompts_are_made_once_and_only_where_a_part_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts take twice the time of the simulation of a million requests that nobody compares."""
    made, compose = list[int](), PromptWriter.compose

    def counted(*given: Any) -> PromptWords:
        made.append(len(given[1]))
        return compose(*given)

    monkeypatch.setattr(PromptWriter, "compose", counted)
    short = ("trace.requests=60", "arrivals.rate_rpm=5")
    plain = [
        simulated(*short, *words).summary["trace"]
        for words in (
            (),
            ("client=retrying", "client.timeout_s=100"),
            ("images=requests",),
            ("system=nirvana", "hits=declared", "hits.hit_rate=0.5"),
        )
    ]
    assert made == []
    compared = simulated("system=nirvana-no-predictor", *short).summary["trace"]
    assert len(made) == 1
    assert compared["columns"]["used"] == ["prompt"]
    assert plain[0]["columns"]["unused"]["prompt"] == "no part compares prompts"
    assert plain[0]["digest"] == compared["digest"], "results of one trace name it alike"
