"""`mezzotint scorecard stages`: the page on add-ons stage by stage."""

import argparse
import json
from dataclasses import asdict

from conf.atomic import atomic_files, check_ours, output_folder
from sim.errors import ConfigError
from sim.study.verdicts import checked, committed

NAME = "swiftdiffusion"
"""Of the files that are written."""


def run(args: argparse.Namespace) -> int:
    """Simulate every logged setting and write the page; returns the exit status.

    Raises:
        ConfigError: a folder that cannot be used.
    """
    from sim.study.stages import page, replay  # what simulates takes a second to import

    files = [args.output / f"{NAME}{kind}" for kind in (".json", ".md")]
    before = committed(files[0], replay.judged) if args.check else {}
    found = replay.settings()
    for stage in replay.STAGES:
        mean, median = (replay.worst(found, stage, statistic) for statistic in replay.STATISTICS)
        print(f"{stage}: off by {mean:.3g} at most where it is predicted, its median by {median:.3g}")
    facts = {"settings": [asdict(each) for each in found]}
    if args.check:
        return checked(before, replay.judged(facts))
    output_folder(args.output, ConfigError)
    check_ours(files[1], ConfigError, "a page of scorecard stages", b"# ControlNets and LoRAs")
    with atomic_files(files, ConfigError) as (data, markdown):
        data.write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        markdown.write_text(page.render(found), encoding="utf-8")
    for file in files:
        print(file)
    return 0
