"""How PatchedServe's numbers are measured, on made-up summaries that agree with the paper and others that do not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.patchedserve import (
    at_moderate_load,
    gains_by_scheduling,
    leads_on_several_gpus,
    load_over_baselines,
    over_nirvana,
    predictor_error,
    step_ratios,
)
from mezzotint.sim.papers.scorecard.measures.rate_grids import ENDS, STARTS
from mezzotint.sim.papers.scorecard.study import load_study

Shares = Mapping[int, float]

OURS = {10: 1.0, 40: 1.0, 60: 0.4}
"""By rate; at 59 % of the way from 40 to 60 half of the requests are in time."""


def run(experiment: str, system: str, rate: int, share: float, error: float = 1.0) -> tuple[Point, Finished]:
    point = Point(experiment, {"system": system, "arrivals.rate_rpm": str(rate), "seed": "1"}, ())
    assumption = {"what": "mean squared error of the predicted step of m [ms^2]", "value": error, "source": ""}
    summary = {"system": system, "slo": {"5x": {"violation_rate": 1 - share}}, "assumptions": [assumption]}
    return point, Finished(point, {}, Path("nowhere"), summary)


def runs(shares: Mapping[str, Mapping[str, Shares]]) -> Runs:
    """By experiment, system and rate."""
    return Runs(
        tuple(
            run(experiment, system, rate, share)
            for experiment, by_system in shares.items()
            for system, by_rate in by_system.items()
            for rate, share in by_rate.items()
        )
    )


def less(by: float) -> dict[int, float]:
    return {rate: share - by for rate, share in OURS.items()}


def figure11(sdxl: Mapping[str, Shares], sd3: Mapping[str, Shares]) -> Runs:
    """PatchedServe and its baselines, which are `OURS` unless given otherwise."""
    alike = dict.fromkeys(("patchedserve", "nirvana-orca", "patched-cache"), OURS)
    return runs({"patchedserve-figure11": {**alike, **sdxl}, "patchedserve-figure11-sd3": {**alike, **sd3}})


def every(values: Any) -> float:
    """Return the value that all alternatives have."""
    assert values.min() == pytest.approx(values.max())
    return float(values[0])


def test_satisfaction_over_nirvana_is_averaged_over_rates_and_models() -> None:
    """A lead that is the same at all rates is the same on all grids, whatever their rates."""
    found = over_nirvana(figure11({"nirvana-orca": less(0.1)}, {"nirvana-orca": less(0.3)}))
    assert every(found.values) == pytest.approx(100 * (0.1 + 0.3) / 2)
    assert len(found.values) == 7 * 99**2  # 4 to 10 rates, of each model 11 ends and 9 starts


def test_moderate_load_is_the_lower_half_of_a_grid_on_the_worse_model() -> None:
    """On SD3 a hundredth is lost for each request a minute, so the share at a rate tells which rate it is."""
    found = at_moderate_load(figure11({}, {"patchedserve": {0: 1.0, 100: 0.0}}))
    assert found.values.min() == pytest.approx(1 - 0.50 * (0.5 + 0.5 * 4 / 9))  # the fifth of ten rates from 25 to 50
    assert found.values.max() == pytest.approx(1 - 0.01 * (0.1 + 0.9 * 1 / 4))  # the second of five from 0.1 to 1


def test_a_load_is_read_only_from_grids_that_cross_each_share() -> None:
    equal = load_over_baselines(figure11({}, {}))
    assert [every(column) for column in equal.values.T] == pytest.approx([1.0, 1.0, 1.0])
    assert len(equal.values) == 7 * (9 * 9) ** 2  # ends at 0.99 and at 0.941 do not fall below 0.90
    worse = {10: 1.0, 20: 1.0, 30: 0.4}  # at half of the rates: the best baseline counts
    assert load_over_baselines(figure11({"nirvana-orca": worse}, {})).typical() == pytest.approx([1.0, 1.0, 1.0])
    never = dict.fromkeys((10, 20), 0.5)  # below each share already at the lowest rate
    with pytest.raises(Unmeasured, match="no grid"):
        load_over_baselines(figure11({"nirvana-orca": never, "patched-cache": never}, {}))


def test_scheduling_pays_where_it_is_ahead_of_first_come_first_served_and_more_on_sdxl() -> None:
    def found(sdxl: float, sd3: float) -> float:
        pairs = gains_by_scheduling(figure11({"patched-cache": less(sdxl)}, {"patched-cache": less(sd3)}))
        return every(pairs.values.astype(float))

    assert (found(0.2, 0.1), found(0.1, 0.2), found(0.2, 0.0)) == (1.0, 0.0, 0.0)


def test_predictor_error_is_that_of_the_worse_model() -> None:
    """The value of another assumption is no error of the predictor, and a missing model is no zero."""
    outcomes = [run("patchedserve-figure11", "patchedserve", 10, 1.0, 3.0)]
    outcomes += [run("patchedserve-figure11-sd3", "patchedserve", 10, 1.0, error) for error in (4.0, 8.0)]
    assert predictor_error(Runs(tuple(outcomes))) == 6.0
    point, finished = outcomes[1]
    summary = {**finished.summary, "assumptions": [{"what": "switch time", "value": 3.0, "source": ""}]}
    with pytest.raises(Unmeasured, match="no run of sd3-medium has a learnt predictor"):
        predictor_error(Runs((outcomes[0], (point, replace(finished, summary=summary)))))


def several(others: Mapping[str, Shares], last: Mapping[str, Shares] | None = None) -> Runs:
    """PatchedServe and the others on several GPUs; ``last`` on eight with SD3 alone."""
    named = [f"patchedserve-figure{n}{gpus}" for n in (12, 13) for gpus in ("", "-4gpus", "-8gpus")]
    shares = {name: {"patchedserve": OURS, **others} for name in named}
    return runs(shares | {named[-1]: {**shares[named[-1]], **(last or {})}})


def test_nobody_is_ahead_on_several_gpus_and_distrifusion_is_for_light_loads() -> None:
    """Above 30 a minute Distrifusion serves none, so only grids that start at about 12 a minute are as printed."""
    as_printed = {"patched-cache": less(0.1), "nirvana-orca": less(0.2), "distrifusion": {10: 1.0, 12: 1.0, 30: 0.0}}
    found = leads_on_several_gpus(several(as_printed))
    starts = np.array(STARTS)
    ends = 40 + 20 * (1 - np.array(ENDS)) / 0.6
    light = (1 - (starts * ends[:, None] - 12) / 18 > 0.9).ravel()
    assert found.values.mean() == pytest.approx(light.mean() ** 2)
    behind = leads_on_several_gpus(several(as_printed, {"patched-cache": {10: 1.0, 60: 1.0}}))
    assert not behind.values.any()
    no_better = leads_on_several_gpus(several(as_printed, {"nirvana-orca": {10: 0.9, 30: 0.0}}))
    assert not no_better.values.any()


def test_profiles_have_the_published_step_ratio() -> None:
    assert step_ratios() == pytest.approx([1.3, 2.4])


@pytest.mark.parametrize(("sd3", "shrinks"), [((0.3, 0.25, 0.2, 0.1), True), ((0.3, 0.45, 0.2, 0.1), False)])
def test_saving_shrinks_if_it_falls_with_the_batch_on_both_models(
    tmp_path: Path, sd3: tuple[float, ...], shrinks: bool
) -> None:
    made = []
    for model, savings in (("sdxl", (0.5, 0.46, 0.3, 0.2)), ("sd3-medium", sd3)):
        for requests, saving in zip(("3", "6", "9", "12"), savings, strict=True):
            for batching, seconds in (("same-size", 10.0), ("patched", 10.0 * (1 - saving))):
                folder = tmp_path / f"{model}{requests}{batching}"
                folder.mkdir()
                pq.write_table(pa.table({"denoise_s": [seconds / 2, seconds]}), folder / "requests.parquet")
                choices = {"models": model, "trace.requests": requests, "batching": batching, "feature_cache": "none"}
                point = Point("patchedserve-figure14", choices, ())
                made.append((point, Finished(point, {}, folder, {"system": ""})))
    entry = load_study("patchedserve", quick=False).entry("P6b")
    assert entry.evaluate(Runs(tuple(made))) is shrinks
