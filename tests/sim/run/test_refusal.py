"""Every refusal, whatever it quotes, is one printable line and short enough to read."""

import contextlib
import io
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.refusal import MAX_CHARACTERS, USAGE_ERROR, refuse


def printed(error: Exception) -> str:
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        assert refuse(error) == USAGE_ERROR
    return err.getvalue()


@given(found=st.text() | st.text(min_size=1).map(lambda text: text * 5000))
def test_refusal_is_one_line(found: str) -> None:
    line = printed(ConfigError(f"key: found {found}, expected less; take less"))
    assert line.startswith("mezzotint: error: key: found")
    assert line.endswith("take less\n")
    assert line[:-1].isprintable()
    assert len(line) < MAX_CHARACTERS + 40


@given(value=st.sampled_from(["${", "${}", "${nothing}", "${a.${b}}", "${no:}", "${oc.env:THERE_IS_NO_SUCH_THING}"]))
def test_failed_interpolation_names_its_key(value: str) -> None:
    with pytest.raises(OmegaConfBaseException) as raised:
        OmegaConf.to_container(OmegaConf.create({"system": {"name": value}}), resolve=True)
    assert "system.name" in printed(raised.value)
    around = ConfigError()
    around.__cause__ = raised.value
    assert printed(around) == printed(raised.value), "Hydra's, around it, says nothing"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk_behind_stdout_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", full)
        patch.setattr("sys.stderr", stderr)
        assert main(["list"]) == USAGE_ERROR
    assert "cannot be written (No space left on device)" in stderr.getvalue()
    assert stderr.getvalue().count("\n") == 1


@pytest.mark.parametrize("levels", [150, 900, 100_000])
def test_deeply_nested_input_is_one_line(
    levels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a trace's metadata, a run's configuration and summary, a group of the user's, and a word."""
    monkeypatch.chdir(tmp_path)
    small, deep = ["run", "trace.requests=40", "arrivals.rate_rpm=9"], "[" * levels + "]" * levels
    assert main([*small, "run.dir=one"]) == 0
    assert main(["trace", "synth", "-o", "t.parquet", "--requests", "40"]) == 0
    table = pq.read_table("t.parquet")
    about = table.schema.metadata[b"mezzotint"].decode()
    assert '"notes": {' in about
    notes = about.replace('"notes": {', f'"notes": {{"deep": {deep}, ')
    pq.write_table(table.replace_schema_metadata({b"mezzotint": notes.encode()}), "deep.parquet")
    for name, file in (("config", "config.yaml"), ("summary", "summary.json")):
        shutil.copytree("one", name)
        path = Path(name, file)
        path.write_text(re.sub(r'^(\W*seed"?: ).*?(,?)$', rf"\g<1>{deep}\2", path.read_text(), flags=re.MULTILINE))
    Path("mine/eviction").mkdir(parents=True)
    Path("mine/eviction/deep.yaml").write_text(f"_target_: mezzotint.sim.cache.eviction.Fifo\nx: {deep}\n")
    own = ["system=nirvana", "eviction=deep", "--config-dir", "mine"] if levels < 1000 else ["seed=[", "run.dir=no"]
    capsys.readouterr()
    for words in (
        ["run", "trace=file", "trace.path=deep.parquet", "run.dir=no"],
        ["trace", "describe", "deep.parquet"],
        ["run", "--config-path", "config", "--config-name", "config", "run.dir=no"],
        ["report", "config"],
        ["run", "system=nirvana", "hits=declared", "hits.of_run=summary", "run.dir=no"],
        [*small, f"seed={deep}", "run.dir=no"],
        [*small, "seed=" + "${a." * levels + "}" * levels, "run.dir=no"],
        [*small, *own, "run.dir=no"],
    ):
        assert main(words) == 2, words[:4]
        error = capsys.readouterr().err
        assert error.startswith("mezzotint: error: ")
        assert error.count("\n") == 1
        assert len(error) < 1500


@pytest.mark.parametrize(("content", "found"), [("", "nothing"), ("- 1", "'[1]'")])
def test_configuration_that_is_none_is_refused_in_plain_words(
    content: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(content)
    assert main(["run", "--config-path", str(tmp_path), "--config-name", "config", "run.dir=no"]) == 2
    assert f"found {found}, expected the configuration of a run" in capsys.readouterr().err
