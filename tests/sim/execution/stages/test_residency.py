"""The components that a GPU holds, and the loads of those that it lacks."""

from mezzotint.backends.base import ComponentWeights
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE
from mezzotint.sim.execution.stages.preparation import Residency
from tests.sim.scheduling.group_policies.stage_times import StageTimes

WEIGHTS = {TEXT_ENCODER: (6, 3.0), DENOISER: (8, 5.0)}


def residency(memory_bytes: int | None = 10) -> Residency:
    """A GPU of 10 bytes; nobody measured the VAE."""
    return Residency(StageTimes([(1.0, 1.0, 1.0)], WEIGHTS), memory_bytes)


def test_component_whose_weights_nobody_measured_is_never_loaded() -> None:
    found = residency()
    assert found.weights("model", VAE) is None
    assert found.weights("model", DENOISER) == ComponentWeights(8, 5.0)
    assert found.load_s([0], "model", [VAE]) == 0.0
    assert found.load_s([0], "model", [DENOISER, VAE]) == 5.0
    assert residency(None).load_s([0], "model", [DENOISER]) == 0.0


def test_component_that_makes_room_is_loaded_again() -> None:
    found = residency()
    for component, seconds in ((DENOISER, 5.0), (DENOISER, 0.0), (TEXT_ENCODER, 3.0), (DENOISER, 5.0)):
        assert found.load_s([0], "model", [component]) == seconds


def test_gpus_of_a_group_load_side_by_side() -> None:
    found = residency()
    found.load_s([0], "model", [DENOISER])
    assert found.load_s([0, 1], "model", [DENOISER]) == 5.0
    assert found.load_s([0, 1], "model", [DENOISER]) == 0.0
