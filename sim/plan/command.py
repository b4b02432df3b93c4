"""`mezzotint plan`: the cheapest clusters, over designs and kinds of GPUs, that meet latency targets."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from mezzotint.files.atomic import atomic_files, check_ours, check_target, output_folder
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.options import OUT, RUNS, Caches, Options, command_line
from mezzotint.sim.run.config.options import ConfigDir, Overrides, Plugin, RunsOn
from mezzotint.sim.run.config.plugins import allow_plugins
from mezzotint.sim.run.pool import check_launcher
from mezzotint.sim.run.refusal import warn
from mezzotint.traces.arrivals.base import MAX_RPM

if TYPE_CHECKING:
    from mezzotint.sim.plan.answer import Plan


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
            show_default="vanilla, and those that the prompts and the profiles allow",
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
    cache: Annotated[
        Caches,
        Option(
            metavar="empty|warm|both",
            help="state of a cache at the start: empty; warm, of the trace's earlier requests; both answers",
        ),
    ] = "both",
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
    assume: Annotated[
        list[str] | None,
        Option(
            metavar="KIND=KIND[*FACTOR]",
            help="a10g=l40s*1.9: models not measured on A10G take 1.9 times as long as on L40S; without a factor by "
            "their datasheets; may be repeated",
        ),
    ] = None,
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
    from mezzotint.sim.metrics.summary import cautions
    from mezzotint.sim.plan.page import sentence, table_lines

    words, trace = separate_trace(overrides or [])
    options = Options(
        target or [], gpu or [], design or [], plugin or [], model, rate_rpm, prices, min_quality, replications,
        profiles, config_dir, assume or [], cache, max_gpus, rank, trace, words, runs, jobs, launcher,
    )  # fmt: skip
    output_folder(output, ConfigError)
    check_ours(output / "plan.html", ConfigError, "a page of plan", b"<!DOCTYPE html>", b"mezzotint")
    check_ours(output / "plan.json", ConfigError, "an answer of plan", b"{", b'"ranked"')
    answer = answer_plan(options, progress=True)
    write(answer, output, command_line(options, output))  # before a reader such as head closes standard output
    print(sentence(answer))
    print(*table_lines(answer), sep="\n")
    for what, (value, source) in cautions(answer.ranked[0].summary).items() if answer.ranked else ():
        warn(f"{what}: {value}; {source}")
    print(output / "plan.html")
    return 0 if answer.ranked else 1


def answer_plan(options: Options, *, progress: bool = False) -> "Plan":
    """Answer the plan that ``options`` ask for. Raises ConfigError for options that cannot be used."""
    from tqdm import tqdm

    from mezzotint.sim.plan.answer import Plan, PlanSpec, find_plan
    from mezzotint.sim.plan.candidates import check_free, find_candidates
    from mezzotint.sim.plan.page import answer_words
    from mezzotint.sim.plan.runs import Runs
    from mezzotint.sim.plan.target import parse_targets
    from mezzotint.sim.plan.traffic import find_traffic

    check_launcher(options.launcher, "--launcher")
    targets = parse_targets(options.target)
    if not options.model:
        raise ConfigError(
            "--model: found none, expected the model of an image in full, such as sdxl; `mezzotint list profiles`"
        )
    check_free(options.overrides)
    traffic = find_traffic(options)
    limits = dict.fromkeys(["2x", "4x", *(str(target.limit) for target in targets if target.limit is not None)])
    with allow_plugins(list(options.plugin)):
        words = [*options.overrides, *traffic.words, f"slo=[{','.join(limits)}]"]
        candidates, notes = find_candidates(options, traffic, words)
        spec = PlanSpec(
            options.model, traffic.load, targets, 1, traffic.replications, options.max_gpus, options.rank,
            options.min_quality, traffic.mean_rpm, traffic.rate_rpm, options.cache,
        )  # fmt: skip
        with tqdm(unit="run", desc="plan", disable=None if progress else True, file=sys.stderr) as bar:

            def expect(runs_left: int) -> None:
                bar.total = bar.n + runs_left
                bar.refresh()

            def tell(plan: Plan) -> None:
                if plan.ranked and not bar.disable:
                    bar.write(f"found: {answer_words(plan)}; what it carries beyond this load is tested now")

            runs = Runs(options.runs, options.jobs, bar.update, options.launcher)
            return find_plan(spec, candidates, runs, notes, expect, tell)


def write(answer: "Plan", folder: Path, command: str) -> None:
    """Write plan.json, plan.html and plan.png into ``folder``, together; without clusters that ran there is no picture.

    Raises:
        ConfigError: they cannot be written.
    """
    from mezzotint.sim.plan.page import as_json, figure, html
    from mezzotint.sim.report.interactive import png

    folder.mkdir(parents=True, exist_ok=True)
    image, spec = folder / "plan.png", figure(answer)
    pictures = {} if spec is None else {image: png(spec)}
    files = [folder / "plan.json", folder / "plan.html", *pictures]
    for file in files:
        check_target(file, ConfigError)
    with atomic_files(files, ConfigError, [] if pictures else [image]) as (data, page, *images):
        data.write_text(f"{json.dumps(as_json(answer, command), indent=2, allow_nan=False)}\n", encoding="utf-8")
        page.write_text(html(answer, command), encoding="utf-8")
        for temporary, content in zip(images, pictures.values(), strict=True):
            temporary.write_bytes(content)


def separate_trace(words: Sequence[str]) -> tuple[list[str], Path | None]:
    """Separate the trace, a word without ``=``, from the overrides."""
    files = [word for word in words if "=" not in word and not word.startswith("~")]
    if len(files) > 1:
        raise ConfigError(f"plan: found {' and '.join(files)}, expected one file of requests; settings are KEY=VALUE")
    return [word for word in words if word not in files], Path(files[0]) if files else None
