"""The like-for-like set: the same model, size, steps and precision on every GPU, for every applicable design."""

from itertools import cycle

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.sim.lab import simulated


def points(experiment: str) -> list[tuple[str, str, str]]:
    """One run of an experiment's sweep on each GPU, its designs in turn."""
    settings = yaml.safe_load((REPOSITORY / "conf" / "experiment" / f"{experiment}.yaml").read_text())
    swept = settings["hydra"]["sweeper"]["params"]
    designs = cycle(swept["system"].split(","))
    return [
        (f"experiment={experiment}", f"cluster={gpu}", f"system={design}")
        for gpu, design in zip(swept["cluster"].split(","), designs, strict=False)
    ]


@pytest.mark.parametrize("point", [*points("like-for-like"), *points("like-for-like-batches")], ids=" ".join)
def test_like_for_like_runs_have_the_same_model_size_steps_and_precision(point: tuple[str, str, str]) -> None:
    summary = simulated(*point, "trace.requests=24").summary
    assert summary["requests"]["completed"] == 24
    (model,) = summary["models"]
    shape = [model[key] for key in ("model", "width", "height", "steps", "precision")]
    assert shape == ["sdxl-mlperf", 1024, 1024, 20, "fp8"]
    assert model["basis"] == "published"
    assert model["service_error"] is not None
    assert not [assumption for assumption in summary["assumptions"] if "extrapolate" in assumption["source"]]


def test_gpu_without_a_profile_of_the_model_is_refused() -> None:
    with pytest.raises(ValueError, match="no profile of sdxl-mlperf on h100 "):
        simulated("experiment=like-for-like", "cluster=h100")


BATCHING = {
    "cluster=h100 executor=continuous-batching executor.max_batch=16": 0,
    "cluster=h100 executor=static-batch scheduler=dynamic-batching scheduler.max_batch=8 scheduler.max_wait_s=5": 2,
    "cluster=h100 system=patchedserve": 0,
}


@pytest.mark.parametrize(("command", "stages"), BATCHING.items())
def test_batching_commands_say_how_they_split_what_was_measured(command: str, stages: int) -> None:
    """``stages`` split its images by a rule that the summary states."""
    summary = simulated(*command.split(), "trace.requests=40").summary
    assert summary["requests"]["completed"] == 40
    assert sum("the largest measured" in assumption["what"] for assumption in summary["assumptions"]) == stages
