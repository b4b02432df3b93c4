"""The command line as a user meets it: its output and its refusals."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.run.commands import COMMANDS
from tests.conftest import ClosedPipe


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def mezzotint(*words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, as sweeps and plug-ins require."""
    command = [sys.executable, "-P", "-m", "mezzotint.sim.cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "HYDRA_FULL_ERROR": ""}, timeout=120
    )


SMALL = ("trace.requests=60", "arrivals.rate_rpm=9")
NIRVANA = ("system=nirvana", *SMALL)
LONG = "a" * 300


def test_run_writes_four_files_and_prints_their_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", *SMALL, "run.dir=out"]) == 0
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "cluster.parquet", "config.yaml", "requests.parquet", "summary.json",
    ]  # fmt: skip
    printed = capsys.readouterr()
    assert printed.out.startswith("vanilla: 60 of 60 requests completed")
    assert printed.out.rstrip().endswith("-> out")
    assert printed.err == ""
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out"], "Hydra leaves nothing of its own behind"


BEYOND = ("extrapolate=warn", "executor=continuous-batching", "executor.max_batch=4", "trace.requests=30")


def test_run_warns_once_per_kind_of_extrapolation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *BEYOND, "run.dir=out"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mezzotint: warning: batched shapes whose time of sd3.5-large on mi210 is extrapolated: ")
    assert line.endswith("(extrapolate=warn)")
    assert main(["run", *SMALL, "extrapolate=warn", "run.dir=inside"]) == 0
    assert capsys.readouterr().err == "", "nothing was extrapolated"


def test_sweep_warns_once_about_extrapolation_of_several_runs() -> None:
    done = mezzotint("run", "-m", *BEYOND, "executor.max_batch=2,4", "run.dir=sweep")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "on mi210 is extrapolated: in 2 of 2 runs; outside the measured grid" in line


