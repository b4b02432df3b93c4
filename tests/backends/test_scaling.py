"""Declared scaling: seconds of a kind of GPU that nobody measured, from another kind's."""

from math import log

import pytest

from mezzotint.backends.base import BackendError, Work, standalone_cost
from mezzotint.backends.profile import shipped, within
from mezzotint.backends.profiled import Profiled
from mezzotint.backends.scaling import ERROR, datasheet_factor, datasheets, seconds_ratio
from mezzotint.sim.cli import main
from mezzotint.sim.run.config.choices import gpus
from tests.sim.lab import simulated


def seconds(backend: Profiled, model: str = "sdxl-mlperf") -> float:
    cost = standalone_cost(backend, Work(model, 1024, 1024, 20))
    return cost.denoise_s + cost.other_s


def test_declared_factor_multiplies_the_seconds_of_the_other_kind() -> None:
    scaled = Profiled("a10g", assume="a10g=l40s*1.9")
    assert seconds(scaled) == pytest.approx(1.9 * seconds(Profiled("l40s")))
    stated = scaled.provenance("sdxl-mlperf")
    assert (stated.basis, stated.service_error) == ("scaled", ERROR)
    (assumption,) = (one for one in scaled.assumptions() if one.what.endswith("over those on l40s"))
    assert (assumption.value, "assume=a10g=l40s*1.9" in assumption.source) == (1.9, True)


def test_every_stage_of_a_profile_is_scaled() -> None:
    own, scaled = Profiled("h100-diffusers"), Profiled("a10g", assume="a10g=h100-diffusers*2")
    work = Work("sd3-medium", 1024, 1024, 28)
    for name in ("text_encode", "vae_decode", "vae_encode", "step"):
        assert scaled.seconds(name, work.model, 1024, 1024) == pytest.approx(
            2 * own.seconds(name, work.model, 1024, 1024)
        )
    assert scaled.profiles["sd3-medium"].energy == []


def test_datasheet_factor_is_one_for_itself_and_inverse_the_other_way() -> None:
    assert datasheet_factor("l40s", "l40s", "fp8") == (1.0, "fp8")
    there, back = datasheet_factor("l40s", "l4", "fp8")[0], datasheet_factor("l4", "l40s", "fp8")[0]
    assert there * back == pytest.approx(1)
    one, other = datasheets()["l40s"], datasheets()["l4"]
    compute, bandwidth = log(one["fp8"] / other["fp8"]), log(one["bandwidth"] / other["bandwidth"])
    assert min(compute, bandwidth) <= log(there) <= max(compute, bandwidth)
    assert seconds_ratio(4.0, 9.0, weight=0.5) == pytest.approx(6.0)


def test_gpu_without_a_number_format_computes_in_fp16() -> None:
    factor, dtype = datasheet_factor("l40s", "a10g", "fp8")
    assert dtype == "fp16"
    assert factor > datasheet_factor("l40s", "a10g", "fp16")[0]


def test_model_that_was_measured_keeps_its_own_profile_and_says_so() -> None:
    scaled, own = Profiled("l4", assume="l4=l40s*9"), Profiled("l4")
    assert seconds(scaled) == seconds(own)
    assert [(one.value, one.source) for one in scaled.assumptions() if one.what.startswith("assume=")] == [
        ("not used", "sdxl-mlperf is known on l4")
    ]


def test_assumed_profiles_are_not_scaled_further() -> None:
    """SDXL on h100 is assumed itself."""
    assert "sdxl" not in Profiled("a10g", assume="a10g=h100*2").profiles


@pytest.mark.parametrize(
    ("assume", "message"),
    [
        ("a10g=l40z", r"nothing was measured on l40z; did you mean l40s\?"),
        ("a10g=rtx-3070*2", "nothing was measured on rtx-3070"),
        ("a10g=sd-beta", "the datasheet of sd-beta is not known; give a factor of your own"),
        ("a10g=h100-x2", "served by 2 GPUs on h100-x2 and by 1 on a10g"),
        ("a10g", r"found 'a10g', expected KIND=KIND or KIND=KIND\*FACTOR"),
        ("a10g=l40s*0", "with a factor of .01 to 100"),
        ("a10g=l40s*nan", "with a factor of .01 to 100"),
        ("a10g=l40s*2,a10g=l4", "found a10g=l40s*2 and a10g=l4; keep one"),
        ("a10g=a10g*2", "scales a kind from itself"),
    ],
)
def test_wrong_declaration_is_refused_with_a_way_on(assume: str, message: str) -> None:
    with pytest.raises(BackendError, match=message.replace("found a10g=l40s*2", r"found a10g=l40s\*2")):
        Profiled("a10g", assume=assume)


def test_run_with_a_scaled_time_warns_and_is_marked(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    words = ["run", "cluster=a10g", "models=sdxl-mlperf", "trace.requests=20", f"run.dir={tmp_path}/out"]
    assert main(words) == 2
    assert "sdxl-mlperf was measured on l4" in capsys.readouterr().err
    assert main([*words, "assume=a10h=l40s"]) == 2
    assert "a10h is no kind of GPU; did you mean a10g?" in capsys.readouterr().err
    unused = [*words, "cluster=l40s"]
    assert main([*unused, "assume=a10g=l40"]) == 2  # a kind that the run does not have
    assert "assume: a10g=l40: l40 is no kind of GPU; did you mean l40s?" in capsys.readouterr().err
    assert main([*words, "backend.assume=1.9"]) == 2
    assert "backend.assume: found 1.9, expected str or null" in capsys.readouterr().err
    assert main([*words, "backend=live", "assume=a10g=l40s"]) == 2
    assert "looks no times up; choose backend=profiled" in capsys.readouterr().err
    assert main([*words, "assume=a10g=l40s*1.9"]) == 0
    output = capsys.readouterr()
    assert "over those on l40s: 1.9" in output.err
    assert "scaled" in output.out


def test_factor_changes_the_latency_of_a_run() -> None:
    words = ("cluster=a10g", "models=sdxl-mlperf", "trace.requests=20", "arrivals.rate_rpm=1")
    two, four = (simulated(*words, f"assume='a10g=l40s*{factor}'").summary for factor in (2, 4))
    assert four["slo"]["2x"]["limit_s"] == pytest.approx(2 * two["slo"]["2x"]["limit_s"])
    assert four["latency_s"]["p50"] > 2 * two["latency_s"]["p50"] * 0.99


def test_every_datasheet_is_of_a_kind_with_profiles_and_has_plausible_rates() -> None:
    """The dense rates of fp8 and int8 are 1 to 4 times those of fp16."""
    known = {profile.gpu.partition("-x")[0] for profile in within(shipped())} | set(gpus())
    for kind, rates in datasheets().items():
        assert kind in known
        assert all(1 <= rates[form] / rates["fp16"] <= 4.01 for form in rates.keys() & {"fp8", "int8"})
        assert 5 < 1e3 * rates["fp16"] / rates["bandwidth"] < 800
