"""`mezzotint calibrate table`: own step times of many models and kinds of GPUs, as profiles."""

import re
from pathlib import Path

import pytest

from mezzotint.backends.base import Work, standalone_cost
from mezzotint.backends.profile import read
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.cli import main

HEAD = "model,gpu,width,height,frames,steps,batch,degree,step_s,total_s,stage"
ROWS = (
    "m,g,512,512,,,1,,0.03,,",
    "m,g,1024,1024,,,1,,0.08,,",
    "m,g,1024,1024,,,1,,0.13,,",
    "m,g,1024,1024,,,1,,0.09,,",
    "m,g,1024,1024,,,4,,0.30,,step",
    "m,g,1024,1024,,,1,2,0.05,,",
    "m,g,,,,,1,,,0.02,text_encode",
    "m,g,1024,1024,,,1,,,0.15,vae_decode",
    "m,h,832,480,81,50,,,,200,",
)


def made(folder: Path, *rows: str, head: str = HEAD) -> int:
    (folder / "steps.csv").write_text("\n".join([head, *rows]) + "\n")
    return main(["calibrate", "table", str(folder / "steps.csv"), "-o", str(folder / "profiles")])


def test_one_table_makes_a_profile_of_every_pair(tmp_path: Path) -> None:
    assert made(tmp_path, *ROWS) == 0
    one, other = (read(tmp_path / "profiles" / f"{gpu}_m.yaml") for gpu in ("g", "h"))
    assert {(at.width, at.batch): at.seconds for at in one.step} == {(512, 1): 0.03, (1024, 1): 0.1, (1024, 4): 0.3}
    assert [(at.gpus, at.seconds) for at in one.gang_step] == [(2, 0.05)]
    (clip,) = other.step
    assert (clip.frames, clip.seconds) == (81, 4.0)


def test_repeated_times_that_differ_much_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, *ROWS) == 0
    said = "step width=1024 height=1024 frames=1 batch=1 is the mean of 0.08 to 0.13 s"
    assert said in capsys.readouterr().out


def test_seconds_may_have_a_decimal_comma(tmp_path: Path) -> None:
    assert made(tmp_path, "m;g;512;512;;;1;;0,031;;", head=HEAD.replace(",", ";")) == 0
    assert [at.seconds for at in read(tmp_path / "profiles" / "g_m.yaml").step] == [0.031]


def test_request_takes_the_seconds_of_the_table(tmp_path: Path) -> None:
    made(tmp_path, *ROWS)
    cost = standalone_cost(Profiled("g", folder=tmp_path / "profiles"), Work("m", 1024, 1024, 30))
    assert cost.denoise_s + cost.other_s == pytest.approx(30 * 0.1 + 0.02 + 0.15)


@pytest.mark.parametrize(("rows", "absent"), [(ROWS[:8], None), (ROWS[:6], ["text_encode", "vae_decode"])])
def test_stage_without_a_time_is_stated_when_it_is_used(
    tmp_path: Path, rows: tuple[str, ...], absent: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, *rows)
    assert ("counted as 0 s" in capsys.readouterr().out) is (absent is not None)
    backend = Profiled("g", folder=tmp_path / "profiles")
    standalone_cost(backend, Work("m", 1024, 1024, 30))
    stated = [one.value for one in backend.assumptions() if "without a time of their own" in one.what]
    assert stated == ([] if absent is None else [absent])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("m,g,512,512,,,1,,,,", "row 1: expected step_s or total_s, one of the two"),
        ("m,g,512,512,,,1,,1,2,", "expected step_s or total_s, one of the two"),
        ("m,g,512,512,,,1,,,2,", "expected steps beside total_s"),
        ("m,g,512,512,,,1,,0.1,,vae_decode", "expected total_s, the seconds of vae_decode"),
        ("m,g,512,,,,1,,0.1,,", "expected width and height"),
        ("m,g,512,512,,,1,,0.1,,decode", "column stage: .*'step', 'text_encode'"),
        ("m,g,512,512,,,1,,-0.1,,", "column step_s: .*greater than 0"),
        ("m,g,512,512,,,1,2,0.1,,", "m on g: found no step on one GPU"),
        ("m,g/h,512,512,,,1,,0.1,,", "steps.csv: columns gpu and model: 'g/h' cannot name a profile file"),
        (",g,512,512,,,1,,0.1,,", "column model"),
    ],
)
def test_wrong_row_is_refused(tmp_path: Path, row: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, row) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error
    assert not (tmp_path / "profiles").exists()


def test_column_that_nothing_reads_is_refused_with_a_suggestion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tmp_path, "m,g,1,1,1", head="model,gpu,width,height,step") == 2
    assert "found the column 'step'; did you mean steps?" in capsys.readouterr().err
    assert made(tmp_path, "m,g,512,512,0.1,9", head="model,gpu,width,height,step_s,colour") == 2
    assert "found the column 'colour'; expected one of model, gpu" in capsys.readouterr().err


def test_milliseconds_among_seconds_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, "m,g,512,512,,,1,,0.03,,", "m,g,1024,1024,,,1,,90,,") == 2
    assert "expected seconds within 100 times of each other" in capsys.readouterr().err


def test_points_of_an_earlier_table_are_not_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, *ROWS) == 0
    before = (tmp_path / "profiles" / "g_m.yaml").read_bytes()
    assert made(tmp_path, *ROWS[1:5]) == 2
    message = r"found no row of gang_step .*gpus=2.* and 3 more, which .*g_m.yaml has; put all rows into one table"
    assert re.search(message, capsys.readouterr().err)
    assert (tmp_path / "profiles" / "g_m.yaml").read_bytes() == before
    assert made(tmp_path, *ROWS, "m,g,256,256,,,1,,0.01,,") == 0
