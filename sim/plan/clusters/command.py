"""`mezzotint plan`: the cheapest clusters, over designs and kinds of GPUs, that meet latency targets."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from mezzotint.files.atomic import atomic_files, check_target, output_folder
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.options import ConfigDir, Overrides, Plugin, RunsOn, files_of
from mezzotint.sim.run.config.plugins import named
from mezzotint.sim.run.pool import Launcher, check_launcher
from mezzotint.traces.arrivals.base import MAX_RPM

if TYPE_CHECKING:
    from mezzotint.sim.metrics.cost import Price
    from mezzotint.sim.plan.clusters.answer import Plan
    from mezzotint.sim.plan.clusters.target import Target

RUNS = Path("results/runs/plan")
"""Folder of the kept runs of all plans, unless --runs names another."""

OUT = Path("results/plan")

STEADY_ROWS = 100_000
"""Requests of a longer file that a steady load replays: percentiles need no more, and caches search them at speed."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a plan, as of the command line (`plan`)."""

    target: Sequence[str]
    model: str
    gpu: Sequence[str] = ()
    design: Sequence[str] = ()
    trace: Path | None = None
    rate_rpm: float | None = None
    prices: Path | None = None
    min_quality: float | None = None
    max_gpus: int = 256
    rank: int = 5
    replications: int | None = None
    jobs: int = 1
    launcher: Launcher = "joblib"
    runs: Path = RUNS
    overrides: Sequence[str] = ()
    config_dir: Path | None = None
    profiles: Path | None = None
    plugin: Sequence[str] = field(default_factory=list)


