"""Random systems of stages do the same whenever and wherever they run, and the comparison finds those that do not."""

import os
import subprocess
import sys

import pytest

from tests.identity import random_systems
from tests.identity.random_systems import POLICIES, digest, digests
from tests.identity.systems import SCRIPT
from tests.identity.trees import REPOSITORY

SOME = 10 * len(POLICIES)


@pytest.fixture(scope="module")
def found() -> dict[int, str]:
    return dict(digests(0, SOME))


@pytest.mark.invariant(1)
def test_same_system_does_the_same_with_another_hash_seed(found: dict[int, str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-P", str(SCRIPT), "0", str(SOME)]
    lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [f"{seed} {each}" for seed, each in found.items()] == lines


@pytest.mark.parametrize("scale", [2.0, 0.125])
def test_system_in_which_all_takes_twice_as_long_does_the_same_in_twice_the_time(
    found: dict[int, str], scale: float
) -> None:
    """To the bit, for a power of two: no rule depends on what a second is."""
    assert {seed: digest(seed, scale) for seed in found} == found


def test_systems_differ_and_none_ends_with_an_error(found: dict[int, str]) -> None:
    assert len(set(found.values())) == SOME
    for seed in found:
        random_systems.system(seed).run()