def test_sweep_prints_short_lines_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    """Although its first point ends last."""
    words = ["trace.requests=4000,20,30", "arrivals.rate_rpm=9", "hydra.launcher.n_jobs=2", "run.dir=s"]
    assert main(["run", "-m", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("-> s/")[2] for line in lines] == ["0", "1", "2"]
    assert max(map(len, lines)) < 160


@pytest.mark.invariant(1)
@pytest.mark.parametrize("launcher", ["joblib", "ray", "submitit_local"])
def test_every_launcher_gives_the_bytes_of_single_runs(launcher: str) -> None:
    """It prints point by point, also for a sweep that was finished before; errors go to standard error."""
    if launcher != "joblib":
        pytest.importorskip(launcher.removesuffix("_local"))
    words = ("run", "-m", *NIRVANA, "seed=1,2,none", f"hydra/launcher={launcher}", "run.dir=sweep")
    points = [f"nirvana (seed={seed}): 60 of 60 requests" for seed in (1, 2)]
    error = "mezzotint: error: sweep/2 (system=nirvana trace.requests=60 arrivals.rate_rpm=9 seed=none): seed: input"
    kept = "(sweep/failed.txt has their messages)"
    failed = f"mezzotint: 1 point of sweep failed {kept}; the same command runs what is missing"
    before = "mezzotint: 2 points of sweep had been run before; `mezzotint report sweep` compares all"
    for finished_before in ([], [before]):
        done = mezzotint(*words)
        assert done.returncode == 2
        lines = done.stdout.splitlines()
        assert [line[: len(point)] for line, point in zip(lines, points, strict=True)] == points
        errors = done.stderr.splitlines()
        assert errors[0].startswith(error)
        assert errors[1:] == [*finished_before, failed]
        assert Path("sweep", "failed.txt").read_text() == f"{errors[0]}\n"
    for number, seed in enumerate((1, 2)):
        assert main(["run", *NIRVANA, f"seed={seed}", f"run.dir=one{number}"]) == 0
        for name in ("requests.parquet", "cluster.parquet", "config.yaml"):
            assert Path("sweep", str(number), name).read_bytes() == Path(f"one{number}", name).read_bytes()


def test_sweep_whose_reader_has_ended_runs_every_point_and_keeps_the_errors() -> None:
    with redirect_stdout(ClosedPipe()):
        assert main(["run", "-m", *SMALL, "seed=1,none,2", "hydra.launcher.n_jobs=1", "run.dir=sweep"]) == 141
    assert {path.parent.name for path in Path("sweep").glob("*/summary.json")} == {"0", "2"}
    assert "seed: input should be" in Path("sweep", "failed.txt").read_text()


def test_internal_error_is_raised_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its traceback only a message would ever be visible."""

    def broken(*_: object, **__: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr("mezzotint.sim.run.simulate.simulate", broken)
    with pytest.raises(ValueError, match="a fault"):
        main(["run", "trace.requests=5", "run.dir=out"])


POLICY = '''
from dataclasses import dataclass, field

from mezzotint.sim.core.request import DISCARDED


@dataclass
class LastComeFirstServed:
    """Serves the newest request first and gives up on what it cannot start within ``patience_s``."""

    patience_s: float
    waiting: list = field(default_factory=list)

    def bind(self, run):
        self.run = run

    def offer(self, request, now_s):
        worker = self.run.cluster.least_loaded()
        if worker is None:
            self.waiting.append(request)
        return worker

    def next(self, worker, now_s):
        while self.waiting:
            request = self.waiting.pop()
            if now_s - request.arrival_s <= self.patience_s:
                return request
            self.run.end(request, DISCARDED, "waited longer than its patience")
        return None

    def moved(self, worker, now_s):
        pass

    def __len__(self):
        return len(self.waiting)
'''


def test_user_policy_is_one_class_and_one_yaml_file() -> None:
    """A class in the working directory and a YAML file in the user's folder suffice: no file of the project changes."""
    Path("my_policies.py").write_text(POLICY)
    Path("my_conf/scheduler").mkdir(parents=True)
    Path("my_conf/scheduler/impatient.yaml").write_text("_target_: my_policies.LastComeFirstServed\n")
    words = ("trace.requests=300", "arrivals.rate_rpm=14", "scheduler=impatient", "run.dir=out")
    # a setting that the YAML does not list needs no +: the class declares it
    done = mezzotint("run", "--plugin", "my_policies", "--config-dir", "my_conf", *words, "scheduler.patience_s=100")
    assert done.returncode == 0, done.stderr
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["requests"]["discarded"] > 10
    assert (
        sum(summary["requests"][end] for end in ("completed", "discarded", "failed")) == summary["requests"]["arrived"]
    )
    rows = pq.read_table("out/requests.parquet").to_pandas()
    assert set(rows[rows.outcome == "discarded"].reason) == {"waited longer than its patience"}
    wrong = mezzotint("run", "--plugin", "my_policies", "--config-dir", "my_conf", *words, "scheduler.patience_s=long")
    assert wrong.returncode == 2
    assert "scheduler.patience_s: found 'long', expected float" in wrong.stderr


def test_user_system_combines_shipped_and_own_choices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)  # another test's
    Path("my_policies.py").write_text(POLICY)
    for group in ("scheduler", "system"):
        Path("my_conf", group).mkdir(parents=True)
    impatient = "# Newest first.\n_target_: my_policies.LastComeFirstServed\npatience_s: 100.0\n"
    Path("my_conf/scheduler/impatient.yaml").write_text(impatient)
    chosen = "defaults:\n  - vanilla\n  - override /scheduler: impatient\n  - _self_\n"
    Path("my_conf/system/hasty.yaml").write_text(f"# @package _global_\n{chosen}system: {{name: hasty}}\n")
    hasty = ["run", "--plugin", "my_policies", "--config-dir", "my_conf", *SMALL, "system=hasty"]
    assert main([*hasty, "run.dir=out"]) == 0
    assert capsys.readouterr().out.startswith("hasty: ")
    assert "LastComeFirstServed" in Path("out/config.yaml").read_text()
    assert main([*hasty, "scheduler=fcfs", "run.dir=back"]) == 0
    assert main(["run", *SMALL, "run.dir=vanilla"]) == 0
    assert Path("back/requests.parquet").read_bytes() == Path("vanilla/requests.parquet").read_bytes()
    capsys.readouterr()
    Path("my_conf/system/hasty.yaml").write_text(f"{chosen}name: hasty\n")
    assert main(hasty) == 2
    assert "the file of a system begins with the line: # @package _global_" in capsys.readouterr().err


