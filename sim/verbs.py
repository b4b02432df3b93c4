"""The verbs of the command line.

``run`` and ``validate`` hand their arguments to Hydra; the other verbs have options of their own. Whatever the
user got wrong is one message on standard error and exit status 2; a traceback is always a defect of ours.
What a verb needs is imported when it is known to be that verb, and what a run needs when its configuration holds: an
error is told before seconds of imports.
"""

import argparse
import json
import logging
import math
import os
import re
import sys
import time
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, QuotedString
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from backends.base import BackendError
from sim.commands import command_of, run_command
from sim.config.choices import groups, overview
from sim.config.hydra_node import MODE, guarded
from sim.config.override import readable
from sim.config.settings import check
from sim.config.theirs import at_hand
from sim.ending import end_workers, workers_end_with_us
from sim.errors import ConfigError, SimulationError
from sim.refusal import OUTPUT_GONE, USAGE_ERROR, refusal, refuse, warn
from sim.rundir import SUMMARY, check_folder, check_place, claimed, config_of, holds_run, unclaimed
from sim.sweep import claimed_sweep, counted, ended_points, failed, is_claimed, kept_points, mark_done, mark_failed
from traces.error import TraceError

REFUSED = (ConfigError, TraceError, BackendError, SimulationError)
"""What the user can put right; a SimulationError is a policy's, and the policies may be the user's own."""

VALUED = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p", "--cfg", "-c")
"""Hydra's options that take a value."""

ASKED = ("--info", "-i")
"""That which takes a value or none, for which an override after it would be taken."""

LOOKING = frozenset(("--cfg", "-c", "--info", "-i", "--hydra-help", "--version", "--resolve"))
"""Those of its options that run nothing."""

MAX_JOBS = 1024
"""Worker processes of a sweep; joblib takes the memory for all that it is told of, however few points there are."""

