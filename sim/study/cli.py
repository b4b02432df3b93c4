"""`mezzotint report`: the command line of the report."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from conf.atomic import atomic_write, check_ours

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add `report` to the verbs; the parsed arguments carry `run` under `run`."""
    parser = subparsers.add_parser(
        "report",
        help="tables and figures from finished runs, one self-contained HTML file",
        description="Compare finished runs: one self-contained HTML file, and its figures as PNG beside it.",
    )
    parser.add_argument("dirs", nargs="+", type=Path, metavar="DIR", help="a run directory, or a folder of runs")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the HTML file to write, or a directory for report.html (default: report.html in the first DIR); of "
        "vllm-omni the JSON file (default: it is printed)",
    )
    parser.add_argument(
        "--format",
        choices=("html", "vllm-omni"),
        default="html",
        help="vllm-omni: one run's results in the keys of vLLM-Omni's benchmark, as JSON (default: html)",
    )
    parser.add_argument("--title", help="the report's title (default: the systems compared)")
    parser.add_argument(
        "--reruns-s",
        type=_seconds,
        metavar="S",
        help="CPU-seconds that reruns with the service time moved may take in all, inf for no limit; a run whose "
        "reruns do not fit gets no band (default: 60)",
    )
    parser.set_defaults(run=run)
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"found {text}, expected 0 or more seconds, or inf")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Write the report and print the path of its HTML file, then of each figure.

    Raises:
        ReportError: the runs cannot be reported on; the message says what to do.
    """
    if args.format == "vllm-omni":
        return _results(args)
    from sim.study.report import write_report  # drawing takes a second to import, which other verbs need not pay
    from sim.study.sensitivity import RERUNS_S

    reruns_s = RERUNS_S if args.reruns_s is None else args.reruns_s
    report = write_report(args.dirs, args.output, args.title, reruns_s)
    print(report.html)
    for figure in report.figures:
        print(figure)
    return 0


def _results(args: argparse.Namespace) -> int:
    from sim.study.results import vllm_omni
    from sim.study.runs import ReportError

    if args.output is not None:
        check_ours(args.output, ReportError, "results of a run", b"{", b'"backend": "mezzotint"')
    text = json.dumps(vllm_omni(args.dirs), indent=2, allow_nan=False)
    if args.output is None:
        print(text)
        return 0
    with atomic_write(args.output, ReportError) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    print(args.output)
    return 0
