"""`mezzotint scorecard addons`: what caches of add-ons load, beside what was measured; routing, placement."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from conf.atomic import atomic_files, check_ours, output_folder
from sim.errors import ConfigError
from sim.study.verdicts import checked, committed
from traces.table.trace import read

NAME = "addons"
"""Of the files that are written."""

QUICK = 0.1
"""Share of the nodes and requests of --quick."""

ROWS = 800
"""Requests of a run; a tenth with --quick."""


def run(args: argparse.Namespace) -> int:
    """Make the services, replay the caches, write the page, its data and its figure; returns the exit status.

    Raises:
        ConfigError: a file that cannot be written, sizes that are none.
    """
    from sim.study.addons import caches, page  # what draws takes a second to import
    from sim.study.addons.figure import draw, draw_served
    from sim.study.addons.served import served

    sizes = _sizes(args.sizes) or caches.SIZES
    name = f"{NAME}-quick" if args.quick else NAME
    before = committed(args.output / f"{name}.json", caches.judged) if args.check else {}
    found = caches.curves(sizes, share=QUICK if args.quick else 1.0)
    error = caches.errors(found)
    for place, path in enumerate(args.trace):
        told = args.name[place] if place < len(args.name) else path.stem
        found += caches.of_trace(read(path), told, sizes)
    facts: dict[str, Any] = {
        "caches": {
            "curves": [asdict(curve) for curve in found],
            "points": sum(len(curve.measured) for curve in found),
            "error": error,
        }
    }
    if not args.check:
        facts["served"] = served(args.work, args.jobs, ROWS // 10 if args.quick else ROWS)
    text = json.dumps(facts, indent=1, allow_nan=False)
    facts = json.loads(text)  # as a reader of the file has it
    for curve in found:
        known = curve.measured
        said = ", ".join(
            f"{size}: {curve.at(size):.3f}" + (f" ({known[size]:.3f})" if size in known else "") for size in curve.sizes
        )
        print(f"{curve.service}, {curve.kind}, LRU, loads per request by size (measured): {said}")
    if args.check:
        return checked(before, caches.judged(facts))
    output_folder(args.output, ConfigError)
    files = [args.output / f"{name}{kind}" for kind in (".md", ".json", ".png", "-routing.png")]
    check_ours(files[0], ConfigError, "a page of scorecard addons", b"# Add-ons")
    with atomic_files(files, ConfigError) as (markdown, data, image, second):
        draw_served(facts["served"]).savefig(second, format="png", metadata={"Software": None})
        draw(found).savefig(image, format="png", metadata={"Software": None})
        data.write_text(text + "\n", encoding="utf-8")
        markdown.write_text(page.render(facts, {"caches": files[2].name, "served": files[3].name}), encoding="utf-8")
    for file in files:
        print(file)
    return 0


def _sizes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    words = text.split(",")
    if not all(word.strip().isdecimal() and 0 < int(word) <= 10_000 for word in words):
        raise ConfigError(f"--sizes: found {text!r}, expected whole numbers from 1 to 10,000, such as 1,2,4")
    return tuple(int(word) for word in words)
