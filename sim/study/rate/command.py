"""`mezzotint plan rate`: the highest rate of requests at which few enough are late."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from conf.atomic import atomic_files
from conf.palette import DPI
from sim.config.settings import Settings
from sim.ending import end_workers
from sim.errors import ConfigError
from sim.slo import parse_limit
from sim.sweep import claimed_sweep
from traces.arrivals.base import MOST_RPM

MOST_REPLICATIONS = 1000

USAGE = """Search for the highest request rate at which at most a share of the requests is over a latency limit and
the backlog does not grow: by bisection in every replication (seeds from seed= on, the same draws at every rate), with a
95 % interval over replications. Writes rate.json and rate.png; every run stays in a folder of its own beside them, so
the same command goes on where it was interrupted, and another --violations takes what is there.

  mezzotint plan rate system=modm-quality cluster.count=16 --violations 0.05 --slo 2x --from 6 --to 40 -o modm
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, and the words that are the run's: overrides, and options of Hydra's."""

    violations: float
    slo: str
    from_rpm: float
    to_rpm: float
    replications: int | None
    tolerance: float
    jobs: int
    words: tuple[str, ...]


def usage() -> str:
    """The help of the verb."""
    return f"{_parser().format_usage()}\n{USAGE}\noptions:{_parser().format_help().partition('options:')[2]}"


def parsed(given: Sequence[str]) -> Asked:
    """The words after `plan rate`. Raises ConfigError for one that cannot be."""
    options, words = _parser().parse_known_args(given)
    try:
        slo = str(parse_limit(options.slo))
    except ValueError as error:
        raise ConfigError(f"--slo: found {options.slo!r}, {error}") from None
    low, high = options.low, options.high
    for option, value, fits, expected in (
        ("--violations", options.violations, 0 <= options.violations < 1, "a share of the requests, 0 to under 1"),
        ("--from", low, 1e-6 <= low <= MOST_RPM, "requests per minute, above 0"),
        ("--to", high, low < high <= MOST_RPM, f"requests per minute, more than --from {low:g}"),
        ("--tolerance", options.tolerance, 1e-4 <= options.tolerance <= 1, "a part of the rate, 0.0001 to 1"),
        (
            "--replications",
            2 if options.replications is None else options.replications,
            options.replications is None or 2 <= options.replications <= MOST_REPLICATIONS,
            f"2 to {MOST_REPLICATIONS}: one tells nothing of noise",
        ),
        ("--jobs", options.jobs, options.jobs >= 1, "1 or more worker processes"),
    ):
        if not fits:
            raise ConfigError(f"{option}: found {value:g}, expected {expected}")
    for word in words:
        if word in ("-m", "--multirun"):
            raise ConfigError(f"{word}: a search is of one configuration; give the command once for each")
        if word.lstrip("+").startswith(("arrivals.rate_rpm=", "arrivals.speedup=")):
            raise ConfigError(f"{word}: is what is searched for; leave it out, and say where with --from and --to")
    named = [] if options.output is None else [f"run.dir={options.output}"]
    return Asked(
        options.violations,
        slo,
        options.low,
        options.high,
        options.replications,
        options.tolerance,
        options.jobs,
        (*words, *named),
    )


def find(asked: Asked, config: DictConfig, settings: Settings, folder: Path, data: Path | None) -> tuple[str, ...]:
    """Search, and write what was found; returns the lines to print.

    Args:
        config: composed, not resolved; ``settings`` is the same, checked.
        folder: of the search; ``data`` is that of the configuration, if it is a run's.

    Raises ConfigError where the rate does not lie between the two, and what runs raise.
    """
    limits = [str(limit) for limit in settings.slo]
    if asked.slo not in limits:
        raise ConfigError(f"--slo {asked.slo}: the runs measure slo=[{','.join(limits)}]; add slo=[{asked.slo}]")
    from tqdm import tqdm

    from sim.study.rate.own_clock import own_clock, replications
    from sim.study.rate.page import draw, facts, line
    from sim.study.rate.points import Points
    from sim.study.rate.search import NotBracketed, Question, search

    seeds = replications(config, asked.replications)
    question = Question(asked.violations, asked.slo, asked.from_rpm, asked.to_rpm, seeds, asked.tolerance)
    own = own_clock(config, settings, data)
    name, most = settings.system.name, question.replications * (question.bisections + 3)
    words = [word for word in asked.words if not word.startswith(("run.dir=", "hydra."))]
    with claimed_sweep(folder, ["plan rate", *words]):
        try:
            with tqdm(total=most, unit="run", desc=name, disable=None, file=sys.stderr) as bar:
                points = Points(config, folder, data, asked.slo, asked.jobs, bar)
                found = search(question, points.measure)
        except NotBracketed as error:
            raise ConfigError(str(error)) from None
        except KeyboardInterrupt:
            end_workers()  # before their folder is tidied
            raise
        files = [folder / "rate.png", folder / "rate.json"]
        with atomic_files(files, ConfigError) as (figure, told):
            draw(name, question, found).savefig(figure, format="png", dpi=DPI, metadata={"Software": None})
            said = facts(name, question, found, points.seed, points.name)
            said["own_clock"] = own and own.facts(found.rate_rpm.mean)
            told.write_text(f"{json.dumps(said, indent=2)}\n", encoding="utf-8")
    clock = [] if own is None else [own.line(found.rate_rpm.mean, seeds)]
    return (line(name, question, found), *clock, *map(str, reversed(files)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mezzotint plan rate", add_help=False, allow_abbrev=False, usage="%(prog)s [KEY=VALUE ...] [options]"
    )
    add = parser.add_argument
    add("--violations", type=float, default=0.05, metavar="SHARE", help="of the requests, at most (default: 0.05)")
    add("--slo", default="2x", metavar="LIMIT", help="2x, of the standalone latency, or 10s (default: 2x)")
    add("--from", dest="low", type=float, required=True, metavar="RPM", help="a rate that is carried")
    add("--to", dest="high", type=float, required=True, metavar="RPM", help="a rate that is not")
    add("--replications", type=int, metavar="N", help="seeds (default: 5; of a log's own times, which are one, 1)")
    add("--tolerance", type=float, default=0.02, metavar="PART", help="of the rate, left open (default: 0.02)")
    add("--jobs", type=int, default=1, metavar="N", help="worker processes (default: 1)")
    add("-o", "--output", type=Path, metavar="DIR", help="where to write (default: a new folder of results/runs)")
    return parser
