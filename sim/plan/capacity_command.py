"""`mezzotint plan capacity`: the highest request rate that meets a latency target."""

import json
import sys
from pathlib import Path
from typing import Annotated

from omegaconf import OmegaConf
from typer import Option

from mezzotint.figures.page import number
from mezzotint.files.atomic import atomic_files
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import check_place, make_free_folder
from mezzotint.sim.core.slo import parse_limit
from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.config.options import (
    ConfigDir,
    ConfigName,
    ConfigPath,
    Overrides,
    Plugin,
    RunsOn,
    files_of,
    is_dated,
    prepare_overrides,
)
from mezzotint.sim.run.config.plugins import allow_plugins
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.pool import check_launcher
from mezzotint.sim.run.sweep_folder import claim_sweep
from mezzotint.traces.arrivals.base import MAX_RPM


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
    the system is not overloaded. Bisects every replication (seeds from seed= on, the same draws at every rate) and
    gives a 95 % interval over replications. Writes rate.json and rate.png. Every run keeps its folder beside them: an
    interrupted search goes on with the same command, and another --violations reuses the runs.

    \b
    mezzotint plan capacity system=modm-quality cluster.count=16 --violations 0.05 --slo 2x --from 6 --to 40 -o modm

    Raises:
        ConfigError: options that conflict, an override of the rate that is searched for, or a capacity outside of
            --from and --to.
    """
    from tqdm import tqdm

    from mezzotint.figures.save import save_png
    from mezzotint.sim.plan.capacity import CapacitySpec, as_json, draw, measure_in, search, sentence
    from mezzotint.sim.plan.rate import RATE, SPEEDUP, count_replications, is_own_clock, mean_rpm

    check_launcher(launcher, "--launcher")
    if not violations < 1:
        raise ConfigError(f"--violations: found {violations:g}, expected a share of the requests under 1")
    if not from_rpm < to_rpm:
        raise ConfigError(f"--to: found {to_rpm:g}, expected a rate above that of --from, {from_rpm:g}")
    overrides = overrides or []
    for word in overrides:
        if word.lstrip("+").startswith((f"{RATE}=", f"{SPEEDUP}=")):
            raise ConfigError(
                f"{word}: found a fixed rate, but the search sets it; give its range with --from and --to"
            )
    files = files_of(config_dir, config_path, config_name)
    with allow_plugins(plugin or []):
        config = compose_config(
            prepare_overrides([*overrides, *([] if output is None else [f"run.dir={output}"])]), files
        )
        settings = check(resolve_config(config))
        folder, name = Path(settings.run.dir), settings.system.name
        check_place(folder)
        limits = [str(limit) for limit in settings.slo]
        if slo not in limits:
            raise ConfigError(f"--slo {slo}: the runs measure slo=[{','.join(limits)}]; add slo=[{slo}]")
        file = OmegaConf.select(config, "trace.path") if is_own_clock(config) else None
        count = count_replications(replications, 5, file, "choose arrivals=poisson")
        seeds = range(settings.seed, settings.seed + count)
        spec = CapacitySpec(violations, slo, from_rpm, to_rpm, seeds, tolerance)
        folder = make_free_folder(folder) if is_dated(config) else folder
        own_rpm = mean_rpm(config, settings)
        words = [word for word in overrides if not word.startswith(("run.dir=", "hydra."))]
        # "plan rate" is the former name of the command, so that searches begun under it go on
        with claim_sweep(folder, ["plan rate", *words, *files.options()]):
            max_runs = count * (spec.bisections + 3)
            with tqdm(total=max_runs, unit="run", desc=name, disable=None, file=sys.stderr) as bar:
                result = search(spec, measure_in(folder, config, slo, jobs, launcher, bar.update))
            scale = None if own_rpm is None else result.rate_rpm.mean / own_rpm
            content = as_json(name, spec, result)
            content["own_clock"] = own_rpm and {"rate_rpm": own_rpm, "scale": scale}
            targets = [folder / "rate.png", folder / "rate.json"]
            with atomic_files(targets, ConfigError) as (figure, data):
                save_png(draw(name, spec, result), figure)
                data.write_text(f"{json.dumps(content, indent=2)}\n", encoding="utf-8")
    print(sentence(name, spec, result))
    if own_rpm is not None:
        single = "; a single log, so the interval is what bisection left open" if count == 1 else ""
        print(
            f"arrivals: the trace's own times, {number(scale)} times as fast; "
            f"its own mean rate is {number(own_rpm)} requests per minute{single}"
        )
    print(*reversed(targets), sep="\n")
