"""Names that become files stay in their folder."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.files.names import inside, is_file_name
from mezzotint.sim.core.errors import ConfigError

OUTSIDE = ["../up", "a/../../up", "/etc", "a/b", "..", ".", "", ".hidden", "a\x00b", "a\x1b[31m", "a\nb", "n" * 300]


@pytest.mark.parametrize("name", OUTSIDE)
def test_name_that_leaves_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot name a file in"):
        inside(tmp_path, name, ConfigError)


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_accepted_name_is_a_direct_child(name: str) -> None:
    folder = Path("/somewhere/below")
    if is_file_name(name):
        assert (folder / name).resolve().parent == folder.resolve()
        assert name.isprintable()


@pytest.mark.parametrize("name", ["Qwen-Image 1024x1024", "modm (2)", "\u5927\u6a21\u578b", "a..b", "sd3.5-large"])
def test_ordinary_name_is_accepted(name: str) -> None:
    assert is_file_name(name)
