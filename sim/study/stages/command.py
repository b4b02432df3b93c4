"""`mezzotint scorecard stages`: the page on add-ons stage by stage."""

import argparse

from conf.atomic import atomic_write, check_ours, output_folder
from sim.errors import ConfigError

NAME = "swiftdiffusion"
"""Of the page."""


def run(args: argparse.Namespace) -> int:
    """Simulate every logged setting and write the page; returns the exit status.

    Raises:
        ConfigError: a folder that cannot be used.
    """
    from sim.study.stages import page, replay  # what simulates takes a second to import

    found = replay.settings()
    for stage in replay.STAGES:
        print(f"{stage}: off by {replay.worst(found, stage):.3g} at most where it is predicted")
    if args.check:
        return 0
    output_folder(args.output, ConfigError)
    path = args.output / f"{NAME}.md"
    check_ours(path, ConfigError, "a page of scorecard stages", b"# ControlNets and LoRAs")
    with atomic_write(path, ConfigError) as temporary:
        temporary.write_text(page.render(found), encoding="utf-8")
    print(path)
    return 0
