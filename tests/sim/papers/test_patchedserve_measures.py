"""How PatchedServe's numbers are measured, on made-up summaries that agree with the paper and others that do not."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.papers.scorecard.measures.patchedserve import (
    at_moderate_load,
    gains_by_scheduling,
    large_over_small,
    leads_on_several_gpus,
    load_over_baselines,
    over_nirvana,
    predictor_error,
    step_ratio,
    third_size_adds_time,
)
from sim.papers.scorecard.runs.finished import Finished, Runs, Unmeasured
from sim.papers.scorecard.runs.points import Point

RATES = (10, 20, 30, 40)


def run(experiment: str, system: str, rate: int, share: float, error: float = 1.0) -> tuple[Point, Finished]:
    point = Point(experiment, {"system": system, "arrivals.rate_rpm": str(rate), "seed": "1"}, ())
    assumption = {"what": "mean squared error of the predicted step of m [ms^2]", "value": error, "source": ""}
    summary = {"system": system, "slo": {"5x": {"violation_rate": 1 - share}}, "assumptions": [assumption]}
    return point, Finished(point, {}, Path("nowhere"), summary)


def figure11(change: Callable[[str, str, int], float] = lambda model, system, rate: 0.0) -> Runs:
    """PatchedServe carries 40 at 90 %, the others half; slightly more on SDXL than on SD3."""
    ends = {"patchedserve": (1.0, 1.0, 0.96, 0.90), "patched-cache": (1.0, 0.92, 0.8, 0.5)}
    ends["nirvana-orca"] = (1.0, 0.9, 0.5, 0.2)
    runs = []
    for experiment, model in (("patchedserve-figure11", "sdxl"), ("patchedserve-figure11-sd3", "sd3")):
        for system, shares in ends.items():
            for rate, share in zip(RATES, shares, strict=True):
                less = 0.1 if model == "sd3" and system == "patchedserve" and rate > 20 else 0.0
                runs.append(run(experiment, system, rate, share - less + change(model, system, rate)))
    return Runs(tuple(runs))


def test_satisfaction_over_nirvana_is_averaged_over_rates_and_models() -> None:
    assert over_nirvana(figure11()) == pytest.approx(100 * (0 + 0.1 + 0.41 + 0.65) / 4)
    assert at_moderate_load(figure11()) == 1.0


def test_supported_load_is_interpolated_at_the_required_share() -> None:
    def alike(model: str, system: str, rate: int) -> float:
        return 0.1 if model == "sd3" and system == "patchedserve" and rate > 20 else 0.0

    times = load_over_baselines(figure11(lambda model, system, rate: alike(model, system, rate) - 1e-9))
    best = (10 + 10 * 0.01 / 0.08, 10 + 10 * 0.05 / 0.08, 20 + 10 * 0.02 / 0.12)
    ours = (20 + 10 * 0.01 / 0.04, 30 + 10 * 0.01 / 0.06, 40.0)
    assert times == pytest.approx([one / other for one, other in zip(ours, best, strict=True)], rel=1e-6)
    with pytest.raises(Unmeasured, match="at none up to 40/min"):
        load_over_baselines(figure11(lambda model, system, rate: 1.0))


def test_scheduling_gains_where_it_beats_fcfs_and_more_on_sdxl() -> None:
    assert gains_by_scheduling(figure11())
    assert not gains_by_scheduling(
        figure11(lambda model, system, rate: 0.2 * (model == "sd3" and system == "patchedserve"))
    )


def test_predictor_error_is_that_of_the_worse_model() -> None:
    runs = [run("patchedserve-figure11", "patchedserve", 10, 1.0, 3.0)]
    runs += [run("patchedserve-figure11-sd3", "patchedserve", 10, 1.0, error) for error in (4.0, 8.0)]
    assert predictor_error(Runs(tuple(runs))) == 6.0
    with pytest.raises(Unmeasured):
        predictor_error(Runs(tuple(runs[:1])))


def several(shares: Mapping[str, tuple[float, ...]]) -> Runs:
    named = [f"patchedserve-figure{n}{gpus}" for n in (12, 13) for gpus in ("", "-4gpus", "-8gpus")]
    made: list[Any] = [
        run(name, system, rate, share)
        for name in named
        for system, of in shares.items()
        for rate, share in zip(RATES, of, strict=True)
    ]
    return Runs(tuple(made))


def test_patchedserve_leads_on_several_gpus_only_if_every_printed_claim_holds() -> None:
    as_printed = {
        "patchedserve": (1.0, 1.0, 0.9, 0.8),
        "patched-cache": (1.0, 0.9, 0.8, 0.4),
        "nirvana-orca": (0.9, 0.8, 0.7, 0.6),
        "distrifusion": (1.0, 0.6, 0.2, 0.1),
    }
    assert leads_on_several_gpus(several(as_printed))
    assert not leads_on_several_gpus(several({**as_printed, "nirvana-orca": (0.9, 0.8, 0.7, 0.05)}))
    assert not leads_on_several_gpus(several({**as_printed, "patched-cache": (1.0, 0.9, 0.95, 0.4)}))


def test_profiles_have_the_published_step_ratio() -> None:
    assert [step_ratio(model) for model in ("sdxl", "sd3-medium")] == pytest.approx([1.3, 2.4])


def batch(folder: Path, sides: tuple[int, ...], steps_s: float, model: str = "sdxl") -> tuple[Point, Finished]:
    """A run of one batch of images with these sides and step times."""
    folder.mkdir()
    pq.write_table(pa.table({"denoise_s": [steps_s / 2, steps_s]}), folder / "requests.parquet")
    point = Point("patchedserve-figure5", {"models": model}, ())
    return point, Finished(point, {"trace": {"shapes": [[side, side] for side in sides]}}, folder, {"system": ""})


def test_batches_of_three_are_identified_by_their_sizes_in_any_order(tmp_path: Path) -> None:
    made = [
        batch(tmp_path / "large", (1024, 1024, 1024), 9.0),
        batch(tmp_path / "other", (512, 512, 512), 1.0, "sd3-medium"),
        batch(tmp_path / "small", (512, 512, 512), 2.0),
        batch(tmp_path / "mixed", (1024, 512, 768), 5.0),
    ]
    assert large_over_small(Runs(tuple(made))) == 4.5
    for seconds, counts in ((4.9, True), (5.0, False)):
        more = batch(tmp_path / f"{seconds}", (1024, 768, 768), seconds)
        assert third_size_adds_time(Runs((*made, more))) is counts
    with pytest.raises(Unmeasured, match=r"no run of sdxl at \[768, 768, 1024\]"):
        third_size_adds_time(Runs(tuple(made)))


def test_predictor_error_needs_a_learned_predictor() -> None:
    """The value of another assumption is no error of the predictor, and a missing model is no zero."""
    runs = [run("patchedserve-figure11", "patchedserve", 10, 1.0), run("patchedserve-figure11", "patched-cache", 10, 1)]
    for point, finished in [run("patchedserve-figure11-sd3", "patchedserve", 10, 1.0)]:
        assumptions = [{"what": "switch time", "value": 3.0, "source": ""}]
        runs.append((point, replace(finished, summary={**finished.summary, "assumptions": assumptions})))
    with pytest.raises(Unmeasured, match="no run of sd3-medium has a learnt predictor"):
        predictor_error(Runs(tuple(runs)))
