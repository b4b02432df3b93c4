"""The commands that compose a configuration: `run` and `validate`.

What the user got wrong is one message on standard error and exit status 2; a traceback is a defect of ours. What a run
needs is imported once its configuration holds: an error is told before seconds of imports.
"""

import sys
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from omegaconf import DictConfig, OmegaConf

from sim.core.errors import ConfigError
from sim.core.run_folder import check_folder, check_place, unclaimed
from sim.run.config.compose import Files, composed
from sim.run.config.options import (
    ConfigDir,
    ConfigName,
    ConfigPath,
    Overrides,
    Plugin,
    arranged,
    files_of,
    is_dated,
    resolved,
)
from sim.run.config.plugins import named
from sim.run.config.points import launch, points, whole
from sim.run.config.settings import check
from sim.run.refusal import USAGE_ERROR, is_refused, refusal, warn
from sim.run.sweep_folder import claimed_sweep, counted, finished_points, is_claimed, mark
from sim.run.termination import workers_end_with_us

VALIDATE = ("backend=live", "cluster=local", "trace.requests=40", "arrivals.rate_rpm=60")
"""What a validation runs unless told otherwise."""


def run(
    overrides: Overrides = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="run every combination of comma-separated values")
    ] = False,
    config_dir: ConfigDir = None,
    config_path: ConfigPath = None,
    config_name: ConfigName = "config",
    plugin: Plugin = None,
    cfg: Annotated[
        Literal["job"] | None, typer.Option("--cfg", "-c", help="print the configuration and run nothing")
    ] = None,
    resolve: Annotated[bool, typer.Option(help="with --cfg: with every reference in it resolved")] = False,
) -> int:
    """Run one simulation; with -m, every combination of comma-separated values.

    \b
      mezzotint run system=nirvana trace=file trace.path=ddb.parquet arrivals.speedup=2 run.dir=out
      mezzotint run -m system=vanilla,modm-throughput arrivals.rate_rpm=6,10,14 run.dir=sweep
      mezzotint run -m experiment=nirvana-table2 run.dir=table2      a paper's table or figure, with its own sweep

    `mezzotint list` prints the groups, and `mezzotint list GROUP` its choices.
    """
    words, files = arranged(overrides or []), files_of(config_dir, config_path, config_name)
    with named(plugin or []):
        if cfg is not None:
            if multirun:
                raise ConfigError("-m: found beside --cfg, which prints one configuration; leave out -m")
            print(OmegaConf.to_yaml(composed(words, files), resolve=resolve), end="")
            return 0
        if multirun:
            return sweep(point, words, files)
        config = composed(words, files)
        plain = resolved(config)
        folder = Path(check(plain).run.dir)
        from sim.metrics.summary import extrapolations  # seconds of imports, once the configuration holds
        from sim.run.simulate import simulated

        said, folder, _ = simulated(plain, folder, fresh=is_dated(config))
        print(_line(said, plain, folder))
        for what, (value, source) in extrapolations(said).items():
            warn(f"{what}: {value}; {source}")
        return 0


def validate(
    overrides: Overrides = None,
    multirun: Annotated[bool, typer.Option("--multirun", "-m", help="one validation for each combination")] = False,
    config_dir: ConfigDir = None,
    config_path: ConfigPath = None,
    config_name: ConfigName = "config",
    plugin: Plugin = None,
) -> int:
    """Serve a small trace live through a chosen system, profile the models that served it, simulate the same trace with
    the fresh profile, and print the error.

    Takes what `mezzotint run` takes; unless told otherwise, 40 synthetic requests on two tiny pipelines of the device
    at hand.

    \b
      mezzotint validate system=nirvana
      mezzotint validate system=modm-throughput models=sd35l-sdxl arrivals.rate_rpm=10 run.dir=validation
    """
    chosen = {word.partition("=")[0] for word in overrides or []}
    # A choice of another trace or other arrivals brings its own length or rate.
    usual = [word for word in VALIDATE if chosen.isdisjoint({word.partition("=")[0], word.partition(".")[0]})]
    words = arranged([*usual, *(overrides or [])])
    files = files_of(config_dir, config_path, config_name)
    with named(plugin or []):
        if multirun:
            return sweep(validation, words, files)
        config = composed(words, files)
        plain = resolved(config)
        print(_validated(plain, Path(check(plain).run.dir), fresh=is_dated(config), progress=True))
        return 0


