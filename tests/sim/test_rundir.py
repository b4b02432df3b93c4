"""The life of a run directory and of a sweep's folder: whole or absent, one writer, and nothing of the user's lost."""

import ctypes
import errno
import io
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conf.part import part_path
from sim.cli import main
from sim.errors import ConfigError
from sim.rundir import CONFIG, REQUESTS, SUMMARY, check_folder, claimed, unclaimed
from sim.sweep import claimed_sweep, counted, failed, is_claimed, mark_done, mark_failed

SMALL = ("trace.requests=40", "arrivals.rate_rpm=9")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def put(folder: Path, text: str, **claim: bool) -> Path:
    """A directory as a run would leave it, all of whose files say ``text``."""
    with claimed(folder, **claim) as place:
        (place.staging / SUMMARY).write_text(json.dumps({"schema": 1, "text": text}))
        for name in (CONFIG, REQUESTS):
            (place.staging / name).write_text(text)
        place.publish()
    return place.folder


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_run_replaces_a_run_and_nothing_else(tmp_path: Path) -> None:
    put(tmp_path / "out", "one")
    put(tmp_path / "out", "two")
    assert (tmp_path / "out" / CONFIG).read_text() == "two"
    assert names(tmp_path) == ["out"]
    for there in (CONFIG, SUMMARY, "notes.txt"):
        mine = tmp_path / there.partition(".")[0]
        mine.mkdir()
        (mine / there).write_text("mine")
        with pytest.raises(ConfigError, match="holds what is not a run's"):
            put(mine, "theirs")
        assert (mine / there).read_text() == "mine"
        assert names(mine) == [there]
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds what is not a run's \(notes.txt\)"):
        check_folder(tmp_path / "out")


def test_a_report_stays_with_its_folder(tmp_path: Path) -> None:
    out = put(tmp_path / "out", "one")
    (out / "report.html").write_text("page")
    (out / "figures").mkdir()
    (out / "figures" / "slo.svg").write_text("drawn")
    put(out, "two")
    assert names(out) == [CONFIG, "figures", "report.html", REQUESTS, SUMMARY]
    assert (out / "figures" / "slo.svg").read_text() == "drawn"


def test_the_folder_that_one_stands_in_stays_the_same_folder(tmp_path: Path) -> None:
    """A shell in it would otherwise see what is no longer there."""
    Path("here").mkdir()
    os.chdir("here")
    inode = os.stat(".").st_ino
    for text in ("one", "two"):
        put(Path("."), text)
        assert (tmp_path / "here" / CONFIG).read_text() == text
        assert names(Path(".")) == [CONFIG, REQUESTS, SUMMARY]
    assert os.stat(tmp_path / "here").st_ino == inode


def test_one_directory_has_one_writer(tmp_path: Path) -> None:
    with claimed(tmp_path / "out") as first:
        with pytest.raises(ConfigError, match="is being written by another run"):
            put(tmp_path / "out", "second")
        assert put(tmp_path / "out", "third", fresh=True) == tmp_path / "out-2"
        (first.staging / CONFIG).write_text("first")
        first.publish()
    assert names(tmp_path) == ["out", "out-2"]
    assert put(tmp_path / "out", "fourth", fresh=True) == tmp_path / "out-3"


