"""`mezzotint scorecard hardware`: replay, compare, write the page, the JSON and the figure."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from conf.atomic import atomic_files, check_ours, output_folder
from sim.errors import ConfigError
from sim.study.verdicts import LOST, checked, committed

NAME = "hardware"
"""Of the files that are written."""


def run(args: argparse.Namespace) -> int:
    """Replay the shipped runs, or those of the user's own files; returns the exit status.

    Raises:
        ConfigError: a file that cannot be read or written, a row that cannot be replayed.
    """
    from sim.study.hardware import card, page  # what draws and fits takes a second to import
    from sim.study.hardware.figure import draw
    from sim.study.hardware.rows import routed, shipped, submissions

    own = args.runs is not None or args.routing is not None
    before = committed(args.output / f"{NAME}.json", card.judged) if args.check and not own else {}
    runs = shipped("mlperf-sdxl-server.csv") if not own else args.runs
    routes = shipped("llmd-routing.csv") if not own else args.routing
    made = card.make(
        [] if runs is None else submissions(runs),
        [] if routes is None else routed(routes),
        quick=args.quick,
        moved=not args.check,
        jobs=args.jobs,
    )
    facts = card.plain(made)
    print(page.tally(facts))
    if args.check:
        now = card.judged(facts)
        if own:  # nothing is committed of them: every routed run has to hold
            now = card.judged_routes(facts)
            before = {row: replace(each, held=True) for row, each in now.items()}
        elif args.quick:
            before = {row: each for row, each in before.items() if row in now}
        status = checked(before, now)
        error = made.of_errors("p99", 0.5)
        if error is not None and error > card.LIMIT:
            far = f"the median error of p99 is {error:.2%}, expected at most {card.LIMIT:.0%}"
            print(f"mezzotint: {far}", file=sys.stderr)
            return LOST
        return status
    figure = draw(facts)
    name = f"{NAME}-quick" if args.quick else NAME
    output_folder(args.output, ConfigError)
    markdown, data, image = (args.output / f"{name}.{kind}" for kind in ("md", "json", "png"))
    check_ours(markdown, ConfigError, "a page of scorecard hardware", b"# Real machines")
    drawn, gone = ([], [image]) if figure is None else ([image], [])
    files: list[Path] = [*drawn, data, markdown]
    with atomic_files(files, ConfigError, gone) as (*images, plain, text):
        if figure is not None:
            figure.savefig(images[0], format="png", metadata={"Software": None})
        plain.write_text(json.dumps(facts, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
        text.write_text(page.render(facts, None if figure is None else image.name), encoding="utf-8")
    for file in (markdown, data, *drawn):
        print(file)
    return 0
