"""Every refusal, whatever it quotes, is one printable line and short enough to read."""

import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sim.cli import main
from sim.core.errors import ConfigError
from sim.run.refusal import MAX_CHARACTERS, USAGE_ERROR, refuse


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