def test_what_failed_leaves_nothing_not_even_the_parents_that_it_made(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claimed(tmp_path / "deep" / "er" / "out"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_reader_finds_one_run_whole_whoever_writes(tmp_path: Path) -> None:
    """Through a descriptor of the folder, as one who opened it once sees it: all files are of one run."""
    out, stop = put(tmp_path / "out", "0"), threading.Event()

    def write(name: str) -> None:
        for number in range(100):
            put(out, f"{name}{number}", wait=True)

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    looks = 0
    while any(writer.is_alive() for writer in writers) and not stop.is_set():
        folder = os.open(out, os.O_RDONLY)  # never absent
        try:
            with open(os.open(CONFIG, os.O_RDONLY, dir_fd=folder)) as file:
                config = file.read()
            with open(os.open(REQUESTS, os.O_RDONLY, dir_fd=folder)) as file:
                assert file.read() == config
            looks += 1
        except FileNotFoundError:
            pass  # the folder was replaced and removed while we looked
        finally:
            os.close(folder)
    for writer in writers:
        writer.join()
    assert looks > 0
    assert names(tmp_path) == ["out"]


HOLD = """
import sys, time
from pathlib import Path
from sim.rundir import claimed
with claimed(Path(sys.argv[1])) as place:
    (place.staging / "half").write_text("half")
    print("held", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_run_left_is_nobodys(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, "out"], stdout=subprocess.PIPE, env={**os.environ})
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(ConfigError, match="is being written by another run"):
        put(Path("out"), "mine")
    holder.kill()
    holder.wait()
    assert len(names(tmp_path)) == 1
    part_path(tmp_path).write_text("of another that was killed")
    put(Path("out"), "mine")
    assert names(tmp_path) == ["out"]


def test_a_directory_named_after_the_moment_is_a_new_one() -> None:
    words = ["run", *SMALL, "run.dir=results/${now:%Y}"]
    assert [main(words) for _ in range(2)] == [0, 0]
    year = names(Path("results"))[0]
    assert names(Path("results")) == [year, f"{year}-2"]


def test_a_name_that_is_a_uri_to_arrow_or_too_long_is_seen_before_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["trace", "synth", "-o", "t:1.parquet", "--requests", "40"]) == 0
    assert main(["run", "trace=file", "trace.path=t:1.parquet", "run.dir=out-2024:01:01"]) == 0
    assert main(["report", "out-2024:01:01"]) == 0
    capsys.readouterr()
    assert main(["run", *SMALL, f"run.dir={'x' * 300}"]) == 2
    assert "File name too long" in capsys.readouterr().err
    assert main(["trace", "synth", "-o", "x" * 300, "--requests", "40"]) == 2
    said = capsys.readouterr().err
    assert "File name too long" in said
    assert said.count("\n") == 1


def test_config_yaml_means_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["trace", "synth", "-o", "t.parquet", "--requests", "40"]) == 0
    (tmp_path / "profiles").mkdir()
    assert main(["run", "trace=file", "trace.path=t.parquet", "run.dir=one"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["run", "--config-path", "../one", "--config-name", "config", "run.dir=two"]) == 0
    assert Path("two/requests.parquet").read_bytes() == Path("../one/requests.parquet").read_bytes()
    assert Path("two/config.yaml").read_bytes() == Path("../one/config.yaml").read_bytes()


def test_a_sweep_goes_on_with_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "-m", *SMALL, "seed=1,2", "hydra.launcher.n_jobs=1", "run.dir=sweep"]
    assert main(words) == 0
    before = {n: Path(f"sweep/{n}/requests.parquet").read_bytes() for n in range(2)}
    for file in Path("sweep/1").iterdir():
        file.unlink()
    capsys.readouterr()
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out.count("requests completed") == 2
    assert said.err == "mezzotint: 1 point of sweep had been run before; `mezzotint report sweep` compares all\n"
    assert {n: Path(f"sweep/{n}/requests.parquet").read_bytes() for n in range(2)} == before
    assert main([*words, "warmup=1"]) == 2
    assert "sweep holds the runs of another sweep" in capsys.readouterr().err
    # The same words, but another configuration: recognised by what it says, not by its number.
    config = Path("sweep/1/config.yaml")
    config.write_text(config.read_text().replace("seed: 2", "seed: 4"))
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.err.count("holds a run of another configuration") == 1
    assert "seed=2" in said.err
    assert "seed=1" in said.out
    assert "seed=2" not in said.out


def test_a_folder_has_one_sweep_at_a_time_and_only_its_own(tmp_path: Path) -> None:
    with claimed_sweep(tmp_path / "sweep", ["seed=1,2"]):
        with (
            pytest.raises(ConfigError, match="another sweep is running in"),
            claimed_sweep(tmp_path / "sweep", ["seed=1,2"]),
        ):
            pass
        (tmp_path / "sweep" / "0").mkdir()
    assert names(tmp_path) == [], "nothing was run, so nothing stays"
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds what is not a sweep's"), claimed_sweep(tmp_path, []):
        pass
    assert names(tmp_path) == ["mine.txt"]


def test_a_new_folder_is_numbered_after_those_that_are_taken(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/out-2").write_text("mine")
    made = [unclaimed(tmp_path / "deep/out") for _ in range(3)]
    assert [folder.name for folder in made] == ["out", "out-3", "out-4"]
    assert unclaimed(tmp_path / "not/yet/there") == tmp_path / "not/yet/there"
    assert (tmp_path / "not/yet/there").is_dir()
    assert (tmp_path / "deep/out-2").read_text() == "mine"


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match=r"file cannot be used \(it is no folder\); name another one"):
        put(tmp_path / "file", "theirs")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(ConfigError, match=r"file/out cannot be used \(.*file is no folder to write in\)"):
        unclaimed(tmp_path / "file/out")
    assert names(tmp_path) == ["file"]


def test_what_a_run_made_beside_its_files_goes_with_its_folder(tmp_path: Path) -> None:
    """Images of a live backend, which lie there when it publishes over a run that is there."""
    out = put(tmp_path / "out", "one")
    with claimed(out) as place:
        (out / "images").mkdir()
        (out / "images/0.png").write_text("drawn")
        (place.staging / SUMMARY).write_text(json.dumps({"schema": 1}))
        place.publish()
    assert names(out) == ["images", SUMMARY], "and no file of the run before"
    assert (out / "images/0.png").read_text() == "drawn"
    assert names(tmp_path) == ["out"]


@dataclass
class System:
    """The C library of a system that cannot swap two folders, and says so with ``number``; None: knows no such call."""

    number: int | None

    def __call__(self, name: None, use_errno: bool) -> Any:
        return self if self.number is not None else object()

    def renameat2(self, *given: Any) -> int:
        assert self.number is not None
        ctypes.set_errno(self.number)
        return -1


@pytest.mark.parametrize("number", [None, errno.EINVAL, errno.ENOSYS, errno.EXDEV])
def test_a_run_replaces_a_run_where_the_system_cannot_swap_folders(
    number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = put(tmp_path / "out", "one")
    (out / "report.html").write_text("page")
    monkeypatch.setattr(ctypes, "CDLL", System(number))
    put(out, "two")
    assert (out / CONFIG).read_text() == "two"
    assert names(out) == [CONFIG, "report.html", REQUESTS, SUMMARY]
    assert names(tmp_path) == ["out"]


def test_a_run_that_cannot_be_put_in_its_place_leaves_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = put(tmp_path / "out", "one")
    monkeypatch.setattr(ctypes, "CDLL", System(errno.EACCES))
    with pytest.raises(ConfigError, match=r"run.dir: .*out cannot be used \(Permission denied\)"):
        put(out, "two")
    assert (out / CONFIG).read_text() == "one"
    assert names(tmp_path) == ["out"]


def test_a_folder_that_is_empty_or_holds_a_report_is_a_sweep_s(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    (folder / "figures").mkdir(parents=True)
    (folder / "report.html").write_text("page")
    with claimed_sweep(folder, ["seed=1,2"]):
        assert is_claimed(folder)
    assert (folder / "report.html").read_text() == "page"
    (tmp_path / "empty").mkdir()
    with claimed_sweep(tmp_path / "empty", []):
        pass
    assert names(tmp_path) == ["sweep"]


def test_points_that_failed_are_forgotten_when_the_sweep_goes_on(tmp_path: Path) -> None:
    folder, words = tmp_path / "sweep", ["seed=1,2,3"]
    with claimed_sweep(folder, words):
        for number in (2, 10, 1):
            mark_failed(folder, number, "why")
        assert failed(folder) == [1, 2, 10]
    assert failed(folder) == [1, 2, 10]
    with claimed_sweep(folder, words):
        assert failed(folder) == []


def test_a_terminal_is_shown_how_many_points_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished ones and failed ones, however fast they come: after the last of them the bar is full."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr("sim.sweep.LOOK_S", 0.001)
    (tmp_path / "sweep").mkdir()
    with counted(tmp_path / "sweep", 3):
        mark_done(tmp_path / "sweep", 0, "one", kept=False)
        mark_failed(tmp_path / "sweep", 1, "two")
        until = time.monotonic() + 20
        while "2/3" not in shown.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        assert "2/3" in shown.getvalue(), "while the sweep runs"
        mark_done(tmp_path / "sweep", 2, "three", kept=True)
    assert capsys.readouterr().out == "one\nthree\n"
    assert "two\n" in shown.getvalue()
    assert "sweep: 100%" in shown.getvalue()
    assert "3/3" in shown.getvalue()
    assert not [each for each in threading.enumerate() if "look" in each.name], "nobody looks any more"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with claimed_sweep(tmp_path / "again", []), counted(tmp_path / "again", 1):
        mark_done(tmp_path / "again", 0, "one", kept=False)
    assert sys.stderr.getvalue() == "", "no terminal"  # type: ignore[attr-defined]
