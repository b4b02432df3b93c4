"""`mezzotint trace` from the command line."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.commands import command_of, run_command
from mezzotint.traces import sources
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.trace import read

TextFile = Callable[..., Path]


def mezzotint(*words: str | Path) -> int:
    given = [str(word) for word in words]
    command = command_of(given)
    assert command is not None
    return run_command(command, given[len(command.split()) :])


def test_import_csv_maps_columns_and_prints_them(
    text_file: TextFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = text_file('t\ttext\n5\tan "open quote\n1\ta fox\n')
    out = tmp_path / "o.parquet"
    words = ["--map", "arrival_s=t", "--map", "prompt=text", "--delimiter", r"\t", "--no-quotes"]
    assert mezzotint("trace", "import", "csv", table, "-o", out, *words) == 0
    assert read(out).prompts().to_pylist() == ["a fox", 'an "open quote']
    assert "taken: t as arrival_s (seconds of the file's own clock); text as prompt" in capsys.readouterr().out


def test_synth_repeats_by_seed(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert mezzotint("trace", "synth", "-o", tmp_path / name, "--requests", "200", "--seed", seed) == 0
    a, b, c = (read(tmp_path / name) for name in "abc")
    assert len(a) == 200
    assert a.digest == b.digest != c.digest


def test_synth_takes_another_service_and_own_parameters(tmp_path: Path) -> None:
    made = ("trace", "synth", "--requests", "400", "-o")
    assert mezzotint(*made, tmp_path / "a", "--like", "gentd26") == 0
    assert mezzotint(*made, tmp_path / "b", "--like", "gentd26", "--set", "images=[[2, 1]]", "--rate-rpm", "5") == 0
    a, b = (read(tmp_path / name).table.to_pandas() for name in "ab")
    assert set(a.steps) > {30, 40}
    assert a.base_model.nunique() > 10
    assert set(a.images) == {1, 2, 4, 8}
    assert set(b.images) == {2}
    assert b.arrival_s.max() < a.arrival_s.max() / 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["synth", "-o", "o", "--set", "colour=3"], "--set colour=3: expected KEY=VALUE with a key among requests"),
        (["synth", "-o", "o", "--set", "steps=5"], "steps"),
        (["import", "csv", "-o", "o"], "Missing argument 'PATH'"),
        (["import", "diffusiondb", "t", "-o", "o", "--map", "a=b"], "No such option: --map"),
        (["import", ".Source", "t.csv", "-o", "o"], "found '.Source', which cannot be imported"),
        (["import", "diffusiondb", "t", "-o", "o", "--limit", "0"], "--limit"),
        (["import", "csv", "absent.csv", "-o", "o"], "absent.csv: no such file"),
        (["import", "csv", "t.csv", "-o", "."], "is a folder"),
        (["import", "csv", "t.csv", "-o", "none/o.parquet"], "the folder none does not exist"),
        (["synth", "-o", "o", "--requests", "0"], "requests=0"),
        (["synth", "-o", "o", "--rate-rpm", "1e300"], "synthetic trace: .*expected"),  # would be drawn for hours
        (["synth", "-o", "o", "--set", "users=" + "9" * 20], "synthetic trace: .*expected"),
        (["import", "gopher", "x", "-o", "o"], "gopher"),
        (["describe", "absent.csv"], "absent.csv: no such file"),
    ],
)
def test_invalid_trace_command_is_refused(
    words: list[str], message: str, text_file: TextFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_file("prompt\na\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TraceError, ConfigError), match=message) as caught:
        mezzotint("trace", *words)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["t.csv"]


def test_trace_commands_take_a_table_of_requests(
    text_file: TextFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = text_file("time,prompt,zone\n0,a,eu\n9,b,us\n")
    assert mezzotint("trace", "import", "table", table, "-o", tmp_path / "t.parquet") == 0
    capsys.readouterr()
    shown = []
    for path in (table, tmp_path / "t.parquet"):
        assert mezzotint("trace", "describe", "--json", path) == 0
        shown.append(capsys.readouterr())
    assert json.loads(shown[0].out)["digest"] == json.loads(shown[1].out)["digest"]
    assert "left out: zone" in shown[0].err
    assert mezzotint("trace", "pair", table, table, "-o", tmp_path / "p.parquet") == 0
    assert read(tmp_path / "p.parquet").arrival_s.tolist() == [0, 9]


MINE = """
from dataclasses import dataclass, field
import pyarrow as pa
from mezzotint.settings.ranges import Count
from mezzotint.traces.sources import Streamed
from mezzotint.traces.table.ingest import Batch, Reading
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin

@dataclass(kw_only=True)
class Gaps(Streamed):
    \"""Requests at the gaps that a file has.

    Args:
        path: the file.
        factor: what to multiply a gap by.
        limits: how much is read.
    \"""

    path: str
    factor: Count = 1
    limits: Limits = field(default_factory=Limits)

    def read(self, rng):
        gaps = pa.array([self.factor * float(line) for line in open(self.path)])
        return Reading(where=self.path, name="gaps", source="mine", batches=iter([Batch({}, gaps, Origin(self.path))]))
"""


def test_user_source_is_one_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_gaps.py").write_text(MINE)
    (tmp_path / "gaps.txt").write_text("1\n2\n")
    monkeypatch.chdir(tmp_path)
    assert mezzotint("trace", "import", "my_gaps.Gaps", "gaps.txt", "-o", "o", "--factor", "3") == 0
    assert read(tmp_path / "o").arrival_s.tolist() == [3.0, 6.0]
    assert mezzotint("trace", "import", "my_gaps.Gaps", "--help") == 0
    assert "what to multiply a gap by" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--factor"):
        mezzotint("trace", "import", "my_gaps.Gaps", "gaps.txt", "-o", "o", "--factor", "0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    assert mezzotint("trace", "import", "my-gaps", "gaps.txt", "-o", "o") == 0  # a file of the folder is found by name


def test_pair_never_overwrites_its_inputs(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for path in (first, second):
        assert mezzotint("trace", "synth", "-o", path, "--requests", "20") == 0
    before = first.read_bytes()
    with pytest.raises(TraceError, match=r"a\.parquet: is one of the traces to pair"):
        mezzotint("trace", "pair", first, second, "-o", first)
    assert first.read_bytes() == before


def test_pair_says_what_it_leaves_out_of_the_longer_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, requests in (("a", 20), ("b", 23)):
        assert mezzotint("trace", "synth", "-o", tmp_path / name, "--requests", str(requests), "--name", name) == 0
    assert mezzotint("trace", "pair", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c") == 0
    assert "left out: the last 3 of 23 requests of b; --repeat" in capsys.readouterr().out
    assert mezzotint("trace", "pair", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c", "--repeat") == 0
    assert "left out" not in capsys.readouterr().out