def test_experiment_replays_a_user_trace() -> None:
    """What experiments need of the built-in trace goes with that trace."""
    assert main(["trace", "synth", "-o", "mine.parquet", "--requests", "90"]) == 0
    words = ["experiment=nirvana-figure15", "trace=file", "trace.path=mine.parquet", "preload=30", "search=exact"]
    assert main(["run", *words, "run.dir=out"]) == 0
    summary = json.loads(Path("out/summary.json").read_text())
    assert (summary["system"], summary["trace"]["requests"], summary["gpu"]["count"]) == ("nirvana", 90, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "models=null"], "models: found null, expected one of its choices"),
        (["run", "~system=[vanilla]"], "Config group override deletion value must be a string"),
        (["run", "a{"], "a{: cannot be read, expected KEY=VALUE, GROUP=CHOICE or ~GROUP"),
        (["plan"], "--target: found none"),
        (
            ["run", "--plugin", "broken", "scheduler._target_=broken.Policy"],
            "--plugin: broken cannot be imported (SyntaxError",
        ),
        (
            ["run", "scheduler.patience_s=3"],
            "scheduler.patience_s: mezzotint.sim.scheduling.fcfs.Fcfs takes no such setting",
        ),
        (["run", "cluster.cuont=3"], "cluster.cuont: there is no such key"),
        (
            ["run", "eviction=nosuch"],
            "eviction=nosuch: no such choice; expected one of fifo, lcbfu, lcbfu-artifact, lcbfu-plain, lfu",
        ),
        (
            ["run", "system=nirvna"],
            "system=nirvna: no such choice; did you mean nirvana? (`mezzotint list",
        ),
        (["run", "models=MDSLX"], "models=MDSLX: no such choice; `mezzotint list models` prints all"),
        (["run", "evictoin=lru"], "evictoin: is neither a group nor a setting; did you mean eviction?"),
        (["run", "cluster=H10"], "cluster=H10: no such choice; did you mean h100?"),
        (
            ["run", "cluster=pools", "cluster.pools=[{gpu:L40X,count:1}]"],
            "cluster.pools.0.gpu: found 'L40X'; did",
        ),
        (["list", "Evictoin"], "there is no group 'Evictoin'; did you mean eviction?"),
        (["rnu"], "rnu: is no command; did you mean run?"),
        (["trace", "imprt"], "trace: found imprt, did you mean import?"),
        (["run", "cluster=l20", "models=sdxl"], "no profile of sdxl on l20"),
        (["run", "shapes=trace"], "outside the measured grid"),
        (["run", "trace=file"], "trace.path: needs a value"),
        (["run", "backend.folder=nowhere"], "nowhere: not a folder of profiles"),
        (["run", "run.dir=/dev/null/out"], "run.dir: /dev/null/out cannot be used"),
        (["run", "-m", "seed=1,2", "hydra.launcher.n_jobs=99999"], "n_jobs: found 99999, expected 1 to 1024"),
        (
            ["run", "-m", "system=glob(zzz*)", "run.dir=out"],
            "-m: found no point to run in system=glob(zzz*) run.dir=out",
        ),
        (["run", "-m", "seed=1,2", "--cfg", "job"], "-m: found beside --cfg"),
        (["run", "-m", "seed=1,2", "run.dir=of-${seed}"], "run.dir: found of-${seed} beside -m, expected one folder"),
        (["run", "-m", "seed=1,2", "hydra.sweep.dir=out"], "hydra.sweep.dir: cannot be set"),
        (["run", "-m", "seed=1,2", "hydra.launcher.timeout=3"], "joblib takes no such setting; it takes n_jobs"),
        (["trace", "synth", "--requests", "10", "-o", LONG], "File name too long"),
        (["run", f"--config-dir={LONG}"], "File name too long"),
        (["run", "é=1"], "é=1: cannot be read as KEY=VALUE"),
        (
            ["run", "system=small-model", "scheduler._target_=mezzotint.sim.scheduling.hit_miss.HitMiss"],
            "allocation: found GPUs in the role small alone",
        ),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_user_error_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text("class Policy(:\n")
    small = ["trace.requests=60"] if words[0] == "run" and "trace=file" not in words else []
    assert main([*words, *small]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("mezzotint: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["nosuch"], ["run", "--nosuch"], ["report"]])
def test_unknown_command_exits_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(main(words))
    assert stop.value.code == 2


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mezzotint 0.")
    assert main(["run", "--cfg=job", "system=nirvana"]) == 0
    assert "selector" in capsys.readouterr().out
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(f"  {words} " in output for words in COMMANDS)
    for words in COMMANDS:
        assert main([*words.split(), "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: mezzotint {words}")


@pytest.mark.parametrize("name", ["a b/[x] é", "it's", "1e3"])
def test_run_directory_may_have_any_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names outside Hydra's grammar, and names that it would read as a list or a number, are paths."""
    assert main(["run", "trace.requests=5", f"run.dir={name}"]) == 0
    assert Path(name, "summary.json").is_file()


def test_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert main(["run", "trace.requests=5", "run.dir=~/one run"]) == 0
    assert (tmp_path / "home/one run/summary.json").is_file()


def test_code_in_the_working_directory_is_not_run() -> None:
    """Packages with our names, Hydra plug-ins, modules named as libraries; also in a sweep's processes."""
    for folder in ("hydra_plugins/bad", "hydra_plugins", "backends", "conf", "sim", "traces"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "__init__.py").write_text("open('harm', 'w')\n")
    for file in ("faiss.py", "joblib.py", "filelock.py"):
        Path(file).write_text("open('harm', 'w')\n")
    done = mezzotint("run", "-m", "trace.requests=5", "seed=1,2", "run.dir=sweep")
    assert done.returncode == 0, done.stderr
    assert Path("sweep/1/summary.json").is_file()
    assert not Path("harm").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [(["--help"], "trace import"), (["list", "similarity"], "clip-images"), (["run", "nonsense=1"], "nonsense")],
)
def test_listing_and_help_import_no_simulation(command: list[str], message: str) -> None:
    script = f"import sys; from mezzotint.sim.cli import main; main({command}); print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert message in done.stdout + done.stderr
    assert not {"scipy", "pandas", "matplotlib", "sklearn", "mezzotint.sim.engine"} & set(
        eval(done.stdout.splitlines()[-1])
    )


@pytest.mark.parametrize(
    ("words", "runs", "closed"), [(["run"], 1, ">&-"), (["run", "-m", "seed=1,2"], 2, "<&- >&- 2>&-")]
)
def test_closed_stream_does_not_change_the_run(words: list[str], runs: int, closed: str) -> None:
    done = _in_shell(f"exec {{}} {closed}", *words, *SMALL, "run.dir=out")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(Path("out").rglob("summary.json"))) == runs
    assert done.stdout.count("60 of 60") == (0 if ">&-" in closed.split() else runs)


@pytest.mark.parametrize("words", [["list"], ["run", *SMALL]])
def test_broken_pipe_ends_quietly(words: list[str]) -> None:
    """The command does its work and ends as one killed by SIGPIPE does."""
    done = _in_shell("( {}; echo $? >status ) | true", *words)
    assert (Path("status").read_text(), done.stderr) == ("141\n", "")
    assert bool(list(Path().rglob("summary.json"))) == ("run" in words)


def test_deleted_working_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["run", "run.dir=/tmp/out"]) == 2
    error = capsys.readouterr().err
    assert "the working directory no longer exists" in error
    assert error.count("\n") == 1