RUN_HELP = """usage: mezzotint run [-m] [--config-dir DIR] [--cfg job] [KEY=VALUE ...]

Run one simulation; with -m, every combination of comma-separated values.

  mezzotint run system=nirvana trace=file trace.path=ddb.parquet arrivals.speedup=2 run.dir=out
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
        if given[:1] == ["plan"]:
            return _planned(given[1:])
        if (words := command_of(given)) is not None:
            return run_command(words, given[len(words.split()) :])
        return _of_files(given)
    except REFUSED as error:
        return refuse(error)


def _of_files(given: Sequence[str]) -> int:
    """The verbs that have options of their own. Returns the exit status."""
    import backends.cli
    import sim.study.generation.command
    import sim.study.scale.command
    import sim.study.scorecard.command
    import sim.study.selector.command
    import traces.cli

    try:
        parser = argparse.ArgumentParser(
            prog="mezzotint", description="Replays text-to-image traffic through published serving designs."
        )
        parser.add_argument("--version", action="store_true", help="print the version and stop")
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verbs.add_parser("run", help="one simulation, or a sweep with -m", add_help=False)
        verbs.add_parser("list", help="what a run can be composed of, with a line on each choice", add_help=False)
        verbs.add_parser(
            "plan", help="plan rate: the highest within a latency limit; plan placement: of ControlNets", add_help=False
        )
        verbs.add_parser("validate", help="serve live, simulate the same, print the error", add_help=False)
        traces.cli.add_parser(verbs)
        sim.study.scorecard.command.add_parser(verbs)
        measured = backends.cli.add_parser(verbs)
        sim.study.selector.command.add_parser(measured)
        sim.study.generation.command.add_parser(measured)
        sim.study.scale.command.add_parser(measured)
        args = parser.parse_args(given)
        status: int = args.run(args)
        return status
    except ConfigError as error:
        return refuse(error)


def _planned(given: Sequence[str]) -> int:
    """What is searched for over runs of one configuration. Returns the exit status."""
    if given[:1] == ["placement"]:
        from sim.study.placement.command import find as place

        return place(given[1:])
    from sim.study.rate.command import find, parsed, usage

    if any(word in ("-h", "--help") for word in given):
        print(usage(), end="")
        return 0
    if given[:1] != ["rate"]:
        raise ConfigError(
            f"plan: found {given[0] if given else 'nothing'}, expected rate or placement, as in mezzotint plan rate"
        )
    asked = parsed(given[1:])

    def task(config: DictConfig) -> None:
        with _told(False):
            plain, folder = _resolved(config)
            check_place(folder)
            folder = unclaimed(folder) if _of_the_moment(config) else folder
            lines = find(asked, config, check(plain), folder, _data())
            print(*lines, sep="\n")

    return configured(asked.words, task, usage())


def configured(overrides: Sequence[str], task: Callable[[DictConfig], None], usage: str) -> int:
    """A verb whose configuration Hydra composes: ``run`` and ``validate``.

    Hydra would print an error of its own and exit with 1; it is asked to raise instead, so that its errors are
    told as ours are.
    """
    if any(word in ("-h", "--help") for word in overrides):
        print(usage, end="")
        return 0
    # Worker processes of a sweep take our path over, and else look in the working directory first of all.
    ours = {"HYDRA_FULL_ERROR": "1", "PYTHONSAFEPATH": "1"}
    others = {name: os.environ.get(name) for name in ours}
    os.environ |= ours
    composed: list[bool] = []

    def noted(config: DictConfig) -> None:
        composed.append(True)
        task(config)

    before = sys.argv
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)  # Hydra's --info has them write on what may be closed by then
    try:
        sys.argv = ["mezzotint", *_arranged(overrides)]
        _refuse_no_choice(overrides)
        _refuse_no_jobs(overrides)
        _refuse_mode(overrides)
        several = "-m" in overrides or "--multirun" in overrides
        if several and _is_look(overrides):
            raise ConfigError("-m: found beside --cfg or --info, which print one configuration; leave out -m")
        main = hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
        with guarded(), warnings.catch_warnings():
            # Of a primary file whose defaults lack _self_: it is composed as Hydra says, or refused in one line.
            warnings.filterwarnings("ignore", "In '.*': Defaults list is missing", UserWarning)
            if several and LOOKING.isdisjoint(overrides):
                workers_end_with_us()
                return _swept(main(task))
            main(task if several else noted)()
    except BrokenPipeError:
        raise
    except (*REFUSED, HydraException, OmegaConfBaseException, OSError, YAMLError) as error:
        return refuse(error)
    except BrokenProcessPool:
        lost = "a worker process was killed, perhaps for want of memory; the same command goes on where it stopped"
        return refuse(SimulationError(f"{lost}, hydra.launcher.n_jobs=1 takes the least"))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE_ERROR
    except (ValueError, TypeError, AttributeError) as error:
        if composed or "-m" in overrides or "--multirun" in overrides:
            raise
        return refuse(error)  # Hydra could not compose the configuration: system=[a], for one
    finally:
        sys.argv = before
        root.setLevel(level)
        root.handlers[:] = handlers
        for name, value in others.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return 0


def _is_look(words: Sequence[str]) -> bool:
    """Whether Hydra is asked to print a configuration and to run nothing."""
    return any(word.partition("=")[0] in ("--cfg", "-c", *ASKED) for word in words)


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
    before = ""
    rest = iter(words)
    for word in rest:
        if word == "--":
            continue  # an override is none the less read before Hydra sees it
        if word in VALUED:
            value = next(rest, None)
            if value is None:
                raise ConfigError(f"{word}: found nothing after it, expected its value; add one or leave {word} out")
            local = word in ("--config-path", "-cp") and "://" not in value
            options += [word, os.path.abspath(value) if local else value]
        else:
            if word.startswith("--experimental-rerun"):
                raise ConfigError("--experimental-rerun: a pickle can run anything; repeat a run from its config.yaml")
            of_before = before in ASKED and "=" not in word and not _is_option(word)
            options += ["all"] if before in ASKED and not of_before else []
            said = word if _is_option(word) or of_before else readable(word)
            chosen = options if _is_option(word) or of_before else overrides
            chosen.append(f"++{said}" if _of_a_part(word) else said)
        before = word
    options += ["all"] if before in ASKED else []
    return [*options, *overrides]


def _is_option(word: str) -> bool:
    """Whether Hydra's parser takes ``word`` for an option: with a blank in its name it does not."""
    return len(word) > 1 and word.startswith("-") and " " not in word.partition("=")[0]


def _of_a_part(word: str) -> bool:
    found = re.match(r"(\w+)\.[^=@]+=", word)
    return found is not None and found[1] in groups()


def _refuse_no_choice(words: Sequence[str]) -> None:
    """Hydra would name neither the group nor the way to choose nothing in it, and in a sweep only after it began."""
    for word in words:
        group, _, value = word.partition("=")
        if value and group in groups():
            read = OverridesParser.create().parse_override(readable(word))
            several = read.is_sweep_override() and not isinstance(read.value(), Glob)
            for one in read.sweep_iterator() if several else [read.value()]:
                if not all(isinstance(name, _NAMES) for name in (one if isinstance(one, list) else [one])):
                    raise ConfigError(
                        f"{group}: found {value}, expected one of its choices; ~{group} leaves out what may be"
                    )


_NAMES = (str, QuotedString, Glob, dict)
"""What can be said of a group: choices, or the settings of the one that is chosen."""


