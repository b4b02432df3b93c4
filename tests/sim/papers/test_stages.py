"""The H800 profile, calibrated on four settings of Katz's logs, predicts the others."""

import pytest

from mezzotint.sim.papers.stages import STAGES, STATISTICS, Setting, comparisons, max_error, settings


def test_uncalibrated_settings_are_predicted_within_the_stated_error() -> None:
    """Stage by stage, with the errors of results/swiftdiffusion.md: a change that makes them larger fails."""
    predicted = list(settings(lambda _, controlnets, loras: loras == 2))
    assert {(setting.system, setting.name) for setting in predicted} == {
        *(("diffusers", "3C/2L"), ("nirvana-10", "3C/2L"), ("nirvana-20", "3C/2L"), ("katz", "3C/2L")),
        *(("katz", "1C/2L"), ("distrifusion-add-ons", "1C/2L"), ("distrifusion-add-ons", "3C/2L")),
    }
    max_errors = {"latency_s": 0.05, "denoise_s": 0.05, "lora_s": 0.07, "other_s": 0.18, "patch_step": 2.5}
    for stage in STAGES:
        for statistic in STATISTICS:
            assert max_error(predicted, stage, statistic) <= max_errors[stage], (stage, statistic)


@pytest.mark.parametrize("system", ["diffusers", "katz"])
def test_calibrated_settings_are_reproduced(system: str) -> None:
    for setting in settings(lambda name, nets, loras: name == system and (nets, loras) in ((0, 1), (3, 0))):
        for statistic in STATISTICS:
            assert abs(setting.error("latency_s", statistic) or 0.0) < 0.01, (setting.name, statistic)


def test_error_of_a_merge_is_in_steps_and_that_of_a_stage_relative() -> None:
    logged, ours = {"latency_s": 2.0, "patch_step": 17.0}, {"latency_s": 2.2, "patch_step": 17.5}
    setting = {"system": "katz", "controlnets": 3, "loras": 2}
    facts = setting | {of: dict.fromkeys(STATISTICS, values) for of, values in (("logged", logged), ("ours", ours))}
    rows = comparisons({"settings": [facts]})
    assert [row.within_tolerance for row in rows.values()] == [False, True] * 2
    settings = [Setting(**facts), Setting(**facts | {"controlnets": 0, "loras": 0})]  # the second is calibrated
    assert max_error(settings, "latency_s") == pytest.approx(0.1)
    assert max_error(settings, "patch_step") == 0.5
    assert max_error(settings, "lora_s") == 0.0
