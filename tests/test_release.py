"""What `python -m build` makes: the sdist and the wheel hold all that runs, and only that."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
import vl_convert

from mezzotint.sim.report.interactive import VEGA_LITE
from tests.conftest import REPOSITORY

FOLDERS = ("backends", "conf", "sim", "traces")
"""The parts at the top, installed below ``mezzotint``."""

TOP = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "NOTICE", "README.md", "pyproject.toml", "setup.py"}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def files() -> Iterator[str]:
    """Return the files of the repository that git tracks or would, without the links to the parts."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return (name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).is_file())


SOURCES = {name for name in files() if name.split("/")[0] in (*FOLDERS, "mezzotint")}


def build(kind: str, source: Path, target: Path) -> Path:
    """Build an ``sdist`` or a ``wheel`` of the folder ``source``."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", target, source]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(command, cwd=target.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files, as in a clone after `make links`, with things around them that no release has."""
    folder = tmp_path_factory.mktemp("clone")
    for name in SOURCES | TOP:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    for part in FOLDERS:
        (folder / "mezzotint" / part).symlink_to(f"../{part}")
    for name in ("tests/test_one.py", "results/runs/one/summary.json", "sim/__pycache__/cli.cpython-311.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.fixture(scope="module")
def sdist(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", clone, tmp_path_factory.mktemp("made") / "sdist")


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", clone, tmp_path_factory.mktemp("made") / "wheel")


def test_wheel_has_every_file_of_the_parts_below_one_name_and_no_other(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    about = {name for name in names if name.split("/")[0] == f"mezzotint-{PROJECT['version']}.dist-info"}
    assert names - about == {name if name.startswith("mezzotint/") else f"mezzotint/{name}" for name in SOURCES}
    assert {name.partition("/licenses/")[2] for name in about if "/licenses/" in name} == set(PROJECT["license-files"])


def test_sdist_has_the_sources_and_what_the_build_reads(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = [member for member in archive if not member.isdir()]
    assert all(member.isfile() for member in members), "a link"
    names = {member.name.partition("/")[2] for member in members}
    made = {name for name in names if name in ("PKG-INFO", "setup.cfg") or name.startswith("mezzotint.egg-info/")}
    assert names - made == SOURCES | TOP


def test_sdist_builds_the_wheel_of_the_clone(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert build("wheel", unpacked, tmp_path / "wheel").read_bytes() == wheel.read_bytes()


def test_notices_name_the_releases_of_the_bundled_javascript() -> None:
    notices = (REPOSITORY / "sim" / "report" / "notices.txt").read_text(encoding="utf-8")
    named = dict(re.findall(r"^(vega\S*) (\d\S+)$", notices, re.MULTILINE))
    assert named["vega"] == vl_convert.get_vega_version()
    assert named["vega-embed"] == vl_convert.get_vega_embed_version()
    assert f'"{named["vega-lite"]}"' in vl_convert.javascript_bundle(vl_version=VEGA_LITE)
