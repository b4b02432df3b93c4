"""The life of a run directory and of a sweep's folder: whole or absent, one writer, no loss of the user's files."""

import errno
import io
import itertools
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.files.atomic import clear
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import (
    CONFIG,
    REQUESTS,
    SUMMARY,
    TIMELINE,
    check_folder,
    claim_folder,
    make_free_folder,
)
from mezzotint.sim.run.sweep_folder import claim_sweep, is_claimed

SMALL = ("trace.requests=40", "arrivals.rate_rpm=9")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def put(folder: Path, text: str, *more: str, **claim: bool) -> Path:
    """Write a directory as a run would, every file of which holds ``text``."""
    with claim_folder(folder, **claim) as place:
        (place.staging / SUMMARY).write_text(json.dumps({"schema": 1, "text": text}))
        for name in (CONFIG, REQUESTS, *more):
            (place.staging / name).write_text(text)
        place.publish()
    return place.folder


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_run_replaces_only_another_run(tmp_path: Path) -> None:
    out = put(tmp_path / "out", "one", TIMELINE)
    (out / "report.html").write_text("page")
    put(out, "two")
    assert (out / CONFIG).read_text() == "two"
    assert names(out) == [CONFIG, "report.html", REQUESTS, SUMMARY], "no file of the run before"
    assert names(tmp_path) == ["out"]
    for there in (CONFIG, SUMMARY, "notes.txt"):
        mine = tmp_path / there.partition(".")[0]
        mine.mkdir()
        (mine / there).write_text("mine")
        with pytest.raises(ConfigError, match="holds what is not a run's"):
            put(mine, "theirs")
        with pytest.raises(ConfigError, match=rf"holds what is not a run's \({there}\)"):
            check_folder(mine)
        assert (mine / there).read_text() == "mine"
        assert names(mine) == [there]


def test_rewritten_working_directory_keeps_its_inode(tmp_path: Path) -> None:
    """A shell inside the folder would otherwise still see the removed files."""
    Path("here").mkdir()
    os.chdir("here")
    inode = os.stat(".").st_ino
    for text in ("one", "two"):
        put(Path("."), text)
        assert (tmp_path / "here" / CONFIG).read_text() == text
        assert names(Path(".")) == [CONFIG, REQUESTS, SUMMARY]
    assert os.stat(tmp_path / "here").st_ino == inode


def test_run_directory_has_one_writer(tmp_path: Path) -> None:
    """A new folder is numbered after those that others have filled or are writing into."""
    (tmp_path / "out-2").write_text("mine")
    with claim_folder(tmp_path / "out") as first:
        with pytest.raises(ConfigError, match="is being written by another run"):
            put(tmp_path / "out", "second")
        assert put(tmp_path / "out", "third", fresh=True) == tmp_path / "out-3"
        (first.staging / CONFIG).write_text("first")
        first.publish()
    assert names(tmp_path) == ["out", "out-2", "out-3"]
    assert [make_free_folder(tmp_path / "out").name for _ in range(2)] == ["out-4", "out-5"]
    assert make_free_folder(tmp_path / "not/yet/there").is_dir()


