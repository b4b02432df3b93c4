"""The commands that compose a configuration: `run` and `validate`.

A user's error is one message on standard error and exit status 2; a traceback is a defect of ours. The simulator is
imported after the configuration was checked, so that an error need not wait for seconds of imports.
"""

import sys
import time
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.core.utils import env_override, setup_globals
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import check_folder, check_place, config_of, make_free_folder
from mezzotint.sim.run.config.compose import OURS, Files, compose_config, compose_resolved, resolve_config
from mezzotint.sim.run.config.options import (
    ConfigDir,
    ConfigName,
    ConfigPath,
    Overrides,
    Plugin,
    files_of,
    is_dated,
    prepare_overrides,
)
from mezzotint.sim.run.config.override import of_hydra
from mezzotint.sim.run.config.plugins import TARGET, allow_plugins
from mezzotint.sim.run.config.points import points
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.pool import run_calls
from mezzotint.sim.run.refusal import USAGE_ERROR, is_refused, refusal, warn
from mezzotint.sim.run.sweep_folder import FAILED, claim_sweep, record_failures

Ended = tuple[Literal["done", "kept", "failed"], str]
"""How a point of a sweep ended, and its line; ``kept`` is a run from before this command."""

VALIDATE = ("backend=live", "cluster=local", "trace.requests=40", "arrivals.rate_rpm=60")
"""Default overrides of a validation."""


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
    resolve: Annotated[bool, typer.Option(help="with --cfg: resolve every reference")] = False,
) -> int:
    """Run one simulation; with -m, every combination of comma-separated values.

    \b
      mezzotint run system=nirvana trace=file trace.path=ddb.parquet arrivals.speedup=2 run.dir=out
      mezzotint run -m system=vanilla,modm-throughput arrivals.rate_rpm=6,10,14 run.dir=sweep
      mezzotint run -m experiment=nirvana-table2 run.dir=table2      a paper's table or figure, with its own sweep

    `mezzotint list` prints the groups, and `mezzotint list GROUP` its choices.
    """
    words, files = prepare_overrides(overrides or []), files_of(config_dir, config_path, config_name)
    with allow_plugins(plugin or []):
        if cfg is not None:
            if multirun:
                raise ConfigError("-m: found beside --cfg, which prints one configuration; leave out -m")
            print(OmegaConf.to_yaml(compose_config(words, files), resolve=resolve), end="")
            return 0
        if multirun:
            return sweep(words, files)
        config = compose_config(words, files)
        plain = resolve_config(config)
        folder = Path(check(plain).run.dir)
        from mezzotint.sim.metrics.header import run_line
        from mezzotint.sim.metrics.summary import cautions
        from mezzotint.sim.run.simulate import simulate_into

        summary, folder, _ = simulate_into(plain, folder, fresh=is_dated(config))
        print(run_line(summary, plain, folder=str(folder)))
        for what, (value, source) in cautions(summary).items():
            warn(f"{what}: {value}; {source}")
        _warn_of_ignored_work(folder.parent, {folder.name: summary})
        return 0


def validate(
    overrides: Overrides = None,
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="the result of a benchmark of the real server, to compare with; again: a repetition of that run",
        ),
    ] = None,
    fit: Annotated[
        Literal["none", "scale", "quiet", "handling"],
        typer.Option(help="with --measured: what is fitted to the result"),
    ] = "none",
    config_dir: ConfigDir = None,
    config_path: ConfigPath = None,
    config_name: ConfigName = "config",
    plugin: Plugin = None,
) -> int:
    """Serve a small trace live, profile its models, simulate the same trace with that profile, and print the error.

    Takes what `mezzotint run` takes. By default it serves 40 synthetic requests on two tiny pipelines of the device at
    hand. With --measured it serves nothing: it replays the arrivals of a benchmark's result and compares the latencies.

    \b
      mezzotint validate system=nirvana
      mezzotint validate system=modm-throughput models=sd35l-sdxl arrivals.rate_rpm=10 run.dir=validation
      mezzotint validate --measured out/profile_export.jsonl --fit quiet models=z-image-turbo cluster=h100 run.dir=held
    """
    if measured:
        return _validate_measured(
            overrides or [], measured, fit, files_of(config_dir, config_path, config_name), plugin
        )
    if fit != "none":
        raise ConfigError(f"--fit {fit}: has no result to fit to; name one with --measured FILE")
    chosen = {word.partition("=")[0] for word in overrides or []}
    # Another trace or other arrivals bring their own length or rate.
    defaults = [word for word in VALIDATE if chosen.isdisjoint({word.partition("=")[0], word.partition(".")[0]})]
    words = prepare_overrides([*defaults, *(overrides or [])])
    with allow_plugins(plugin or []):
        config = compose_config(words, files_of(config_dir, config_path, config_name))
        plain = resolve_config(config)
        folder = Path(check(plain).run.dir)
        check_place(folder)
        for part in ("live", "simulated"):
            check_folder(folder / part)
        from mezzotint.sim.report.validation import validate

        print(validate(plain, make_free_folder(folder) if is_dated(config) else folder, progress=True))
        return 0