def sweep(task: Callable[[DictConfig], None], words: Sequence[str], files: Files) -> int:
    """Run ``task`` on all points of a sweep. Returns the exit status: 2 where a point failed.

    Raises:
        ConfigError: there is no point, or one of them cannot be composed; none has run then.
    """
    read = OverridesParser.create().parse_overrides(list(words))
    run_dir = next((each.value() for each in reversed(read) if each.key_or_group == "run.dir"), None)
    text = run_dir.text if isinstance(run_dir, QuotedString) else run_dir
    if run_dir is not None and (not isinstance(text, str) or "${" in text):
        _launch(task, words, files)  # a folder for each point: there is none to claim
        return 0
    folder = Path(text or unclaimed(Path(f"results/runs/{time.strftime('%Y-%m-%d_%H-%M-%S')}_sweep")))
    said = [word for word in words if not word.startswith(("run.dir=", "hydra."))]
    with claimed_sweep(folder, ["-m", *said, *files.options()]):
        _launch(task, [*words, *([] if text else [f"run.dir={folder}"])], files, folder)
        ended = finished_points(folder)
        from sim.metrics.run_files import read_summaries

        summaries = read_summaries(folder)
        _warn_of_extrapolation(summaries)
        _tell_unlike(folder, summaries)
    if not ended:
        raise ConfigError(f"-m: found no point to run in {' '.join(words)}; give each swept key a value")
    if before := ended["kept"]:
        count = f"{before} point{'s' if before > 1 else ''}"
        compared = f"`mezzotint report {folder}` compares all"
        print(f"mezzotint: {count} of {folder} had been run before; {compared}", file=sys.stderr)
    if missing := ended["failed"]:
        count = f"{missing} point{'s' if missing > 1 else ''}"
        again_ = "the same command" if text else f"the same command with run.dir={folder}"
        print(f"mezzotint: {count} of {folder} failed; {again_} runs what is missing", file=sys.stderr)
    return USAGE_ERROR if missing else 0


def _launch(task: Callable[[DictConfig], None], words: Sequence[str], files: Files, folder: Path | None = None) -> None:
    """Compose all points of a sweep, then run them; their lines are printed as they end where ``folder`` is claimed."""
    config = whole(words, files)
    every = points(words, config, files)
    for each in every:
        composed(each, files)
    workers_end_with_us()
    with nullcontext() if folder is None else counted(folder, len(every)):
        launch(task, config, every, files)


def _warn_of_extrapolation(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn once of each extrapolation that runs of a sweep rest on."""
    from sim.metrics.summary import extrapolations

    found = [extrapolations(said) for said in summaries.values() if said["assumptions"] is not None]
    for what, (_, source) in sorted(ChainMap(*found).items()):
        runs = sum(what in each for each in found)
        warn(f"{what}: in {runs} of {len(found)} runs; {source}")


def _tell_unlike(folder: Path, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Say that the runs of a sweep do unlike work, where they do."""
    from sim.report.served import runs_by_images, served_models

    if groups := runs_by_images([(name, served_models(said, {})) for name, said in summaries.items()]):
        print(
            f"mezzotint: the runs of {folder} do unlike work, so their speed and cost cannot be compared:",
            *(f"  {work}: {', '.join(names)}" for work, names in groups),
            sep="\n",
            file=sys.stderr,
        )


def point(config: DictConfig) -> None:
    """Run one point of a sweep; a launcher calls it, here or in a worker process."""
    with _noted() as (folder, note):
        from sim.run.simulate import simulated

        plain = resolved(config)
        said, folder, kept = simulated(plain, folder, keep=True)
        note(_line(said, plain, folder, _overrides()), kept)


def validation(config: DictConfig) -> None:
    """Run one validation of a sweep; a launcher calls it, here or in a worker process."""
    with _noted() as (folder, note):
        note(_validated(resolved(config), folder), False)


@contextmanager
def _noted() -> Iterator[tuple[Path, Callable[[str, bool], None]]]:
    """Give the folder of this point, and what takes its line; note what refuses the point, and let the others run."""
    settings = HydraConfig.get()
    number, sweep_folder = settings.job.num, Path(settings.sweep.dir)
    folder, in_sweep = sweep_folder / str(settings.sweep.subdir), is_claimed(sweep_folder)
    try:
        yield (
            folder,
            lambda line, kept: (
                mark(sweep_folder, number, "kept" if kept else "done", line) if in_sweep else print(line)
            ),
        )
    except Exception as error:
        if not in_sweep or not is_refused(error):
            raise
        chosen = " ".join(word.lstrip("+") for word in settings.overrides.task if not word.startswith("run.dir="))
        mark(sweep_folder, number, "failed", refusal(error, f"{folder} ({chosen}): "))


def _validated(plain: dict[str, Any], folder: Path, *, fresh: bool = False, progress: bool = False) -> str:
    from sim.report.validation import validate

    check_place(folder)
    for part in ("live", "simulated"):
        check_folder(folder / part)
    return validate(plain, unclaimed(folder) if fresh else folder, progress=progress)


def _overrides() -> str:
    """Return what tells a point of a sweep from the others, beside its system: the overrides that it was given."""
    known = ("system=", "run.dir=", "hydra.")
    words = (word.lstrip("+") for word in HydraConfig.get().overrides.task)
    return " ".join(word for word in words if not word.startswith(known))


def _line(said: dict[str, Any], plain: dict[str, Any], folder: Path, overrides: str = "") -> str:
    """Return what a run found, in a line."""
    from sim.report.labels import flatten
    from sim.report.served import served_models

    return (
        f"{said['system']}{f' ({overrides})' if overrides else ''}: "
        f"{said['requests']['completed']} of {said['requests']['arrived']} requests completed, "
        f"{said['throughput_rpm'] or float('nan'):.2f} per minute, p50 {_seconds(said['latency_s']['p50'])}, "
        f"p95 {_seconds(said['latency_s']['p95'])}, p99 {_seconds(said['latency_s']['p99'])}"
        f"{_late(said['slo'])}{_unstable(said['backlog'])}; "
        f"{' + '.join(map(str, served_models(said, flatten(plain))))} -> {folder}"
    )


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
