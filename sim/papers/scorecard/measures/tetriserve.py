"""Measures of TetriServe's evaluation (section 6): shares of requests in time, by mix and multiple of the deadlines."""

from itertools import product

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured, mean

MIXES = ("uniform", "skewed")

SCALES = (1.0, 1.1, 1.2, 1.5)
"""Multiples of the paper's deadlines."""

LARGEST = ("2048x2048", 5.0)
"""A size and its deadline in seconds at scale 1."""

VARIANTS = ((False, False), (True, False), (True, True))
"""Placement and elastic scale-up of Table 5: the schedule alone, with placement, and the full system."""

DEGREES = (1, 2, 4, 8)
"""Parallel degrees of xDiT."""

MIN_LEAD = 0.005
"""Smallest difference of the shares in time that counts: one or two requests of a run."""


def scale(run: Finished) -> float:
    """Return the multiple of the paper's deadlines."""
    size, seconds = LARGEST
    return round(float(str(run.config["slo_by_size"][size]).rstrip("s")) / seconds, 3)


def of_mix(runs: Runs, mix: str, multiple: float) -> list[Finished]:
    """Return the runs of a mix at a multiple of the deadlines, one of each seed. Raises Unmeasured: there is none."""
    of_scale = [run for run in runs.where(trace=f"tetriserve-{mix}") if scale(run) == multiple]
    if not of_scale:
        raise Unmeasured(f"no run of the {mix} mix at {multiple:g} times the deadlines")
    return of_scale


def share(runs: Runs, mix: str, multiple: float = 1.0, **choices: str | int) -> float:
    """Return the share of requests in time of the runs with these choices, averaged over the seeds."""
    chosen = of_mix(runs.where(**choices), mix, multiple)
    return mean([1 - run.number("slo", "own", "violation_rate") for run in chosen])


def latencies_s(runs: Runs, mix: str, multiple: float) -> list[float]:
    """Return the mean latency of the finished requests, by variant of Table 5."""
    variants = [of_mix(runs.where(placement=placed, scale_up=up), mix, multiple) for placed, up in VARIANTS]
    return [mean([run.number("latency_s", "mean") for run in of_variant]) for of_variant in variants]


def full_system_is_best(runs: Runs) -> bool:
    """Return True if no variant of Table 5 has a larger share than the full system, and the schedule a smaller one."""

    def is_best(mix: str, multiple: float) -> bool:
        schedule, placement, full = (
            share(runs, mix, multiple, placement=placed, scale_up=up) for placed, up in VARIANTS
        )
        return full >= max(schedule, placement) and full > schedule + MIN_LEAD

    return all(is_best(mix, multiple) for mix, multiple in product(MIXES, (1.0, 1.5)))


def best_fixed(runs: Runs, mix: str, multiple: float) -> float:
    """Return the largest share of RSSP and xDiT's degrees."""
    xdit = runs.of(["tetriserve-figure7-xdit"])
    fixed = [share(xdit, mix, multiple, degree=degree) for degree in DEGREES]
    return max([*fixed, share(runs, mix, multiple, system="rssp")])


def gain(runs: Runs, mix: str, multiple: float) -> float:
    """Return TetriServe's share over that of the best fixed degrees."""
    return share(runs, mix, multiple, system="tetriserve") / best_fixed(runs, mix, multiple)


def is_first(runs: Runs, mix: str) -> bool:
    """Return True if TetriServe has the largest share at every multiple of the deadlines."""
    return all(share(runs, mix, at, system="tetriserve") > best_fixed(runs, mix, at) for at in SCALES)


def leads_rssp(runs: Runs) -> bool:
    """Return True if TetriServe has a larger share than RSSP in each mix at every multiple of the deadlines."""
    return all(
        share(runs, mix, multiple, system="tetriserve") > share(runs, mix, multiple, system="rssp")
        for mix, multiple in product(MIXES, SCALES)
    )