def _validate_measured(
    overrides: Sequence[str],
    measured: Sequence[Path],
    fit: Literal["none", "scale", "quiet", "handling"],
    files: Files,
    plugin: Sequence[str] | None,
) -> int:
    """Compare a simulation with measured results. Those that list requests bring the arrivals and the sizes."""
    from mezzotint.traces.sources.result import open_result

    results = [open_result(path) for path in measured]
    words = list(overrides)
    if not isinstance(results[0], dict):
        keys = {word.lstrip("+~").partition("=")[0] for word in words}
        if given := sorted(key for key in keys if key == "trace" or key.startswith("trace.")):
            raise ConfigError(f"{given[0]}: the arrivals come from {measured[0]}, which --measured names; leave it out")
        is_sized = results[0].table.column("width").null_count == 0
        sized = ["shapes=trace"] if is_sized and "shapes" not in keys else []
        words = ["trace=file", f"trace.path={measured[0].name}", *sized, *words]
    with allow_plugins(plugin or []):
        config = compose_config(prepare_overrides(words), files)
        plain = resolve_config(config)
        folder = Path(check(plain).run.dir)
        check_place(folder)
        check_folder(folder / "simulated")
        from mezzotint.sim.fit.measured.validate import validate_measured

        folder = make_free_folder(folder) if is_dated(config) else folder
        print(validate_measured(plain, results, measured, fit, folder))
        return 0


def sweep(words: Sequence[str], files: Files) -> int:
    """Simulate all points of a sweep. Returns the exit status: 2 if a point failed.

    Raises:
        ConfigError: there is no point, or one cannot be composed; no point has run then.
    """
    overrides = OverridesParser.create().parse_overrides(list(words))
    run_dir = next((each.value() for each in reversed(overrides) if each.key_or_group == "run.dir"), None)
    text = run_dir.text if isinstance(run_dir, QuotedString) else run_dir
    if run_dir is not None and (not isinstance(text, str) or "${" in text):
        raise ConfigError(f"run.dir: found {run_dir} beside -m, expected one folder; the points are numbered in it")
    folder = Path(text or make_free_folder(Path(f"results/runs/{time.strftime('%Y-%m-%d_%H-%M-%S')}_sweep")))
    command = [word for word in words if not (word.startswith("run.dir=") or of_hydra(word))]
    with claim_sweep(folder, ["-m", *command, *files.options()]) as claim:
        ended = _run_points([*words, *([] if text else [f"run.dir={folder}"])], files, folder, claim)
        from mezzotint.sim.metrics.run_files import read_summaries

        summaries = read_summaries(folder)
        _warn_of_cautions(summaries)
        _warn_of_ignored_work(folder, summaries)
        _warn_of_different_work(folder, summaries)
    if not ended:
        raise ConfigError(f"-m: found no point to run in {' '.join(words)}; give each swept key a value")
    if before := ended["kept"]:
        count = f"{before} point{'s' if before > 1 else ''}"
        compared = f"`mezzotint report {folder}` compares all"
        print(f"mezzotint: {count} of {folder} had been run before; {compared}", file=sys.stderr)
    if missing := ended["failed"]:
        count = f"{missing} point{'s' if missing > 1 else ''}"
        remedy = "the same command" if text else f"the same command with run.dir={folder}"
        kept = f"({folder / FAILED} has their messages)"
        print(f"mezzotint: {count} of {folder} failed {kept}; {remedy} runs what is missing", file=sys.stderr)
    return USAGE_ERROR if missing else 0