def test_failed_run_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claim_folder(tmp_path / "deep" / "er" / "out"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


@pytest.mark.parametrize("moment", range(8))
def test_killed_replacement_keeps_the_old_or_the_new_run(moment: int, tmp_path: Path) -> None:
    """The old run stays until the new one is whole, or until another process writes into the folder."""
    out = put(tmp_path / "out", "old")

    def killed() -> None:
        calls = itertools.count()
        for name in ("rename", "replace", "unlink"):
            real = getattr(os, name)

            def stopped(*given: Any, real: Callable[..., Any] = real) -> Any:
                return os._exit(9) if next(calls) == moment else real(*given)

            setattr(os, name, stopped)
        put(out, "new")

    writer = multiprocessing.get_context("fork").Process(target=killed)
    writer.start()
    writer.join()
    assert writer.exitcode == 9
    for _ in range(2):
        if (out / SUMMARY).exists():
            text = json.loads((out / SUMMARY).read_text())["text"]
            assert [(out / name).read_text() for name in (CONFIG, REQUESTS)] == [text] * 2
        clear(out)
    assert names(out) == [CONFIG, REQUESTS, SUMMARY]


def test_waiting_writers_take_turns(tmp_path: Path) -> None:
    def write(name: str) -> None:
        for number in range(20):
            put(tmp_path / "out", f"{name}{number}", wait=True)

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / CONFIG).read_text() == (tmp_path / "out" / REQUESTS).read_text()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])  # an NFS, a FUSE, a Lustre mount
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_file_system_without_locks_is_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refused)
    for text in ("one", "two"):
        put(tmp_path / "out", text)
    with claim_sweep(tmp_path / "sweep", []) as claim:
        assert claim.is_dir()
    assert (tmp_path / "out" / CONFIG).read_text() == "two"
    assert names(tmp_path) == ["out"]


def test_run_directory_named_by_time_is_always_new() -> None:
    words = ["run", *SMALL, "run.dir=results/${now:%Y}"]
    assert [main(words) for _ in range(2)] == [0, 0]
    year = names(Path("results"))[0]
    assert names(Path("results")) == [year, f"{year}-2"]


