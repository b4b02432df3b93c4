"""`mezzotint scorecard addons`: what caches of add-ons load, beside what was measured; routing, placement."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sim.core.errors import ConfigError
from sim.papers.scorecard.options import RESULTS, RUNS, Check, Jobs, Names, Output, Quick, Traces, Work
from sim.papers.verdicts import checked, committed
from sim.report.pages import write_page
from traces.table.trace import read

QUICK = 0.1
"""Share of the nodes and requests of --quick."""

ROWS = 800
"""Requests of a run; a tenth with --quick."""


def compare(
    trace: Traces = [],  # noqa: B006  Typer reads it
    name: Names = [],  # noqa: B006
    sizes: Annotated[str, typer.Option(metavar="N,N,...", help="of the caches, in add-ons [default: 1 to 32]")] = "",
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Compare caches of ControlNets and LoRAs with what was measured, and write addons.md, .json and .png.

    Raises:
        ConfigError: a file that cannot be written, sizes that are none.
    """
    from sim.papers.addons import caches, page  # what draws takes a second to import
    from sim.papers.addons.served import served

    asked = _sizes(sizes) or caches.SIZES
    stem = "addons-quick" if quick else "addons"
    before = committed(output / f"{stem}.json", caches.judged) if check else {}
    found = caches.curves(asked, share=QUICK if quick else 1.0)
    error = caches.errors(found)
    for place, path in enumerate(trace):
        found += caches.of_trace(read(path), name[place] if place < len(name) else path.stem, asked)
    points = sum(len(curve.measured) for curve in found)
    facts: dict[str, Any] = {"caches": {"curves": [asdict(curve) for curve in found], "points": points, "error": error}}
    if not check:
        facts["served"] = served(work, jobs, ROWS // 10 if quick else ROWS)
    facts = json.loads(json.dumps(facts))  # as a reader of the file has it
    for curve in found:
        known = {size: f" ({load:.3f})" for size, load in curve.measured.items()}
        said = ", ".join(f"{size}: {curve.at(size):.3f}{known.get(size, '')}" for size in curve.sizes)
        print(f"{curve.service}, {curve.kind}, LRU, loads per request by size (measured): {said}")
    if check:
        return checked(before, caches.judged(facts))
    figures = {f"{stem}.png": page.draw(found), f"{stem}-routing.png": page.draw_served(facts["served"])}
    write_page(output, stem, facts, page.render(facts, list(figures)), figures)
    return 0


def _sizes(text: str) -> tuple[int, ...]:
    words = text.split(",") if text else []
    if not all(word.strip().isdecimal() and 0 < int(word) <= 10_000 for word in words):
        raise ConfigError(f"--sizes: found {text!r}, expected whole numbers from 1 to 10,000, such as 1,2,4")
    return tuple(int(word) for word in words)
