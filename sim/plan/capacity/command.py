"""`mezzotint plan capacity`: the highest request rate that meets a latency target."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from omegaconf import DictConfig
from typer import Option

from mezzotint.figures.save import save_png
from mezzotint.files.atomic import atomic_files
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import check_place, unclaimed
from mezzotint.sim.core.slo import parse_limit
from mezzotint.sim.run.config.compose import composed
from mezzotint.sim.run.config.options import (
    ConfigDir,
    ConfigName,
    ConfigPath,
    Overrides,
    Plugin,
    RunsOn,
    arranged,
    files_of,
    is_dated,
    resolved,
)
from mezzotint.sim.run.config.plugins import named
from mezzotint.sim.run.config.settings import Settings, check
from mezzotint.sim.run.pool import Launcher, check_launcher
from mezzotint.sim.run.sweep_folder import claimed_sweep
from mezzotint.traces.arrivals.base import MAX_RPM

if TYPE_CHECKING:
    from mezzotint.sim.plan.capacity.search import CapacitySpec


def capacity(
    from_rpm: Annotated[
        float, Option("--from", min=1e-6, max=MAX_RPM, metavar="RPM", help="a rate that meets the target")
    ],
    to_rpm: Annotated[float, Option("--to", min=1e-6, max=MAX_RPM, metavar="RPM", help="a rate that misses it")],
    overrides: Overrides = None,
    violations: Annotated[
        float, Option(min=0, max=1, metavar="SHARE", help="largest share of requests over the limit")
    ] = 0.05,
    slo: Annotated[
        str,
        Option(
            parser=lambda given: str(parse_limit(given)), help="latency limit: 2x (times the standalone latency) or 10s"
        ),
    ] = "2x",
    replications: Annotated[
        int | None,
        Option(min=2, max=1000, show_default="5; 1 with a log's own arrival times", help="number of seeds"),
    ] = None,
    tolerance: Annotated[
        float, Option(min=1e-4, max=1, metavar="SHARE", help="where bisection ends, relative to the rate")
    ] = 0.02,
    jobs: Annotated[int, Option(min=1, help="worker processes")] = 1,
    launcher: RunsOn = "joblib",
    output: Annotated[
        Path | None,
        Option(
            "-o",
            "--output",
            metavar="DIR",
            show_default="a new folder of results/runs",
            help="folder of the runs and results",
        ),
    ] = None,
    config_dir: ConfigDir = None,
    config_path: ConfigPath = None,
    config_name: ConfigName = "config",
    plugin: Plugin = None,
) -> None:
    """Find the highest request rate that meets a latency target: at most a share of the requests exceeds the limit, and
    the backlog does not grow. Bisects every replication (seeds from seed= on, the same draws at every rate) and gives a
    95 % interval over replications. Writes rate.json and rate.png. Every run keeps its folder beside them: an
    interrupted search goes on with the same command, and another --violations reuses the runs.

    \b
    mezzotint plan capacity system=modm-quality cluster.count=16 --violations 0.05 --slo 2x --from 6 --to 40 -o modm

    Raises:
        ConfigError: options that conflict, or an override of the rate that is searched for.
    """
    check_launcher(launcher, "--launcher")
    if not violations < 1:
        raise ConfigError(f"--violations: found {violations:g}, expected a share of the requests under 1")
    if not from_rpm < to_rpm:
        raise ConfigError(f"--to: found {to_rpm:g}, expected a rate above that of --from, {from_rpm:g}")
    for word in overrides or ():
        if word.lstrip("+").startswith(("arrivals.rate_rpm=", "arrivals.speedup=")):
            raise ConfigError(
                f"{word}: found a fixed rate, but the search sets it; give its range with --from and --to"
            )
    words = arranged([*(overrides or []), *([] if output is None else [f"run.dir={output}"])])
    files = files_of(config_dir, config_path, config_name)
    from mezzotint.sim.plan.capacity import trials
    from mezzotint.sim.plan.capacity.search import CapacitySpec

    with named(plugin or []):
        config = composed(words, files)
        settings = check(resolved(config))
        folder = Path(settings.run.dir)
        check_place(folder)
        limits = [str(limit) for limit in settings.slo]
        if slo not in limits:
            raise ConfigError(f"--slo {slo}: the runs measure slo=[{','.join(limits)}]; add slo=[{slo}]")
        seeds = trials.replications(config, replications)
        spec = CapacitySpec(violations, slo, from_rpm, to_rpm, seeds, tolerance)
        folder = unclaimed(folder) if is_dated(config) else folder
        command = [*(overrides or []), *files.options()]
        print(*find_capacity(spec, config, settings, folder, command, jobs, launcher), sep="\n")


def find_capacity(
    spec: "CapacitySpec",
    config: DictConfig,
    settings: Settings,
    folder: Path,
    words: Sequence[str],
    jobs: int,
    launcher: Launcher = "joblib",
) -> list[str]:
    """Search, write rate.json and rate.png in ``folder``, and return the lines to print.

    Args:
        config: composed, not resolved; ``settings`` is the same, checked.
        words: the command line, which tells this search from others in the folder.

    Raises:
        ConfigError: the capacity lies outside the bracket. Errors of the runs pass through.
    """
    from tqdm import tqdm

    from mezzotint.sim.plan.capacity.page import as_json, draw, summary_line
    from mezzotint.sim.plan.capacity.search import search
    from mezzotint.sim.plan.capacity.trials import Trials, mean_rpm

    own_rpm = mean_rpm(config, settings)
    name, max_runs = settings.system.name, spec.replications * (spec.bisections + 3)
    words = [word for word in words if not word.startswith(("run.dir=", "hydra."))]
    with claimed_sweep(folder, ["plan rate", *words]):  # the former name, so that searches begun under it go on
        with tqdm(total=max_runs, unit="run", desc=name, disable=None, file=sys.stderr) as bar:
            trials = Trials(config, folder, spec.slo, jobs, bar, launcher)
            capacity = search(spec, trials.measure)
        files = [folder / "rate.png", folder / "rate.json"]
        with atomic_files(files, ConfigError) as (figure, data):
            save_png(draw(name, spec, capacity), figure)
            content = as_json(name, spec, capacity, trials)
            content["own_clock"] = own_rpm and {"rate_rpm": own_rpm, "scale": capacity.rate_rpm.mean / own_rpm}
            data.write_text(f"{json.dumps(content, indent=2)}\n", encoding="utf-8")
    lines = [summary_line(name, spec, capacity)]
    if own_rpm is not None:
        single = "; a single log, so the interval is what bisection left open" if spec.replications == 1 else ""
        lines.append(
            f"arrivals: the trace's own times, {capacity.rate_rpm.mean / own_rpm:.4g} times as fast; "
            f"its own mean rate is {own_rpm:.4g} requests per minute{single}"
        )
    return [*lines, *map(str, reversed(files))]
