"""Faster kernels save seconds of a step, as SwiftDiffusion's Figure 15 measures them: one is disabled at a time."""

import pytest

from mezzotint.backends.profiled import Profiled

ALL = ["cuda-graphs", "geglu", "groupnorm-silu"]
GAINS = {"cuda-graphs": 0.064, "geglu": 0.060, "groupnorm-silu": 0.072}
"""Of the seconds with all three (6.5)."""


def seconds(*kernels: str) -> float:
    """Of a step, over those with plain kernels."""
    return 1 / Profiled("h800").faster("sdxl", kernels)


def test_together_they_gain_what_the_paper_prints() -> None:
    gain = 1 / seconds(*ALL)
    assert gain == pytest.approx(1.196)
    assert round(2.88 / (0.169 + 2.711 / gain), 2) == 1.18  # of 2.88 s, 2.711 are steps


@pytest.mark.parametrize("kernel", ALL)
def test_without_one_a_step_is_slower_by_its_gain(kernel: str) -> None:
    others = [name for name in ALL if name != kernel]
    assert seconds(*others) / seconds(*ALL) == pytest.approx(1 + GAINS[kernel])


@pytest.mark.parametrize("kernel", ALL)
def test_a_kernel_saves_the_same_seconds_alone_as_beside_the_others(kernel: str) -> None:
    others = [name for name in ALL if name != kernel]
    assert 1 - seconds(kernel) == pytest.approx(seconds(*others) - seconds(*ALL))