@pytest.mark.parametrize("name", ["a/../../../../../escaped", "../up", "a/b", ".hidden", "\x1b[31mred", "two\nlines"])
def test_name_of_a_system_cannot_lead_out_of_the_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the default folder, in one that refers to the name, and in that of a sweep."""
    (tmp_path / "one/two/three").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one/two/three")
    for words in ([], ["run.dir=results/${system.name}"], ["-m", "seed=1,2", "run.dir=sweep"]):
        assert main(["run", *SMALL, f'system.name="{name}"', *words]) == 2
        error = capsys.readouterr().err
        assert "system.name: " in error
        assert "as run folders are named after it" in error
        assert "\x1b" not in error
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.relative_to(Path("sweep").resolve()).as_posix() for path in files) == [".sweep", "failed.txt"]


def test_run_does_not_replace_a_point_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    """The same configuration may run again, and no other run may join."""
    assert main(["run", "-m", *SMALL, "seed=1,2", "hydra.launcher.n_jobs=1", "run.dir=sweep"]) == 0
    before = {path: path.read_bytes() for path in Path("sweep").rglob("*") if path.is_file()}
    capsys.readouterr()
    for folder in ("sweep/0", "sweep/../sweep/0/", "sweep/2"):
        assert main(["run", *SMALL, "seed=7", f"run.dir={folder}"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "belongs to a sweep" in error
        assert "name a folder outside" in error
    assert main(["run", *SMALL, "seed=1", "run.dir=sweep/0"]) == 0
    after = {path: path.read_bytes() for path in Path("sweep").rglob("*") if path.is_file()}
    assert after.keys() == before.keys()
    assert {path for path in before if after[path] != before[path]} <= {Path("sweep/0", SUMMARY)}  # its wall clock


def test_path_that_looks_like_a_uri_is_a_path() -> None:
    assert main(["trace", "synth", "-o", "t:1.parquet", "--requests", "40"]) == 0
    assert main(["run", "trace=file", "trace.path=t:1.parquet", "run.dir=out-2024:01:01"]) == 0
    assert Path("out-2024:01:01", REQUESTS).is_file()


def test_finished_run_repeats_from_its_config_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its own config.yaml in any folder, into one that must be named, with the same bytes."""
    assert main(["trace", "synth", "-o", "t.parquet", "--requests", "40"]) == 0
    assert main(["run", "trace=file", "trace.path=t.parquet", "run.dir=one"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = ["run", "--config-path", "../one", "--config-name", "config"]
    assert main(again) == 2
    assert main([*again, "run.dir=two"]) == 0
    assert names(Path()) == ["two"]
    for name in (REQUESTS, CONFIG):
        assert Path("two", name).read_bytes() == Path("../one", name).read_bytes()


def test_sweep_resumes_with_the_missing_points(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "-m", *SMALL, "seed=1,2", "hydra.launcher.n_jobs=1", "run.dir=sweep"]
    assert main(words) == 0
    before = {n: Path(f"sweep/{n}/requests.parquet").read_bytes() for n in range(2)}
    for file in Path("sweep/1").iterdir():
        file.unlink()
    capsys.readouterr()
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.out.count("requests completed") == 2
    assert printed.err == "mezzotint: 1 point of sweep had been run before; `mezzotint report sweep` compares all\n"
    assert {n: Path(f"sweep/{n}/requests.parquet").read_bytes() for n in range(2)} == before
    assert main([*words, "warmup=1"]) == 2
    assert "sweep holds the runs of another sweep" in capsys.readouterr().err
    # The same words but another configuration: recognised by content, not by number.
    config = Path("sweep/1/config.yaml")
    config.write_text(config.read_text().replace("seed: 2", "seed: 4"))
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.err.count("holds a run of another configuration") == 1
    assert "seed=2" in printed.err
    assert "seed=1" in printed.out
    assert "seed=2" not in printed.out
    summary = Path("sweep/0/summary.json")
    summary.write_text(
        json.dumps({key: value for key, value in json.loads(summary.read_text()).items() if key != "slo"})
    )
    assert main(words) == 2
    assert "summary.json: key 'slo' is missing" in capsys.readouterr().err


def test_sweep_folder_has_one_sweep_at_a_time_and_only_its_own(tmp_path: Path) -> None:
    with claim_sweep(tmp_path / "sweep", ["seed=1,2"]):
        with (
            pytest.raises(ConfigError, match="another sweep is running in"),
            claim_sweep(tmp_path / "sweep", ["seed=1,2"]),
        ):
            pass
        (tmp_path / "sweep" / "0").mkdir()
    assert names(tmp_path) == [], "nothing was run, so nothing stays"
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds what is not a sweep's"), claim_sweep(tmp_path, []):
        pass
    assert names(tmp_path) == ["mine.txt"]


def test_file_is_refused_as_a_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for write in (check_folder, make_free_folder, lambda folder: put(folder, "theirs")):
        for folder in (tmp_path / "file", tmp_path / "file/out"):
            with pytest.raises(ConfigError, match=r"cannot be used \(.*file is no folder to write in\)"):
                write(folder)
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == ["file"]


def test_live_images_stay_in_the_run_directory(tmp_path: Path) -> None:
    """The files are in the folder before the run is moved there."""
    out = tmp_path / "out"
    with claim_folder(out) as place:
        (out / "images").mkdir(parents=True)
        (out / "images/0.png").write_text("drawn")
        (place.staging / SUMMARY).write_text(json.dumps({"schema": 1}))
        place.publish()
    assert names(out) == ["images", SUMMARY]
    assert names(tmp_path) == ["out"]


def test_empty_points_are_cleared_when_a_sweep_ends(tmp_path: Path) -> None:
    """In an empty folder, or one with a report, which stays."""
    folder = tmp_path / "sweep"
    (folder / "figures").mkdir(parents=True)
    (folder / "report.html").write_text("page")
    for _ in range(2):
        with claim_sweep(folder, ["seed=1,2,3"]):
            assert is_claimed(folder)
            (folder / "1").mkdir()
    assert names(folder) == [".sweep", "figures", "report.html"]


@pytest.mark.parametrize("terminal", [True, False])
def test_sweep_counts_its_points_on_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished and failed ones: after the last of them the bar is full."""
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", shown)
    assert main(["run", "-m", *SMALL, "seed=1,none,2", "hydra.launcher.n_jobs=1", "run.dir=sweep"]) == 2
    assert capsys.readouterr().out.count("40 of 40 requests completed") == 2
    assert "error: sweep/1 (" in shown.getvalue()
    assert ("3/3" in shown.getvalue()) == terminal
