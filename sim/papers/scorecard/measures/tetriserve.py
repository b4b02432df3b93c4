"""Measures of TetriServe's evaluation (section 6; experiments: conf/experiment)."""

from collections.abc import Mapping
from functools import partial
from itertools import product

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured, mean
from mezzotint.sim.papers.scorecard.measures.formulas import Measure

MIXES = ("uniform", "skewed")

SCALES = (1.0, 1.1, 1.2, 1.5)
"""Multiples of the paper's deadlines."""

LARGEST = ("2048x2048", 5.0)
"""A size and its deadline in seconds at scale 1."""

VARIANTS = {"schedule": (False, False), "placement": (True, False), "scale-up": (True, True)}
"""Placement and elastic scale-up, by variant of Table 5."""

DEGREES = (1, 2, 4, 8)
"""Parallel degrees of xDiT."""

MIN_LEAD = 0.005
"""Smallest difference of the shares in time that counts: one or two requests of a run."""


def scale(run: Finished) -> float:
    """Return the multiple of the paper's deadlines."""
    size, seconds = LARGEST
    return round(float(str(run.config["slo_by_size"][size]).rstrip("s")) / seconds, 3)


def in_time(run: Finished) -> float:
    """Return the share of requests in time."""
    return 1 - run.number("slo", "own", "violation_rate")


def of_mix(runs: Runs, mix: str, multiple: float) -> list[Finished]:
    """Return the runs of a mix at a multiple of the deadlines, one of each seed. Raises Unmeasured: there is none."""
    found = [run for run in runs.where(trace=f"tetriserve-{mix}") if scale(run) == multiple]
    if not found:
        raise Unmeasured(f"no run of the {mix} mix at {multiple:g} times the deadlines")
    return found


def share(runs: Runs, mix: str, multiple: float = 1.0) -> float:
    """Return the share of requests in time, averaged over the seeds."""
    return mean([in_time(run) for run in of_mix(runs, mix, multiple)])


def system_share(runs: Runs, system: str, mix: str) -> float:
    """Return the share of Table 3."""
    return share(runs.where(system=system), mix)


def variant(runs: Runs, name: str) -> Runs:
    """Select the runs of a variant of Table 5."""
    placement, scale_up = VARIANTS[name]
    return runs.where(placement=str(placement), scale_up=str(scale_up))


def variant_share(runs: Runs, name: str, mix: str, multiple: float) -> float:
    """Return the share of a variant of Table 5."""
    return share(variant(runs, name), mix, multiple)


def variant_latency_s(runs: Runs, mix: str, multiple: float) -> list[float]:
    """Return the mean latency of the finished requests, by variant of Table 5."""
    return [
        mean([run.number("latency_s", "mean") for run in of_mix(variant(runs, name), mix, multiple)])
        for name in VARIANTS
    ]


def full_system_is_best(runs: Runs) -> bool:
    """Return True if no variant of Table 5 has a larger share than the full system, and the schedule a smaller one."""

    def is_best(mix: str, multiple: float) -> bool:
        schedule, placement, full = (variant_share(runs, name, mix, multiple) for name in VARIANTS)
        return full >= max(schedule, placement) and full > schedule + MIN_LEAD

    return all(is_best(mix, multiple) for mix, multiple in product(MIXES, (1.0, 1.5)))


def best_fixed(runs: Runs, mix: str, multiple: float) -> float:
    """Return the largest share of RSSP and xDiT's degrees."""
    xdit = runs.of(["tetriserve-figure7-xdit"])
    fixed = [share(xdit.where(degree=degree), mix, multiple) for degree in DEGREES]
    return max([*fixed, share(runs.where(system="rssp"), mix, multiple)])


def gain(runs: Runs, mix: str, multiple: float) -> float:
    """Return TetriServe's share over that of the best fixed degrees."""
    return share(runs.where(system="tetriserve"), mix, multiple) / best_fixed(runs, mix, multiple)


def is_first(runs: Runs, mix: str) -> bool:
    """Return True if TetriServe has the largest share at every multiple of the deadlines."""
    tetriserve = runs.where(system="tetriserve")
    return all(share(tetriserve, mix, each) > best_fixed(runs, mix, each) for each in SCALES)


def leads_rssp(runs: Runs) -> bool:
    """Return True if TetriServe has a larger share than RSSP in each mix at every multiple of the deadlines."""
    tetriserve, rssp = (runs.where(system=name) for name in ("tetriserve", "rssp"))
    return all(share(tetriserve, mix, each) > share(rssp, mix, each) for mix, each in product(MIXES, SCALES))


TABLE3 = [(system, mix) for mix in MIXES for system in ("rssp", "tetriserve", "rssp-nirvana", "tetriserve-nirvana")]
"""Cells of Table 3 in the order of the rows."""

TABLE5 = [(name, mix, multiple) for mix, multiple in product(MIXES, (1.0, 1.5)) for name in VARIANTS]
"""Cells of Table 5 in the order of the rows."""

MEASURES: Mapping[str, Measure] = {
    **{
        f"T3{letter}": partial(system_share, system=system, mix=mix)
        for letter, (system, mix) in zip("abcdefgh", TABLE3, strict=True)
    },
    **{
        f"T5{letter}": partial(variant_share, name=name, mix=mix, multiple=multiple)
        for letter, (name, mix, multiple) in zip("abcdefghijkl", TABLE5, strict=True)
    },
    **{
        f"T5-latency{number}": partial(variant_latency_s, mix=mix, multiple=multiple)
        for number, (mix, multiple) in enumerate(product(MIXES, (1.0, 1.5)), 1)
    },
    "T5-order": full_system_is_best,
    "T7a": partial(gain, mix="uniform", multiple=1.1),
    "T7b": partial(gain, mix="skewed", multiple=1.2),
    "T7-uniform": partial(is_first, mix="uniform"),
    "T7-skewed": partial(is_first, mix="skewed"),
    "T7-rssp": leads_rssp,
}
"""Measures by target id; conf/data/scorecard-measures.yaml has the experiments of each."""
