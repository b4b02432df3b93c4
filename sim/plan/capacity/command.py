"""`mezzotint plan rate`: the highest rate of requests at which few enough are late."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from omegaconf import DictConfig
from typer import Option

from conf.atomic import atomic_files
from conf.palette import DPI
from sim.core.errors import ConfigError
from sim.core.run_folder import check_place, unclaimed
from sim.core.slo import parse_limit
from sim.run.config.compose import composed
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
from sim.run.config.settings import Settings, check
from sim.run.sweep_folder import claimed_sweep
from traces.arrivals.base import MAX_RPM

if TYPE_CHECKING:
    from sim.plan.capacity.search import Question


def rate(
    from_rpm: Annotated[float, Option("--from", min=1e-6, max=MAX_RPM, metavar="RPM", help="a rate that is carried")],
    to_rpm: Annotated[float, Option("--to", min=1e-6, max=MAX_RPM, metavar="RPM", help="a rate that is not")],
    overrides: Overrides = None,
    violations: Annotated[float, Option(min=0, max=1, metavar="SHARE", help="of the requests, at most")] = 0.05,
    slo: Annotated[
        str, Option(parser=lambda given: str(parse_limit(given)), help="2x, of the standalone latency, or 10s")
    ] = "2x",
    replications: Annotated[
        int | None,
        Option(min=2, max=1000, show_default="5; of a log's own times, which are one, 1", help="seeds"),
    ] = None,
    tolerance: Annotated[float, Option(min=1e-4, max=1, metavar="PART", help="of the rate, left open")] = 0.02,
    jobs: Annotated[int, Option(min=1, help="worker processes")] = 1,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="DIR", show_default="a new folder of results/runs", help="where to write"),
    ] = None,
    config_dir: ConfigDir = None,
    config_path: ConfigPath = None,
    config_name: ConfigName = "config",
    plugin: Plugin = None,
) -> None:
    """Search for the highest request rate at which at most a share of the requests is over a latency limit and the
    backlog does not grow: by bisection in every replication (seeds from seed= on, the same draws at every rate), with
    a 95 % interval over replications. Writes rate.json and rate.png; every run stays in a folder of its own beside
    them, so the same command goes on where it was interrupted, and another --violations takes what is there.

    \b
    mezzotint plan rate system=modm-quality cluster.count=16 --violations 0.05 --slo 2x --from 6 --to 40 -o modm

    Raises:
        ConfigError: options that do not go together, or an override that a search cannot have.
    """
    if not violations < 1:
        raise ConfigError(f"--violations: found {violations:g}, expected a share of the requests under 1")
    if not from_rpm < to_rpm:
        raise ConfigError(f"--to: found {to_rpm:g}, expected a rate above that of --from, {from_rpm:g}")
    for word in overrides or ():
        if word.lstrip("+").startswith(("arrivals.rate_rpm=", "arrivals.speedup=")):
            raise ConfigError(f"{word}: is what is searched for; leave it out, and say where with --from and --to")
    words = arranged([*(overrides or []), *([] if output is None else [f"run.dir={output}"])])
    files = files_of(config_dir, config_path, config_name)
    from sim.plan.capacity import points
    from sim.plan.capacity.search import Question

    with named(plugin or []):
        config = composed(words, files)
        settings = check(resolved(config))
        folder = Path(settings.run.dir)
        check_place(folder)
        limits = [str(limit) for limit in settings.slo]
        if slo not in limits:
            raise ConfigError(f"--slo {slo}: the runs measure slo=[{','.join(limits)}]; add slo=[{slo}]")
        seeds = points.replications(config, replications)
        question = Question(violations, slo, from_rpm, to_rpm, seeds, tolerance)
        folder = unclaimed(folder) if is_dated(config) else folder
        print(*find(question, config, settings, folder, [*(overrides or []), *files.options()], jobs), sep="\n")


def find(
    question: "Question", config: DictConfig, settings: Settings, folder: Path, words: Sequence[str], jobs: int
) -> list[str]:
    """Search, write what was found in ``folder``, and return the lines to print.

    ``config`` is composed, not resolved; ``settings`` is the same, checked. ``words`` tell the search from others.
    Raises ConfigError where the rate does not lie between the two, and what runs raise.
    """
    from tqdm import tqdm

    from sim.plan.capacity.page import draw, facts, line
    from sim.plan.capacity.points import Points, mean_rpm
    from sim.plan.capacity.search import search

    own_rpm = mean_rpm(config, settings)
    name, most = settings.system.name, question.replications * (question.bisections + 3)
    words = [word for word in words if not word.startswith(("run.dir=", "hydra."))]
    with claimed_sweep(folder, ["plan rate", *words]):
        with tqdm(total=most, unit="run", desc=name, disable=None, file=sys.stderr) as bar:
            points = Points(config, folder, question.slo, jobs, bar)
            found = search(question, points.measure)
        files = [folder / "rate.png", folder / "rate.json"]
        with atomic_files(files, ConfigError) as (figure, told):
            draw(name, question, found).savefig(figure, format="png", dpi=DPI, metadata={"Software": None})
            said = facts(name, question, found, points)
            said["own_clock"] = own_rpm and {"rate_rpm": own_rpm, "scale": found.rate_rpm.mean / own_rpm}
            told.write_text(f"{json.dumps(said, indent=2)}\n", encoding="utf-8")
    answer = [line(name, question, found)]
    if own_rpm is not None:
        alone = ", one log: the interval is what bisection left open" if question.replications == 1 else ""
        answer.append(
            f"arrivals: the trace's own times, {found.rate_rpm.mean / own_rpm:.4g} times as fast; "
            f"its own mean rate is {own_rpm:.4g} requests per minute{alone}"
        )
    return [*answer, *map(str, reversed(files))]
