"""`mezzotint reproduce addons`: loads of add-on caches, routing by add-on, placement of ControlNets."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.study import (
    RESULTS,
    RUNS,
    Check,
    Jobs,
    Names,
    Output,
    Quick,
    RunsOn,
    Traces,
    Work,
    read_committed,
    report_lost,
)
from mezzotint.traces.table.trace import read

QUICK = 0.1
"""Share of the nodes and requests in --quick."""

ROWS = 800
"""Requests of a run; a tenth with --quick."""


def compare(
    trace: Traces = [],  # noqa: B006  Typer reads it
    name: Names = [],  # noqa: B006
    sizes: Annotated[
        str, typer.Option(metavar="N,N,...", help="sizes of the caches, in add-ons [default: 1 to 32]")
    ] = "",
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Compare caches of ControlNets and LoRAs with measurements, and write addons.md, .json and .svg.

    Raises:
        ConfigError: a file cannot be written, or a size is out of range.
    """
    from mezzotint.sim.papers.addons import caches, page  # importing matplotlib takes a second
    from mezzotint.sim.papers.addons.served import run_studies

    chosen = _sizes(sizes) or caches.SIZES
    stem = "addons-quick" if quick else "addons"
    before = read_committed(output / f"{stem}.json", caches.comparisons) if check else {}
    found = caches.curves(chosen, share=QUICK if quick else 1.0)
    error = caches.errors(found)
    for place, path in enumerate(trace):
        found += caches.of_trace(read(path), name[place] if place < len(name) else path.stem, chosen)
    points = sum(len(curve.measured) for curve in found)
    facts: dict[str, Any] = {"caches": {"curves": [asdict(curve) for curve in found], "points": points, "error": error}}
    if not check:
        facts["served"] = run_studies(work, jobs, ROWS // 10 if quick else ROWS, launcher)
    facts = json.loads(json.dumps(facts))  # as read from the file
    for curve in found:
        measured = {size: f" ({load:.3f})" for size, load in curve.measured.items()}
        loads = ", ".join(f"{size}: {curve.at(size):.3f}{measured.get(size, '')}" for size in curve.sizes)
        print(f"{curve.service}, {curve.kind}, LRU, loads per request by size (measured): {loads}")
    if check:
        return report_lost(before, caches.comparisons(facts))
    page.write(output, stem, facts)
    return 0


def _sizes(text: str) -> tuple[int, ...]:
    words = text.split(",") if text else []
    if not all(word.strip().isdecimal() and 0 < int(word) <= 10_000 for word in words):
        raise ConfigError(f"--sizes: found {text!r}, expected whole numbers from 1 to 10,000, such as 1,2,4")
    return tuple(int(word) for word in words)
