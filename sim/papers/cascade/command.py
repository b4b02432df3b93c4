"""`mezzotint reproduce cascade`: DiffServe beside its models alone."""

from typing import Any

from mezzotint.sim.papers.cascade.designs import NAME, cells, comparisons, measured
from mezzotint.sim.papers.scorecard.options import RESULTS, RUNS, Check, Jobs, Output, Quick, RunsOn, Work
from mezzotint.sim.papers.scorecard.runs.runner import finish
from mezzotint.sim.papers.verdicts import read_committed, report_lost
from mezzotint.sim.report.pages import write_study


def compare(
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Compare DiffServe's cascades with their models alone, and write cascade.md, .json and .svg.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    from mezzotint.sim.papers.cascade import page  # importing matplotlib takes a second

    stem = f"{NAME}-quick" if quick else NAME
    before = read_committed(output / f"{stem}.json", comparisons) if check else {}
    planned = list(cells(quick))
    runs = finish([each.point for each in planned], work, jobs, launcher).of_study(NAME)
    facts: dict[str, Any] = {"rows": [measured(cell, run) for cell, run in zip(planned, runs, strict=True)]}
    for name, each in comparisons(facts).items():
        print(f"{name}: {each.ours} (paper: {each.expected})")
    if check:
        return report_lost(before, comparisons(facts))
    write_study(output, stem, facts, page.render, page.draw)
    return 0
