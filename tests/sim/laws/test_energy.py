"""Energy: what each GPU drew at work, by its model, and idle; and what a model change costs."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from mezzotint.backends.profile import shipped
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, assemble, replay
from tests.sim.lab import configured

IDLE_W = 60.0
POWER_W = {"sd3.5-large": 280.0, "sdxl": 210.0, "sana-1.6b": 150.0}
LOAD_S = {"sd3.5-large": 30.0, "sdxl": 12.0, "sana-1.6b": 5.0}
RUN = ("trace.requests=700", "preload=200", "models=sd35l-sdxl-sana", "arrivals=ramp", "arrivals.end_rpm=34")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return MI210's profiles with a power and a load time for each model."""
    folder = tmp_path_factory.mktemp("profiles")
    for model in POWER_W:
        profile = yaml.safe_load((shipped() / f"mi210_{model}.yaml").read_text(encoding="utf-8"))
        profile |= {"power_w": POWER_W[model], "load_s": LOAD_S[model]}
        (folder / f"{model}.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    return folder


def served(*words: str) -> tuple[Outcome, dict[tuple[str, str], float]]:
    """Run in quality mode down the ladder of models; return the working seconds of the GPUs by kind and model."""
    config = configured("system=modm-quality", *RUN, *words)
    settings = check(config)
    assembled = assemble(settings)
    outcome = replay(settings, assembled, config)
    usage_log = assembled.engine.record.usage_log
    found, kinds, models = usage_log.spans(), list(usage_log.kinds), list(usage_log.models)
    seconds: dict[tuple[str, str], float] = {}
    start_s = outcome.requests["arrival_s"][0].as_py()
    for span in found:
        key = kinds[span["kind"]], models[span["model"]]
        seconds[key] = seconds.get(key, 0.0) + span["until_s"] - max(span["from_s"], start_s)
    return outcome, seconds


@pytest.mark.invariant(8)
def test_energy_is_busy_time_times_model_power_plus_idle_time_times_idle_power(measured: Path) -> None:
    outcome, seconds = served(f"backend.folder={measured}")
    summary = outcome.summary
    assert {model for _, model in seconds} == set(POWER_W)
    assert {kind for kind, _ in seconds} == {"serve", "load"}
    busy_s = sum(seconds.values())
    at_work = sum(each_s * POWER_W[model] for (_, model), each_s in seconds.items())
    idle_j = (summary["gpu"]["seconds"] - busy_s) * IDLE_W
    assert summary["gpu"]["busy_fraction"] == pytest.approx(busy_s / summary["gpu"]["seconds"])
    assert summary["energy_j"]["total"] == pytest.approx(at_work + idle_j)
    assert summary["energy_j"]["per_image"] == pytest.approx((at_work + idle_j) / 500)
    rows = outcome.requests.to_pandas()
    draw = rows.model.astype(str).map(POWER_W)
    np.testing.assert_allclose(rows.energy_j, draw * (rows.denoise_s + rows.decode_s))
    basis = {each["what"]: each["value"] for each in summary["assumptions"]}
    assert basis["energy of sdxl on mi210"] == "210 W while it works"


def test_switch_costs_the_load_time_of_the_profile(measured: Path) -> None:
    outcome, seconds = served(f"backend.folder={measured}")
    loads = {model: each_s for (kind, model), each_s in seconds.items() if kind == "load"}
    gpu = outcome.summary["gpu"]
    assert gpu["switches"] >= 3
    assert gpu["switch_s"] == pytest.approx(sum(loads.values()))
    for model, each_s in loads.items():
        assert each_s == pytest.approx(LOAD_S[model] * round(each_s / LOAD_S[model]))
    assert (outcome.requests.to_pandas().load_s == 0).all()  # no request is charged for a switch
    assert not any("load time" in each["what"] for each in outcome.summary["assumptions"])


def test_unmeasured_power_and_load_time_are_assumed_and_stated() -> None:
    outcome, seconds = served("backend.unpublished_load_s=17")
    assumptions = {each["what"]: each for each in outcome.summary["assumptions"]}
    assert assumptions["load time of sdxl on mi210 [s]"]["value"] == 17
    assert "nobody published it" in assumptions["load time of sdxl on mi210 [s]"]["source"]
    assert assumptions["GPU power, at work and idle [W]"]["value"] == [300, 60]
    assert "assumed" in assumptions["GPU power, at work and idle [W]"]["source"]
    gpu = outcome.summary["gpu"]
    assert gpu["switch_s"] == pytest.approx(17 * gpu["switches"])
    busy_s = sum(seconds.values())
    expected = 300 * busy_s + IDLE_W * (gpu["seconds"] - busy_s)
    assert outcome.summary["energy_j"]["total"] == pytest.approx(expected)
