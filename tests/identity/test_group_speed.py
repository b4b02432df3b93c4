"""The speed of group policies is measured on whole runs, and what is counted does not depend on the limit."""

import shlex
import sys

import pytest

from tests.identity import group_speed
from tests.identity.group_run import timed
from tests.identity.group_speed import POLICIES, QUEUED

WORDS = ["experiment=tetriserve-evaluation", "slo_by_size=null", "slo=[5]", "trace.requests=20"]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_launch_was_decided_and_counting_changes_no_time(policy: group_speed.Case) -> None:
    words = [*WORDS, *shlex.split(policy.words)]
    found, again = timed(words, 60.0), timed(words, 60.0, [20])
    assert 20 <= found["launches"] <= found["decisions"] * 8
    del found["cpu_s"], again["cpu_s"], found["decision_s"], again["decision_s"]
    assert found == again


def test_run_that_takes_longer_than_its_limit_is_stopped_and_has_no_digest() -> None:
    found = timed([*WORDS, "trace.requests=5000"], 0.1)
    assert found["digest"] is None
    assert 0 < found["cpu_s"] < 1.0


def test_decisions_are_timed_by_the_requests_that_wait() -> None:
    words = ["experiment=tetriserve-evaluation", "slo_by_size=null", *QUEUED["in time"].split(), "trace.requests=60"]
    assert timed(words, 60.0, [20, 60, 100])["decision_s"].keys() == {20, 60}


def test_table_has_a_line_for_every_policy_and_number_of_gpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["group_speed", "--policies", "edf*", "--requests", "5"])
    assert group_speed.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if "edf" in line] == [[n, "edf"] for n in ("8", "8", "64", "64")]
