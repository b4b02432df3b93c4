"""Files and folders appear whole or not at all; a failed write raises the error of the caller."""

from contextlib import suppress
from pathlib import Path

import pytest

from mezzotint.files.atomic import atomic_write, check_target, output_folder


class OwnError(Exception):
    """Error of the caller."""


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with suppress(KeyboardInterrupt), atomic_write(path, OwnError) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"
    with atomic_write(path, OwnError) as temporary:
        temporary.write_text("after")
        assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "after"


def test_full_disk_raises_the_error_of_the_caller(tmp_path: Path) -> None:
    message = r"out: cannot be written \(No space left on device\); free the disk"
    with pytest.raises(OwnError, match=message), atomic_write(tmp_path / "out", OwnError):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_unwritable_target_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(OwnError, match="is a folder"):
        check_target(tmp_path, OwnError)
    with pytest.raises(OwnError, match="does not exist"):
        check_target(tmp_path / "gone" / "file", OwnError)
    with pytest.raises(OwnError, match="is a device or a pipe"):
        check_target(Path("/dev/null"), OwnError)


def test_output_folder_is_made_with_its_parents_or_refused(tmp_path: Path) -> None:
    place = tmp_path / "a/b"
    output_folder(place, OwnError)
    output_folder(place, OwnError)
    assert place.is_dir()
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OwnError, match=f"^{file}: cannot be used .*; name another folder with -o$"):
        output_folder(file, OwnError)
