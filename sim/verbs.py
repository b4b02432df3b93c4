"""The verbs of the command line.

``run`` and ``validate`` hand their arguments to Hydra; the other verbs have options of their own. Whatever the
user got wrong is one message on standard error and exit status 2; a traceback is always a defect of ours.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import backends.cli
import conf
import sim.study.cli
import sim.study.generation.command
import sim.study.scorecard.command
import sim.study.selector.command
import traces.cli
from backends.base import BackendError
from sim.config.choices import groups, overview
from sim.config.settings import check
from sim.errors import ConfigError, SimulationError
from sim.refusal import USAGE_ERROR, refuse
from sim.run import SUMMARY, check_folder, simulate, write
from sim.study.runs import ReportError
from traces.error import TraceError

REFUSED = (ConfigError, TraceError, BackendError, ReportError, SimulationError)
"""What the user can put right; a SimulationError is a policy's, and the policies may be the user's own."""

VALUED = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p")
"""Hydra's options that take a value."""

RUN_HELP = """usage: mezzotint run [-m] [--config-dir DIR] [--cfg job] [KEY=VALUE ...]

Run one simulation; with -m, every combination of comma-separated values.

  mezzotint run system=nirvana trace=file trace.path=ddb.parquet arrivals.rate_rpm=10 run.dir=out
  mezzotint run -m system=vanilla,modm-throughput arrivals.rate_rpm=6,10,14 run.dir=sweep
  mezzotint run -m experiment=nirvana-table2 run.dir=table2      a paper's table or figure, with its own sweep

keys:    seed shapes extrapolate slo warmup preload sample_s run.dir   (--cfg job prints them all)
--config-dir DIR adds YAML files of your own to the groups; their classes are imported from the working directory.

groups, each a choice (`mezzotint list GROUP` prints them):
"""

VALIDATE = ("backend=live", "cluster=local", "trace.requests=40", "arrivals.rate_rpm=60")
"""What a validation runs unless told otherwise."""

VALIDATE_HELP = """usage: mezzotint validate [KEY=VALUE ...]

Serve a small trace live through a chosen system, profile the models that served it, simulate the same trace with the
fresh profile, and print the error. Takes what `mezzotint run` takes; unless told otherwise, 40 synthetic requests on
two tiny pipelines of the device at hand.

  mezzotint validate system=nirvana
  mezzotint validate system=modm-throughput models=sd35l-sdxl arrivals.rate_rpm=10 run.dir=validation
"""


def run(given: Sequence[str]) -> int:
    """Run one command. Returns the exit status: 0, or 2 for anything that the user can put right."""
    try:
        if given[:1] == ["run"]:
            return configured(given[1:], job, f"{RUN_HELP}{overview()}\n")
        if given[:1] == ["validate"]:
            chosen = {word.partition("=")[0] for word in given}
            # A choice of another trace or other arrivals brings its own length or rate.
            usual = [word for word in VALIDATE if chosen.isdisjoint(_said(word))]
            return configured([*usual, *given[1:]], validation, VALIDATE_HELP)
        parser = argparse.ArgumentParser(
            prog="mezzotint", description="Replays text-to-image traffic through published serving designs."
        )
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verbs.add_parser("run", help="one simulation, or a sweep with -m", add_help=False)
        verbs.add_parser("list", help="what a run can be composed of, with a line on each choice", add_help=False)
        verbs.add_parser("validate", help="serve live, simulate the same, print the error", add_help=False)
        traces.cli.add_parser(verbs)
        sim.study.cli.add_parser(verbs)
        sim.study.scorecard.command.add_parser(verbs)
        measured = backends.cli.add_parser(verbs)
        sim.study.selector.command.add_parser(measured)
        sim.study.generation.command.add_parser(measured)
        args = parser.parse_args(given)
        status: int = args.run(args)
        return status
    except REFUSED as error:
        return refuse(error)


def configured(overrides: Sequence[str], task: Callable[[DictConfig], None], usage: str) -> int:
    """A verb whose configuration Hydra composes: ``run`` and ``validate``.

    Hydra would print an error of its own and exit with 1; it is asked to raise instead, so that its errors are
    told as ours are.
    """
    if any(word in ("-h", "--help") for word in overrides):
        print(usage, end="")
        return 0
    _open_working_directory()
    os.environ["HYDRA_FULL_ERROR"] = "1"
    composed: list[bool] = []

    def noted(config: DictConfig) -> None:
        composed.append(True)
        task(config)

    before, sys.argv = sys.argv, ["mezzotint", *_arranged(overrides)]
    try:
        _refuse_null(overrides)
        _refuse_used_sweep(overrides)
        _refuse_no_jobs(overrides)
        several = "-m" in overrides or "--multirun" in overrides
        hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(task if several else noted)()
    except (*REFUSED, HydraException, OmegaConfBaseException, OSError) as error:
        return refuse(error)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE_ERROR
    except (ValueError, TypeError, AttributeError) as error:
        if composed or "-m" in overrides or "--multirun" in overrides:
            raise
        return refuse(error)  # Hydra could not compose the configuration: system=[a], for one
    finally:
        sys.argv = before
    return 0


