"""The runs of one experiment as a scorecard has them, for who looks at them apart from it."""

from pathlib import Path

from sim.study.scorecard.card import Study
from sim.study.scorecard.finished import Runs
from sim.study.scorecard.points import sweep
from sim.study.scorecard.runner import finish


def runs_of(study: Study, name: str, work: Path, jobs: int, leave_out: bool = False) -> Runs:
    """Those of the experiment ``name`` with what ``study`` sets beside its own, made where they are not there yet.

    Args:
        work, jobs: see ``finish``.
        leave_out: whether an experiment that ``study`` sets nothing beside has no runs: the quick form leaves out those
            that are long.
    """
    if leave_out and name not in study.overrides:
        print(f"{name}: left out of the quick form")
        return Runs(())
    return finish(sweep(name, study.overrides.get(name, ())), work, jobs)
