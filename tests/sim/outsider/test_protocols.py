"""Laws of a step cost model written from the text of mezzotint.sim.protocols alone, by hand calculation."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mezzotint.sim.protocols
from mezzotint.sim.run.simulate import Outcome
from tests.sim.lab import simulated

HERE = Path(__file__).parent
BASE_S, S_PER_MEGAPIXEL, DECODE_S = 0.1, 0.5, 2.0
"""The values of their_conf/batching/linear.yaml."""
STEPS = 50
CLOSED = ("arrivals=closed", "cluster.count=1")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """One simulation, as ``mezzotint run --plugin linear_steps --config-dir their_conf`` makes it."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("MEZZOTINT_PLUGINS", "linear_steps")
    monkeypatch.delitem(sys.modules, "linear_steps", raising=False)
    theirs = f"hydra.searchpath=[file://{HERE / 'their_conf'}]"
    return lambda *overrides: simulated(theirs, "executor=continuous-batching", "batching=linear", *overrides)


def test_one_request_takes_its_steps_plus_decoding(run: Callable[..., Outcome]) -> None:
    outcome = run(*CLOSED, "trace.requests=3", "arrivals.outstanding=1")
    rows = outcome.requests.to_pandas()
    step_s = BASE_S + S_PER_MEGAPIXEL
    assert rows.denoise_s.tolist() == pytest.approx([STEPS * step_s] * 3)
    assert rows.decode_s.tolist() == pytest.approx([DECODE_S] * 3)
    assert np.diff(rows.finish_s) == pytest.approx([STEPS * step_s + DECODE_S] * 2)


def test_step_time_is_linear_in_the_pixels_of_the_batch(run: Callable[..., Outcome]) -> None:
    """Four images of one megapixel join at once; they end their steps together and are decoded one after another."""
    outcome = run(*CLOSED, "trace.requests=4", "arrivals.outstanding=4")
    rows = outcome.requests.to_pandas()
    assert rows.denoise_s.tolist() == pytest.approx([STEPS * (BASE_S + 4 * S_PER_MEGAPIXEL)] * 4)
    assert np.diff(rows.finish_s) == pytest.approx([DECODE_S] * 3)
    assert rows.batch_mean.tolist() == pytest.approx([4.0] * 4)


def test_stated_step_power_sets_the_energy(run: Callable[..., Outcome]) -> None:
    """The GPU works all the time: steps draw the stated power, decoding that of the cluster's kind of GPU."""
    outcome = run(*CLOSED, "trace.requests=2", "arrivals.outstanding=2", "batching.watts=100")
    rows, busy_s = outcome.requests.to_pandas(), outcome.summary["gpu"]["seconds"]
    active_w = outcome.config["cluster"]["gpu"]["active_w"]
    steps_s = STEPS * (BASE_S + 2 * S_PER_MEGAPIXEL)
    assert busy_s == pytest.approx(steps_s + 2 * DECODE_S)
    assert rows.energy_j.sum() == pytest.approx(100 * steps_s + active_w * 2 * DECODE_S)
    assert "seconds of a step" in [each["what"] for each in outcome.summary["assumptions"]]


def test_protocol_policy_imports_only_sim_protocols() -> None:
    lines = (HERE / "linear_steps.py").read_text().splitlines()
    ours = [line for line in lines if line.startswith(("from mezzotint", "import mezzotint"))]
    assert [line.split()[1] for line in ours] == ["mezzotint.sim.protocols"]
    names = ours[0].partition("import ")[2].split(", ")
    assert set(names) <= set(mezzotint.sim.protocols.__all__)
