"""`mezzotint reproduce stages`: add-ons stage by stage, compared with Katz's logs."""

from dataclasses import asdict

from mezzotint.sim.papers.study import RESULTS, Check, Output, read_committed, report_lost
from mezzotint.sim.report.pages import write_page

NAME = "swiftdiffusion"


def compare(check: Check = False, output: Output = RESULTS) -> int:
    """Compare systems with add-ons, stage by stage, with Katz's logs, and write swiftdiffusion.md and .json.

    Raises:
        ConfigError: a file cannot be read or written.
    """
    from mezzotint.sim.papers.stages import page, replay  # importing the simulator takes a second

    before = read_committed(output / f"{NAME}.json", replay.comparisons) if check else {}
    found = replay.settings()
    for stage in replay.STAGES:
        mean, median = (replay.max_error(found, stage, statistic) for statistic in replay.STATISTICS)
        print(f"{stage}: largest error of a predicted setting: mean {mean:.3g}, median {median:.3g}")
    facts = {"settings": [asdict(each) for each in found]}
    if check:
        return report_lost(before, replay.comparisons(facts))
    write_page(output, NAME, facts, page.render(facts), {})
    return 0
