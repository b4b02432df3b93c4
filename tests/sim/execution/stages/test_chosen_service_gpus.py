"""ControlNets on GPUs that the group policy chooses beside the denoiser's: waits, places, and GPUs that fail."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.addons.kernels import Kernels
from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.request import COMPLETED, DISCARDED, Addons
from mezzotint.sim.engine import Engine
from mezzotint.sim.protocols import Launch
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from tests.sim.execution.stages.test_addons import APART, BEGIN_S, END_S, STEP_S, STEPS, column, run_stages

NETS = "canny", "depth", "pose"


def served(times: Any, nets: list[tuple[str, ...]], gpus: int, policy: FixedDegree, **how: Any) -> Engine:
    """A finished run on ``gpus``, each of which may step the denoiser or serve a ControlNet."""
    how = {"controlnet_placement": ServiceGpus()} | how
    return run_stages(times, [Addons(each) for each in nets], gpus, 0, policy, **how)


def gpus_of(run: Engine, component: str) -> list[set[int]]:
    """Return the GPUs that ran ``component`` of each request that ran it, by row."""
    log, found = run.record.attempts, dict[int, set[int]]()
    assert log is not None
    for row, name, gpus in zip(log.row, log.component, log.gpus, strict=True):
        if name == component:
            found.setdefault(row, set()).update(gpus)
    return [found[row] for row in sorted(found)]


def seconds(nets: int, degree: int) -> float:
    """Return the seconds of a request whose ControlNets are loaded, by hand."""
    apart = APART[degree]
    extra_s = apart.controlnet_s - apart.encoder_s + nets * apart.receive_s if nets else 0.0
    return BEGIN_S + STEPS * (STEP_S / degree + extra_s) + END_S


@settings(max_examples=40, deadline=None)
@given(
    asked=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=10),
    gpus=st.integers(2, 6),
    degree=st.sampled_from([1, 2]),
)
def test_queue_head_starts_once_enough_gpus_are_idle(asked: list[tuple[int, int]], gpus: int, degree: int) -> None:
    """Brute force: no request overtakes, and the first waits for nothing but GPUs. One that takes too many leaves."""
    times, nets = np.cumsum([float(gap) for gap, _ in asked]), [NETS[:some] for _, some in asked]
    run = served(times, nets, gpus, FixedDegree(degree))
    free_s, turn_s, starts = [0.0] * gpus, 0.0, []
    load_s = column(run, "load_s")
    for row, (time_s, some) in enumerate(zip(times, map(len, nets), strict=True)):
        needed = degree * (1 + some)
        if needed > gpus:
            starts.append(np.nan)
            continue
        free_s.sort()
        turn_s = max(turn_s, time_s, free_s[needed - 1])
        starts.append(turn_s)
        free_s[:needed] = [turn_s + load_s[row] + seconds(some, degree)] * needed
    fits = ~np.isnan(starts)
    assert column(run, "outcome") == np.where(fits, COMPLETED, DISCARDED).tolist()
    assert np.array(column(run, "start_s"))[fits].tolist() == np.array(starts)[fits].tolist()
    busy_s = run.record.usage_log.inside(0.0, 1e6, run.cluster.gpu_counts()).busy_s
    took_s = [degree * (1 + len(each)) * (load + seconds(len(each), degree))
              for each, load, fit in zip(nets, load_s, fits, strict=True) if fit]  # fmt: skip
    assert busy_s == pytest.approx(sum(took_s))


def test_controlnets_run_on_the_gpus_that_hold_them() -> None:
    """Each of two was loaded (2 s) on a GPU of its own, and later requests load nothing, in either order."""
    nets = [(name,) for name in ("canny", "depth", "canny", "depth", "depth", "canny")]
    run = served([0.0, 1.0, 20.0, 21.0, 40.0, 41.0], nets, 5, FixedDegree())
    assert column(run, "load_s") == [2.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    canny, depth, *later = gpus_of(run, "controlnet")
    assert canny != depth
    assert later == [canny, depth, depth, canny]


def test_no_gpu_steps_a_denoiser_and_serves_a_controlnet_at_once() -> None:
    run = served([0.0] * 8, [NETS[: row % 3] for row in range(8)], 4, FixedDegree())
    assert all(outcome == COMPLETED for outcome in column(run, "outcome"))
    log, spans = run.record.attempts, dict[int, list[tuple[float, float]]]()
    assert log is not None
    for gpus, from_s, until_s in zip(log.gpus, log.from_s, log.until_s, strict=True):
        for gpu in gpus:
            spans.setdefault(gpu, []).append((from_s, until_s))
    for each in spans.values():
        each.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(each))


def test_launch_is_lost_with_a_gpu_that_serves_its_controlnet() -> None:
    """GPU 0 serves and fails at 3 s; the request begins anew on the two others, and loads its ControlNet there."""
    run = served([0.0], [("canny",)], 3, FixedDegree(), controllers=[Failures({0: [(3.0, 100.0)]})])
    assert gpus_of(run, "controlnet") == [{0, 2}]
    assert column(run, "finish_s") == [3.0 + 2.0 + seconds(1, 1)]
    assert column(run, "start_s") == [3.0]


@pytest.mark.parametrize(("nets", "gpus"), [(0, 2), (1, 4), (2, 8), (5, 8)])
def test_degree_by_number_of_controlnets(nets: int, gpus: int) -> None:
    policy = FixedDegree(degree_by_controlnets=[2, 4, 8])
    names = tuple(f"net-{number}" for number in range(nets))
    run = run_stages([0.0], [Addons(names)], 8, 0, policy)
    (used,) = gpus_of(run, "whole")
    assert len(used) == gpus


def test_kernels_speed_up_steps_and_controlnets_and_nothing_else() -> None:
    class Twice(Kernels):
        def bind(self, run: Any) -> None:
            """Take nothing."""

        def faster(self, model: str) -> float:
            return 2.0

    run = served([0.0, 50.0], [("canny",)] * 2, 2, FixedDegree(), kernels=Twice(stages=3.0))
    step_s = (STEP_S + APART[1].controlnet_s - APART[1].encoder_s) / 2 + APART[1].receive_s
    assert column(run, "finish_s")[1] - 50.0 == 3 * BEGIN_S + STEPS * step_s + 3 * END_S


def test_speedup_of_the_settings_replaces_the_profiles() -> None:
    """Of a degree that was measured, and of one that was not; all GPUs draw their power."""
    for degree in (2, 4):
        run = run_stages([0.0], [Addons()], 4, 0, FixedDegree(degree), speedup={2: 1.25, 4: 1.6})
        took_s = BEGIN_S + STEPS * STEP_S / {2: 1.25, 4: 1.6}[degree] + END_S
        assert column(run, "finish_s") == [took_s]
        assert column(run, "energy_j") == [pytest.approx(300.0 * degree * took_s)]


def test_policy_that_chooses_no_service_gpus_is_refused_without_any() -> None:
    with pytest.raises(ConfigError, match=r"controlnet_placement=service: .* allocation=controlnet-servers, or choose"):
        run_stages([0.0], [Addons(("canny",))], 2, 0, EarliestDeadline(), controlnet_placement=ServiceGpus())


class Wrong(FixedDegree):
    """Launches with ``service`` for the ControlNets."""

    def __init__(self, service: tuple[int, ...]) -> None:
        super().__init__()
        self.service = service

    def decide(self, now_s: float) -> list[Launch]:
        return [launch._replace(service=self.service) for launch in super().decide(now_s)]


@pytest.mark.parametrize(
    ("service", "why"),
    [
        ((), r"with the GPUs \(\) for its ControlNets; expected a tuple of 1"),
        ([1], r"with the GPUs \[1\] for"),
        ((1,), r"GPUs \(1, 1\); expected a tuple"),
    ],
)
def test_wrong_service_gpus_end_the_run_with_the_policys_name(service: tuple[int, ...], why: str) -> None:
    with pytest.raises(SimulationError, match=rf"Wrong.*{why}"):
        served([0.0], [("canny",)], 2, Wrong(service))
