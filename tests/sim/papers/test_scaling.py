"""The rule by datasheets, held against kinds of GPUs that were both measured."""

import json

import pytest

from mezzotint.backends.profile import shipped, within
from mezzotint.backends.scaling import ERROR, WEIGHT
from mezzotint.sim.papers.scaling import fit, measure, pairs
from tests.conftest import REPOSITORY

PAIRS = list(pairs(within(shipped())))


def test_committed_table_is_that_of_the_profiles() -> None:
    committed, found = json.loads((REPOSITORY / "results" / "scaling.json").read_text()), measure()
    assert committed["weight"] == found["weight"] == WEIGHT
    assert committed["errors"] == {rule: pytest.approx(errors) for rule, errors in found["errors"].items()}
    assert len(committed["pairs"]) == len(found["pairs"]) > 150
    assert ERROR - 0.02 < found["errors"]["both"]["p90"] <= ERROR


def test_both_directions_of_each_pair_are_inverse() -> None:
    ratios = {(pair.model, pair.like, pair.gpu): pair.ratio for pair in PAIRS}
    for (model, like, gpu), ratio in ratios.items():
        assert ratio * ratios[model, gpu, like] == pytest.approx(1)


def test_predicted_chip_is_left_out_of_its_own_fit() -> None:
    """Where one chip is made to need the bandwidth alone, the exponent of its own predictions does not move."""
    chip = next(pair.chips[1] for pair in PAIRS if pair.gpu == "l40s")
    others = [pair for pair in PAIRS if chip not in pair.chips]
    rows = [row for row in measure()["pairs"] if row["gpu"] == "l40s"]
    assert {row["weight"] for row in rows} == {fit(others)}
    assert fit([pair for pair in others if pair.software == "TensorRT"]) != fit(
        [p for p in PAIRS if p.gpu == "h200-x2"]
    )


def test_pairs_have_one_model_engine_and_format_on_equally_many_gpus() -> None:
    software = {(profile.gpu, profile.model): profile.software for profile in within(shipped())}
    for pair in PAIRS:
        assert software[pair.like, pair.model] == software[pair.gpu, pair.model] == pair.software
        assert pair.like.partition("-x")[2] == pair.gpu.partition("-x")[2]
