"""Runs of a plan are kept: made once, also after an interruption, and again if their file is damaged."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.plan import runs
from mezzotint.sim.plan.answer import Plan
from mezzotint.sim.plan.page import as_json

Ask = Callable[..., Plan]

SHORT = ["trace.requests=300", "trace.history=0"]


def test_kept_run_that_was_changed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ask: Ask
) -> None:
    """Edited, cut, in the place of another run, or in the form of an earlier version."""
    ask_again = partial(ask, overrides=SHORT, runs=tmp_path)
    whole = as_json(ask_again(), "plan")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    first, second, *_ = sorted(before)
    content = json.loads(before[first])["content"]
    edited = json.dumps({**json.loads(before[first]), "content": {**content, "latency_s": {"p50": 0.0}}}).encode()
    for other in (edited, before[first][:-9], before[second], json.dumps(content).encode(), b"5", b"{}"):
        first.write_bytes(other)
        capsys.readouterr()
        assert as_json(ask_again(), "plan") == whole
        assert f"warning: {first}: is damaged or from elsewhere; made again\n" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in before} == before
    monkeypatch.setattr(runs, "simulate", None)
    assert as_json(ask_again(), "plan") == whole


def test_interrupted_plan_goes_on_and_runs_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    ask_again = partial(ask, overrides=SHORT)
    whole = as_json(ask_again(runs=tmp_path / "whole"), "plan")
    made, simulate, stop = [], runs.simulate, [4]

    def counted(config: Any, **options: Any) -> Any:
        if stop[0] == 0:
            raise KeyboardInterrupt
        stop[0] -= 1
        made.append((json.dumps(config, sort_keys=True, default=str), len(options["trace"])))
        return simulate(config, **options)

    monkeypatch.setattr(runs, "simulate", counted)
    for rest in (2, 1000):
        with pytest.raises(KeyboardInterrupt):
            ask_again(runs=tmp_path / "parts")
        stop[0] = rest
    assert as_json(ask_again(runs=tmp_path / "parts"), "plan") == whole
    count = len(made)
    assert count == len(set(made))
    assert as_json(ask_again(runs=tmp_path / "parts"), "plan") == whole
    assert len(made) == count, "a repeated question is answered without a run"