def plan(
    overrides: Overrides = None,
    target: Annotated[
        list[str] | None,
        Option(
            metavar="KEY<VALUE", help='what to meet: "p95<10s", "over 2x<5%", any key of summary.json; may be repeated'
        ),
    ] = None,
    model: Annotated[str, Option(help="the model of an image in full, or a choice of models=")] = "",
    gpu: Annotated[
        list[str] | None,
        Option(
            metavar="KIND",
            help="a kind of GPU (h100: all of its forms); may be repeated",
            show_default="all that have a profile",
        ),
    ] = None,
    design: Annotated[
        list[str] | None,
        Option(
            metavar='"SYSTEM [KEY=VALUE,...]"',
            help="a design, with settings of its own; each of several values is a candidate; may be repeated",
            show_default="vanilla, batch-server, nirvana, modm-quality, modm-throughput",
        ),
    ] = None,
    rate_rpm: Annotated[
        float | None,
        Option(
            min=1e-6,
            max=MAX_RPM,
            metavar="RPM",
            help="steady Poisson arrivals at this rate, say the peak's",
            show_default="the file's own times",
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        Option(metavar="FILE", help="YAML of US$ per GPU-hour by kind", show_default="conf/data/gpu-prices.yaml"),
    ] = None,
    min_quality: Annotated[
        float | None, Option(min=0, max=1, help="lowest mean quality, 1 being the model's in full")
    ] = None,
    max_gpus: Annotated[int, Option(min=1, max=10_000, help="largest cluster")] = 256,
    rank: Annotated[int, Option(min=1, max=50, help="number of clusters to rank")] = 5,
    replications: Annotated[
        int | None,
        Option(min=1, max=1000, show_default="6; 1 with the file's own times", help="most seeds of a cluster"),
    ] = None,
    jobs: Annotated[int, Option(min=1, help="worker processes")] = 1,
    launcher: RunsOn = "joblib",
    output: Annotated[Path, Option("-o", "--output", metavar="DIR", help="folder of the answer")] = OUT,
    runs: Annotated[Path, Option(metavar="DIR", help="folder of the runs, which are kept")] = RUNS,
    profiles: Annotated[Path | None, Option(metavar="DIR", help="a folder of more profiles")] = None,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> int:
    """Find the cheapest clusters that meet latency targets, over designs and kinds of GPUs. Writes plan.html, plan.json
    and plan.png. Every run is kept, so an interrupted plan goes on with the same command. Status 1: no cluster meets
    the targets; the page says what binds.

    \b
      mezzotint plan log.csv --model sdxl --gpu l40s --gpu h100 --rate-rpm 20 --target "p95<10s"
      mezzotint plan --model sd3.5-large --gpu a40 --rate-rpm 20 --target "over 2x<5%"

    Raises:
        ConfigError: an option or the trace cannot be used.
    """
    from mezzotint.sim.plan.clusters.page import sentence, table_lines

    words, trace = separated(overrides or [])
    options = Options(
        target or [], model, gpu or [], design or [], trace, rate_rpm, prices, min_quality, max_gpus, rank,
        replications, jobs, launcher, runs, words, config_dir, profiles, plugin or [],
    )  # fmt: skip
    output_folder(output, ConfigError)
    answer = answered(options, progress=True)
    print(sentence(answer))
    print(*table_lines(answer), sep="\n")
    write(answer, output, command_line(options, output))
    print(output / "plan.html")
    return 0 if answer.ranked else 1


def answered(options: Options, *, progress: bool = False) -> "Plan":
    """Answer the plan that ``options`` ask for. Raises ConfigError for options that cannot be used."""
    from tqdm import tqdm

    from mezzotint.sim.plan.clusters import candidates as found
    from mezzotint.sim.plan.clusters.answer import Question
    from mezzotint.sim.plan.clusters.answer import plan as search
    from mezzotint.sim.plan.clusters.target import check_targets, parse_target
    from mezzotint.sim.plan.clusters.trials import Trials

    check_launcher(options.launcher, "--launcher")
    targets = tuple(parse_target(each) for each in options.target)
    check_targets(targets)
    if not options.model:
        raise ConfigError(
            "--model: found none, expected the model of an image in full, such as sdxl; `mezzotint list profiles`"
        )
    found.check_free(options.overrides)
    trace = None if options.trace is None else _parquet(options.trace, options.runs)
    first = _first_rows(options, trace)
    words = [*options.overrides, *_arrivals(options, trace), *first, *_limits(targets)]
    with named(list(options.plugin)):
        scope = found.Scope(
            options.model, options.gpu, options.design or found.DESIGNS,
            {} if options.prices is None else _prices(options.prices),
            words, files_of(options.config_dir, None, "config"), options.profiles,
        )  # fmt: skip
        chosen, notes = found.candidates(scope)
        question = Question(
            options.model, _load(options, is_cut=bool(first)), targets, 1, _replications(options), options.max_gpus,
            options.rank, options.min_quality,
        )  # fmt: skip
        with tqdm(unit="run", desc="plan", disable=None if progress else True, file=sys.stderr) as bar:

            def expect(left: int) -> None:
                bar.total = bar.n + left
                bar.refresh()

            trials = Trials(options.runs, options.jobs, bar.update, options.launcher)
            return search(question, chosen, trials, notes, expect)


def write(answer: "Plan", folder: Path, command: str) -> None:
    """Write plan.json, plan.png and plan.html into ``folder``, together. Raises ConfigError if they cannot be."""
    from mezzotint.figures.save import save_png
    from mezzotint.sim.plan.clusters.page import as_json, draw, html

    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / name for name in ("plan.json", "plan.png", "plan.html")]
    for each in files:
        check_target(each, ConfigError)
    with atomic_files(files, ConfigError) as (data, figure, page):
        data.write_text(f"{json.dumps(as_json(answer, command), indent=2, allow_nan=False)}\n", encoding="utf-8")
        save_png(draw(answer), figure)
        page.write_text(html(answer, command), encoding="utf-8")


def command_line(options: Options, output: Path) -> str:
    """Return the command that makes the answer again."""
    words = ["mezzotint", "plan"]
    if options.trace is not None:
        words.append(str(options.trace))
    words += options.overrides
    for name, values in (
        ("target", options.target),
        ("gpu", options.gpu),
        ("design", options.design),
        ("plugin", options.plugin),
    ):
        for value in values:
            words += [f"--{name}", value]
    single: dict[str, tuple[object, object]] = {
        "model": (options.model, None),
        "rate-rpm": (options.rate_rpm, None),
        "prices": (options.prices, None),
        "min-quality": (options.min_quality, None),
        "replications": (options.replications, None),
        "profiles": (options.profiles, None),
        "config-dir": (options.config_dir, None),
        "max-gpus": (options.max_gpus, 256),
        "rank": (options.rank, 5),
        "output": (output, OUT),
    }
    for option, (given, usual) in single.items():
        if given != usual:
            words += [f"--{option}", f"{given:g}" if isinstance(given, float) else str(given)]
    return shlex.join(words)


def separated(words: Sequence[str]) -> tuple[list[str], Path | None]:
    """Separate the trace, a word without ``=``, from the overrides."""
    files = [word for word in words if "=" not in word and not word.startswith("~")]
    if len(files) > 1:
        raise ConfigError(f"plan: found {' and '.join(files)}, expected one file of requests; settings are KEY=VALUE")
    return [word for word in words if word not in files], Path(files[0]) if files else None


def _arrivals(options: Options, trace: Path | None) -> list[str]:
    """Return the overrides of the requests and their times."""
    words = [] if trace is None else ["trace=file", f"trace.path={trace}"]
    own, set_rate = _own_arrivals(options), [each for each in options.overrides if each.startswith("arrivals.")]
    if options.rate_rpm is None:
        if not own and trace is None:
            raise ConfigError("--rate-rpm: found none, and no file with times of its own; name one of the two")
        return words if own else [*words, "arrivals=trace"]
    if own or set_rate:
        raise ConfigError(f"--rate-rpm: found beside {[*own, *set_rate][0]}; leave one out")
    return [*words, "arrivals=poisson", f"arrivals.rate_rpm={options.rate_rpm!r}"]


def _first_rows(options: Options, trace: Path | None) -> list[str]:
    """Return the override that replays the first `STEADY_ROWS` requests of a longer file at a steady load."""
    chosen = any(word.lstrip("+").startswith("trace.requests=") for word in options.overrides)
    if trace is None or options.rate_rpm is None or chosen:
        return []
    from pyarrow.parquet import read_metadata

    rows = read_metadata(trace).num_rows
    return [f"trace.requests={STEADY_ROWS}"] if rows > STEADY_ROWS else []


def _load(options: Options, *, is_cut: bool) -> str:
    """Return the requests and their rate in words."""
    requests = "the built-in trace" if options.trace is None else options.trace.name
    own = _own_arrivals(options)
    if own:
        return f"{requests}, {' '.join(each for each in options.overrides if each.startswith('arrivals'))}"
    if options.rate_rpm is None:
        return f"{requests} at its own times"
    part = f" (the first {STEADY_ROWS:,} requests)" if is_cut else ""
    return f"{options.rate_rpm:g} requests per minute of {requests}{part}"


def _own_arrivals(options: Options) -> list[str]:
    """Return the overrides that choose other arrivals, such as ``arrivals=day``."""
    return [word for word in options.overrides if word.lstrip("+").startswith("arrivals=")]


def _parquet(path: Path, folder: Path) -> Path:
    """Return ``path`` if it is a trace; a delimited text file is imported, once, beside the runs."""
    import hashlib

    import numpy as np

    from mezzotint.traces.sources.delimited import Csv
    from mezzotint.traces.table.ingest import store

    if not path.is_file():
        raise ConfigError(
            f"{path}: is no file; name a trace (Parquet) or a table of requests (CSV), or an override KEY=VALUE"
        )
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            return path.resolve()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    target = folder / "traces" / f"{path.stem}-{digest}.parquet"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        store(Csv(path=path).read(np.random.default_rng(0)), target)
    return target.resolve()


def _prices(path: Path) -> dict[str, "Price"]:
    from mezzotint.sim.metrics.cost import Price, read_prices

    return {
        kind: Price(row.usd_per_gpu_h, f"{path.name}: {row.source}" if row.source else path.name)
        for kind, row in read_prices(path, f"--prices {path}").items()
    }


def _limits(targets: Sequence["Target"]) -> list[str]:
    """Return the override of the latency limits: those of the targets, and the usual ones."""
    limits = dict.fromkeys(["2x", "4x", *(str(target.limit) for target in targets if target.limit is not None)])
    return [f"slo=[{','.join(limits)}]"]


def _replications(options: Options) -> int:
    own_times = options.trace is not None and options.rate_rpm is None and not _own_arrivals(options)
    if options.replications is None:
        return 1 if own_times else 6
    if own_times and options.replications > 1:
        raise ConfigError(
            f"--replications {options.replications}: the times of {options.trace} are the same for every seed, so "
            "replications would not differ; leave it out, or give --rate-rpm"
        )
    return options.replications