def test_virtual_memory_limit_too_low_for_libraries_is_refused() -> None:
    done = _in_shell("ulimit -v 400000; exec {}", "run")
    assert done.returncode == 2
    assert done.stderr.startswith("mezzotint: error: ulimit -v: found 400000 KiB of virtual memory")
    assert done.stderr.count("\n") == 1


def test_memory_error_is_one_line_per_sweep_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def simulate(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 15.3 MiB")

    monkeypatch.setattr("mezzotint.sim.run.simulate.simulate", simulate)
    assert main(["run", "-m", "seed=1,2", "hydra.launcher.n_jobs=1", *SMALL, "run.dir=out"]) == 2
    error = capsys.readouterr().err
    assert error.count("memory ran out (Unable to allocate 15.3 MiB); raise `ulimit -v`, free memory") == 2
    assert error.count("\n") == 3


def _in_shell(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which ``{}`` is the command."""
    command = shlex.join([sys.executable, "-P", "-m", "mezzotint.sim.cli", *words])
    return subprocess.run(["bash", "-c", script.format(command)], capture_output=True, text=True, timeout=120)


def test_sweep_names_the_work_of_a_file_that_runs_do_not_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text("arrival_s,width,height\n0,512,512\n9,512,512\n")
    assert main(["trace", "import", "table", f"{tmp_path}/log.csv", "-o", f"{tmp_path}/log.parquet"]) == 0
    words = ["run", "-m", "system=vanilla", "trace=file", f"trace.path={tmp_path}/log.parquet"]
    assert main([*words, "shapes=model,trace", "extrapolate=warn", f"run.dir={tmp_path}/sweep"]) == 0
    assert "log: its own work is not served: sizes (shapes=model); in 1 of 2 runs\n" in capsys.readouterr().err