def _open_working_directory() -> None:
    """Let classes of the user's be imported, behind ours: a folder of theirs may be called conf, sim or traces.

    Worker processes of a sweep take this path over before they import anything of ours.
    """
    for folder in (str(Path(conf.__file__).parents[1]), os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)


def _said(word: str) -> set[str]:
    """The key that an override sets, and its group."""
    key = word.partition("=")[0]
    return {key, key.partition(".")[0]}


def _arranged(words: Sequence[str]) -> list[str]:
    """Options before overrides, as Hydra's parser wants them, and a relative --config-path from where we stand.

    A setting of a part may be one that its file does not list, so it is added where it is absent: which settings
    there are is what the part's own class says, and it names them where one is misspelt.
    """
    options: list[str] = []
    overrides: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in VALUED:
            value = next(rest, "")
            local = word in ("--config-path", "-cp") and "://" not in value
            options += [word, os.path.abspath(value) if local else value]
        else:
            (options if word.startswith("-") else overrides).append(f"++{word}" if _of_a_part(word) else word)
    return [*options, *overrides]


def _of_a_part(word: str) -> bool:
    found = re.match(r"(\w+)\.[^=@]+=", word)
    return found is not None and found[1] in groups()


def _refuse_null(words: Sequence[str]) -> None:
    """Hydra would name neither the group nor the way to choose nothing in it."""
    for word in words:
        group, _, value = word.partition("=")
        if value == "null" and group in groups():
            raise ConfigError(f"{group}: found null, expected one of its choices; ~{group} leaves out what may be")


def _refuse_used_sweep(words: Sequence[str]) -> None:
    """A sweep numbers its runs from 0: in a folder that holds runs, old ones would pass for its own."""
    folders = [word.partition("=")[2] for word in words if word.startswith("run.dir=")]
    if ("-m" in words or "--multirun" in words) and folders and any(Path(folders[-1]).glob(f"*/{SUMMARY}")):
        raise ConfigError(f"run.dir: {folders[-1]} holds the runs of another sweep; remove it or name another folder")


def _refuse_no_jobs(words: Sequence[str]) -> None:
    """joblib would answer with a traceback, after Hydra composed the whole sweep."""
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key == "hydra.launcher.n_jobs" and value == "0":
            raise ConfigError(f"{key}: found 0, expected 1 or more processes at a time, or -1 for all cores")


def job(config: DictConfig) -> None:
    """One simulation of a run or of a sweep: what Hydra calls, here or in a worker process."""
    several = HydraConfig.get().mode is RunMode.MULTIRUN
    with _told(several):
        plain, folder = _resolved(config)
        check_folder(folder)
        outcome = simulate(plain, progress=not several)
        write(outcome, folder)
    said = outcome.summary
    print(
        f"{said['system']}: {said['requests']['completed']} of {said['requests']['arrived']} requests completed, "
        f"{said['throughput_rpm'] or float('nan'):.2f} per minute, p50 {_seconds(said['latency_s']['p50'])}, "
        f"p99 {_seconds(said['latency_s']['p99'])} -> {folder}"
    )


def validation(config: DictConfig) -> None:
    """One validation: serve live, profile, simulate the same, print the error."""
    from sim.study.validate import validate

    several = HydraConfig.get().mode is RunMode.MULTIRUN
    with _told(several):
        plain, folder = _resolved(config)
        check_folder(folder)
        found = validate(plain, folder, progress=not several)
    print(found.table())
    for file in found.files:
        print(file)


def _resolved(config: DictConfig) -> tuple[dict[str, Any], Path]:
    """The resolved configuration, and the directory of this run: of a sweep, one that Hydra numbered."""
    hydra_config = HydraConfig.get()
    resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    plain = {str(key): value for key, value in resolved.items()} if isinstance(resolved, dict) else {}
    several = hydra_config.mode is RunMode.MULTIRUN
    return plain, Path(hydra_config.runtime.output_dir if several else check(plain).run.dir)


@contextmanager
def _told(several: bool) -> Iterator[None]:
    """Refuse a single run in our words alone: Hydra, which names the job in a sweep, would add its own."""
    try:
        yield
    except (*REFUSED, OmegaConfBaseException) as error:
        if several:
            raise
        raise SystemExit(refuse(error)) from None


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