def _run_points(words: Sequence[str], files: Files, folder: Path, claim: Path) -> Counter[str]:
    """Compose all points of a sweep, run them, and print their lines in order, those of failed points as errors.

    The folder keeps the lines of failed points. A bar counts the points if standard error is a terminal. An OSError on
    printing is raised after the last point.

    Args:
        folder: the sweep's.
        claim: a folder that goes with the command, so that workers on other machines end.

    Returns:
        The number of points that are done, kept and failed.
    """
    found = points(words, files)
    shared = set.intersection(*map(set, found.overrides)) if len(found.overrides) > 1 else set[str]()
    all_words = [[*filter(of_hydra, words), *point] for point in found.overrides]
    configs: list[DictConfig | None] = []
    for each in all_words:  # before the first point runs; what files of the user's say now counts
        if files == OURS:
            compose_resolved(each)  # raises what its worker would
        configs.append(None if files == OURS else compose_config(each, files))
    calls = [
        partial(
            _run_point,
            each if config is None else config,
            point,
            [word for word in point if word not in shared],
            folder / str(number),
        )
        for number, (each, config, point) in enumerate(zip(all_words, configs, found.overrides, strict=True))
    ]
    ended, failures, unwritten = Counter[str](), list[str](), list[OSError]()
    run = run_calls(calls, found.jobs, found.launcher, options=found.options, folder=claim)
    # Worker processes inherit our path, and would search the working directory before it.
    with (
        env_override({"PYTHONSAFEPATH": "1"}),
        tqdm(total=len(calls), unit="run", desc=folder.name, disable=not sys.stderr.isatty()) as bar,
        closing(run) as outcomes,
    ):
        for end, line in outcomes:
            ended[end] += 1
            bar.update()
            stream = sys.stderr if end == "failed" else sys.stdout
            failures += [line] if end == "failed" else []
            try:
                if not unwritten:
                    tqdm.write(line, file=stream)
                    stream.flush()
            except OSError as error:
                unwritten.append(error)
    record_failures(folder, failures)
    if unwritten:
        raise unwritten[0]
    return ended


def _warn_of_cautions(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn once of each extrapolation and each cost that was not measured in the runs of a sweep."""
    from mezzotint.sim.metrics.summary import cautions

    found = [cautions(each) for each in summaries.values() if each["assumptions"] is not None]
    for what, (_, source) in sorted(ChainMap(*found).items()):
        runs = sum(what in each for each in found)
        warn(f"{what}: in {runs} of {len(found)} runs; {source}")


def _warn_of_ignored_work(folder: Path, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn once of each work that traces of files ask for and runs of ``folder`` do not serve.

    What a made-up trace asks for is no news.
    """
    from mezzotint.sim.metrics.header import ignored_work

    found = Counter[str]()
    for name, summary in summaries.items():
        if ignored := ignored_work(summary):
            config = config_of(folder / name)
            trace = config.get("trace") if isinstance(config, Mapping) else None
            found[ignored] += isinstance(trace, Mapping) and str(trace.get(TARGET)).endswith(".file.File")
    for ignored, runs in found.items():
        if runs:
            of = "" if len(summaries) == 1 else f"; in {runs} of {len(summaries)} runs"
            print(f"mezzotint: {ignored}{of}", file=sys.stderr)


def _warn_of_different_work(folder: Path, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn if the runs of a sweep do different work."""
    from mezzotint.sim.metrics.served import runs_by_images, served_models

    if groups := runs_by_images([(name, served_models(summary)) for name, summary in summaries.items()]):
        print(
            f"mezzotint: the runs of {folder} do different work, so their speed and cost cannot be compared:",
            *(f"  {work}: {', '.join(names)}" for work, names in groups),
            sep="\n",
            file=sys.stderr,
        )


def _run_point(
    config: Sequence[str] | DictConfig, overrides: Sequence[str], differing: Sequence[str], folder: Path
) -> Ended:
    """Run one point of a sweep, here or in a worker process; its line names the overrides that the points differ in.

    Args:
        config: its configuration, or all words that compose it from our files: a configuration takes a megabyte.
    """
    from mezzotint.sim.metrics.header import run_line
    from mezzotint.sim.run.shared_trace import shared_trace
    from mezzotint.sim.run.simulate import simulate_into

    setup_globals()  # registers Hydra's resolvers
    words = [word.lstrip("+") for word in overrides if not word.startswith("run.dir=")]
    try:
        plain = resolve_config(config) if isinstance(config, DictConfig) else compose_resolved(config)
        check(plain)  # before the folder is claimed, which may be named after the system
        summary, folder, kept = simulate_into(plain, folder, keep=True, load=shared_trace)
        named = (word.lstrip("+") for word in differing if not word.startswith(("system=", "run.dir=")))
        return "kept" if kept else "done", run_line(summary, plain, " ".join(named), str(folder))
    except Exception as error:
        if not is_refused(error):
            raise
        return "failed", refusal(error, f"{folder} ({' '.join(words)}): ")