def _swept(run_all: Callable[[], None]) -> int:
    """Run all points of the sweep that ``sys.argv`` asks for; returns the exit status."""
    words = sys.argv[1:]
    named = [word for word in words if word.startswith("run.dir=")]
    value = OverridesParser.create().parse_override(named[-1]).value() if named else None
    if named and (not isinstance(value, str | QuotedString) or "${" in str(value)):
        run_all()  # a folder for each point: there is none to claim
        return 0
    text = value.text if isinstance(value, QuotedString) else value
    folder = Path(text) if text else unclaimed(Path(f"results/runs/{time.strftime('%Y-%m-%d_%H-%M-%S')}_sweep"))
    with claimed_sweep(folder, [word for word in words if not word.startswith(("run.dir=", "hydra."))]):
        sys.argv += [] if named else [f"run.dir={folder}"]
        try:
            with counted(folder, _points(words)):
                run_all()
        except KeyboardInterrupt:
            end_workers()  # before their folder is tidied
            raise
        missing, before, ended = failed(folder), kept_points(folder), ended_points(folder)
        from sim.record.folder import read_summaries

        summaries = read_summaries(folder)
        _warn_of_extrapolation(summaries)
        _tell_unlike(folder, summaries)
    if not ended:
        swept = " ".join(word for word in words if word not in ("-m", "--multirun"))
        raise ConfigError(f"-m: found no point to run in {swept}; give each swept key a value")
    if before:
        count = f"{before} point{'s' if before > 1 else ''}"
        compared = f"`mezzotint report {folder}` compares all"
        print(f"mezzotint: {count} of {folder} had been run before; {compared}", file=sys.stderr)
    if missing:
        count = f"{len(missing)} point{'s' if len(missing) > 1 else ''}"
        again_ = "the same command" if named else f"the same command with run.dir={folder}"
        print(f"mezzotint: {count} of {folder} failed; {again_} runs what is missing", file=sys.stderr)
    return USAGE_ERROR if missing else 0


