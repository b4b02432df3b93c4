"""`mezzotint scorecard stages`: the page on add-ons stage by stage."""

from dataclasses import asdict

from sim.papers.scorecard.options import RESULTS, Check, Output
from sim.papers.verdicts import checked, committed
from sim.report.pages import write_page

NAME = "swiftdiffusion"


def compare(check: Check = False, output: Output = RESULTS) -> int:
    """Simulate systems with add-ons stage by stage beside Katz's logs, and write swiftdiffusion.md and .json.

    Raises:
        ConfigError: a folder that cannot be used.
    """
    from sim.papers.stages import page, replay  # what simulates takes a second to import

    before = committed(output / f"{NAME}.json", replay.judged) if check else {}
    found = replay.settings()
    for stage in replay.STAGES:
        mean, median = (replay.worst(found, stage, statistic) for statistic in replay.STATISTICS)
        print(f"{stage}: off by {mean:.3g} at most where it is predicted, its median by {median:.3g}")
    facts = {"settings": [asdict(each) for each in found]}
    if check:
        return checked(before, replay.judged(facts))
    write_page(output, NAME, facts, page.render(found), {})
    return 0