def _warn_of_extrapolation(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn once of each extrapolation that runs of a sweep rest on, by the runs' summaries."""
    from sim.record.summary import extrapolations

    found = [extrapolations(said) for said in summaries.values() if said["assumptions"] is not None]
    for what, (_, source) in sorted(ChainMap(*found).items()):
        runs = sum(what in each for each in found)
        warn(f"{what}: in {runs} of {len(found)} runs; {source}")


def _tell_unlike(folder: Path, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Say that the runs of a sweep do unlike work, where they do."""
    from sim.study.served import served, unlike

    if groups := unlike([(name, served(said, {})) for name, said in summaries.items()]):
        print(
            f"mezzotint: the runs of {folder} do unlike work, so their speed and cost cannot be compared:",
            *(f"  {work}: {', '.join(names)}" for work, names in groups),
            sep="\n",
            file=sys.stderr,
        )


def _points(words: Sequence[str]) -> int | None:
    """How many points the sweep has; None where an experiment brings a sweep of its own, or Hydra looks for choices."""
    overrides = [word for word in words if not _is_option(word)]
    parsed = OverridesParser.create().parse_overrides(overrides)
    if any(each.key_or_group == "experiment" or isinstance(each.value(), Glob) for each in parsed):
        return None
    return math.prod(len(list(each.sweep_string_iterator())) for each in parsed if each.is_sweep_override())


def _refuse_no_jobs(words: Sequence[str]) -> None:
    """Refuse a number of processes at which joblib fails or never starts, before Hydra composes the whole sweep."""
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key == "hydra.launcher.n_jobs" and value not in {"-1", *map(str, range(1, MAX_JOBS + 1))}:
            raise ConfigError(
                f"{key}: found {value}, expected 1 to {MAX_JOBS} processes at a time, or -1 for all cores"
            )


def _refuse_mode(words: Sequence[str]) -> None:
    """A sweep that we do not know of would write where another one may be writing."""
    for word in words:
        if word.lstrip("+~").partition("=")[0] == MODE:
            raise ConfigError(f"{MODE}: found {word!r}; leave it out, -m alone says that a run is a sweep")


def job(config: DictConfig) -> None:
    """One simulation of a run or of a sweep: what Hydra calls, here or in a worker process."""
    several = HydraConfig.get().mode is RunMode.MULTIRUN
    with _told(several):
        plain, folder = _resolved(config)
        from sim.record.summary import extrapolations
        from sim.run import again, save, simulate
        from sim.study.identity import flatten
        from sim.study.served import served

        with _classes(plain), claimed(folder, fresh=not several and _of_the_moment(config)) as claim:
            kept = several and holds_run(folder)
            if kept:
                if config_of(folder) != again(plain):
                    raise ConfigError(f"run.dir: {folder} holds a run of another sweep; remove it or name another")
                said = json.loads((folder / SUMMARY).read_bytes())
            else:
                outcome = simulate(plain, progress=not several)
                save(outcome, claim)
                said = outcome.summary
        _say(
            f"{said['system']}{_chosen(several)}: "
            f"{said['requests']['completed']} of {said['requests']['arrived']} requests completed, "
            f"{said['throughput_rpm'] or float('nan'):.2f} per minute, p50 {_seconds(said['latency_s']['p50'])}, "
            f"p95 {_seconds(said['latency_s']['p95'])}, p99 {_seconds(said['latency_s']['p99'])}"
            f"{_late(said['slo'])}{_unstable(said['backlog'])}; "
            f"{' + '.join(map(str, served(said, flatten(plain))))} -> {claim.folder}",
            several,
            kept=kept,
        )
        if not several:
            for what, (value, source) in extrapolations(said).items():
                warn(f"{what}: {value}; {source}")


def validation(config: DictConfig) -> None:
    """One validation: serve live, profile, simulate the same, print the error."""
    from sim.study.validate import validate

    several = HydraConfig.get().mode is RunMode.MULTIRUN
    with _told(several):
        plain, folder = _resolved(config)
        check_place(folder)
        for part in ("live", "simulated"):
            check_folder(folder / part)
        folder = unclaimed(folder) if not several and _of_the_moment(config) else folder
        with _classes(plain):
            found = validate(plain, folder, progress=not several)
        _say("\n".join([found.table(), *map(str, found.files)]), several)


def _say(text: str, several: bool, *, kept: bool = False) -> None:
    """Print what a run found; a point of a sweep leaves it to the process that started the sweep."""
    hydra_config = HydraConfig.get()
    if several and is_claimed(Path(hydra_config.sweep.dir)):
        mark_done(Path(hydra_config.sweep.dir), hydra_config.job.num, text, kept=kept)
    else:
        print(text)


def _resolved(config: DictConfig) -> tuple[dict[str, Any], Path]:
    """The resolved configuration, and the directory of this run: of a sweep, one that Hydra numbered."""
    hydra_config = HydraConfig.get()
    resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    plain = {str(key): value for key, value in resolved.items()} if isinstance(resolved, dict) else {}
    several = hydra_config.mode is RunMode.MULTIRUN
    return plain, Path(hydra_config.runtime.output_dir if several else check(plain).run.dir)


def _of_the_moment(config: DictConfig) -> bool:
    """Whether the run directory is named after the time, so that it must be a new one."""
    return "${now:" in str(OmegaConf.to_container(config.run, resolve=False))


def _classes(plain: dict[str, Any]) -> AbstractContextManager[None]:
    """Classes of the user's may be imported from the working directory, unless the configuration came from there."""
    return at_hand(Path.cwd(), plain, _data())


def _data() -> Path | None:
    """The folder that the configuration lies in, if it is a run's."""
    sources = HydraConfig.get().runtime.config_sources
    data = [Path(source.path) for source in sources if source.provider == "main" and source.schema == "file"]
    return data[0] if data else None


@contextmanager
def _told(several: bool) -> Iterator[None]:
    """Refuse a run in our words alone, of which Hydra would add its own; in a sweep the other points still run."""
    try:
        yield
    except (*REFUSED, OmegaConfBaseException, OSError, MemoryError) as error:
        if not several:
            raise SystemExit(OUTPUT_GONE if isinstance(error, BrokenPipeError) else refuse(error)) from None
        hydra_config = HydraConfig.get()
        folder, number = Path(hydra_config.sweep.dir), hydra_config.job.num
        if not is_claimed(folder):
            raise
        chosen = " ".join(word.lstrip("+") for word in hydra_config.overrides.task if not word.startswith("run.dir="))
        mark_failed(folder, number, refusal(error, f"{folder / str(number)} ({chosen}): "))


def _chosen(several: bool) -> str:
    """What tells a point of a sweep from the others, beside its system: the overrides that it was given."""
    known = ("system=", "run.dir=", "hydra.")
    words = [word.lstrip("+") for word in HydraConfig.get().overrides.task] if several else []
    said = " ".join(word for word in words if not word.startswith(known))
    return f" ({said})" if said else ""


def _late(slo: dict[str, dict[str, float | None]]) -> str:
    """The share of the requests over each limit."""
    shares = {name: limit["violation_rate"] for name, limit in slo.items()}
    said = ", ".join(f"{name} {rate:.1%}" for name, rate in shares.items() if rate is not None)
    return f", over SLO {said}" if said else ""


def _unstable(backlog: dict[str, Any]) -> str:
    """What has to be said beside the latencies of a run whose queue grew."""
    if not backlog["grows"]:
        return ""
    return (
        f"; UNSTABLE: the queue grew by {backlog['per_hour']:.0f} an hour to {backlog['at_last_arrival']} "
        "at the last arrival, so latencies depend on the length of the trace"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
