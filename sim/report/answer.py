"""The sentences at the top of a report: which system meets the limit, at which cost, and what to beware of."""

from collections.abc import Sequence
from dataclasses import dataclass

from mezzotint.figures.page import number, percent
from mezzotint.sim.core.slo import OWN
from mezzotint.sim.report import tables
from mezzotint.sim.report.compare import SeriesAtLoad, beyond_noise, cells, limit_name, shared_loads, slo_multiples
from mezzotint.sim.report.runs import Run

TARGET = 0.95
"""Share of requests within the limit from which a system meets it, as in `mezzotint plan capacity`."""

_MAX_NAMED = 3
_MAX_LISTED = 4


@dataclass(frozen=True, slots=True)
class _Result:
    """A system at a load: its share of requests within the limit, US$ per image, and quality."""

    cell: SeriesAtLoad
    share: float
    usd: float | None
    quality: float | None

    @property
    def meets(self) -> bool:
        """True if the share reaches the target and the system is not overloaded."""
        return self.share >= TARGET and not self.cell.is_overloaded

    def words(self, of: str = "", per: str = "") -> str:
        """Return the share and the cost: "71.0 % of requests at 0.004 US$ per image (overloaded)"."""
        cost = f" at {_usd(self.usd)}{per}" if self.usd is not None else ""
        return f"{_share(self.share)}{of}{cost}{' (overloaded)' if self.cell.is_overloaded else ''}"


def answer(runs: Sequence[Run]) -> str:
    """Return which system meets the tightest limit at the highest load, at which cost, and how the others compare."""
    grid = cells(runs)
    for name in slo_multiples(runs):
        results = [
            _Result(cell, 1 - late, cell.mean("cost_usd", "per_image"), cell.mean(*tables.QUALITY))
            for cell in grid
            if (late := cell.mean("slo", name, "violation_rate")) is not None
        ]
        if results:
            has_one_seed = all(len(result.cell.runs) == 1 for result in results)
            is_several = len({result.cell.series for result in results}) > 1
            noise = "Each has one seed, so small differences may be noise." if is_several and has_one_seed else ""
            return " ".join(filter(None, [_meeting(name, results, runs), _say_max_rates(name, results), noise]))
    return _fastest(grid)


def caveats(runs: Sequence[Run]) -> list[str]:
    """Return what a reader must know beside the answer: unlike images, overloaded systems, failed requests."""
    grid, texts = cells(runs), []
    if images := tables.different_images(runs):
        groups = "; ".join(f"{image}: {names}" for image, names in images)
        texts.append(
            "These runs make different images. Their speed and cost cannot be compared, so no value is marked as best. "
            f"The groups are: {groups}."
        )
    if growing := [cell for cell in grid if cell.is_overloaded]:
        texts.append(
            f"Overloaded: {_at_loads(growing)}. They serve less than is offered for as long as requests arrive, "
            "so latencies and shares depend on the length of the trace."
        )
    if losing := [(share, cell) for cell in grid if (share := tables.lost_share(cell)) > 0]:
        share, worst = max(losing, key=lambda pair: pair[0])
        texts.append(
            f"Failed or discarded requests: {_at_loads([cell for _, cell in losing])}; at most {percent(share)} "
            f"({worst.series} at {worst.load.label})."
        )
    return texts


def _meeting(name: str, results: Sequence[_Result], runs: Sequence[Run]) -> str:
    """Say which system meets the limit at the highest load at which one does, or that none does at any."""
    met = {result.cell.load for result in results if result.meets}
    shared = shared_loads(result.cell for result in results)
    loads = sorted({result.cell.load for result in results}, key=lambda load: load.order)
    load = next((load for load in (*reversed(shared), *reversed(loads)) if load in met), shared[0])
    here = sorted((result for result in results if result.cell.load == load), key=lambda result: -result.share)
    meeting, target = [result for result in here if result.meets], percent(TARGET, 0)
    if not meeting:
        subject = "The system does not meet" if len(here) == 1 else "No system meets"
        scope = f"at {load.label}" if len(loads) == 1 else f"at any of {len(loads)} loads"
        best = f"{here[0].cell.series} meets it in {here[0].words(per=' per image')}{_others(here[1:])}"
        return f"{subject} the {limit_name(name)} in {target} of requests {scope}. At {load.label}, {best}."
    lead, praise, quality = meeting[0], "", ""
    if not tables.different_images(runs):
        if len(meeting) == 1 < len(here):
            praise = f", the only one of {len(here)} that reaches {target}"
        elif len(meeting) > 1 and all(result.usd is not None for result in meeting):
            lead = min(meeting, key=lambda result: result.usd or 0.0)
            is_clear = all(_is_cheaper(lead, other) for other in meeting if other is not lead)
            praise = f", {'' if is_clear else 'among '}the cheapest of {len(meeting)} that reach {target}"
        quality = _best_quality(here, lead)
    rest = _others([result for result in here if result is not lead])
    beyond = f" At {loads[-1].label}, none does." if loads[-1] not in met else ""
    words = lead.words(" of requests", " per image")
    return (
        f"At {load.label}, {lead.cell.series} meets the {limit_name(name)} in {words}{praise}{rest}.{beyond}{quality}"
    )


def _others(others: Sequence[_Result]) -> str:
    named = "".join(f"; {other.cell.series} in {other.words()}" for other in others[:_MAX_NAMED])
    if rest := others[_MAX_NAMED:]:
        low, high = _share(rest[-1].share), _share(rest[0].share)
        named += f"; {len(rest)} more in {low}" + (f" to {high}" if low != high else "")
    return named


def _is_cheaper(one: _Result, other: _Result) -> bool:
    """Return True if the costs differ as printed, and beyond the noise of seeds if there are several."""
    has_seeds = min(len(one.cell.runs), len(other.cell.runs)) > 1
    return _usd(one.usd) != _usd(other.usd) and (
        not has_seeds or beyond_noise(one.cell, other.cell, "cost_usd", "per_image")
    )


def _best_quality(here: Sequence[_Result], lead: _Result) -> str:
    """Name the system with the best images, if it is one and not the lead."""
    best = max(here, key=lambda result: result.quality or 0.0)
    if best.quality is None or lead.quality is None or number(best.quality, 3) == number(lead.quality, 3):
        return ""
    return (
        f" Best known quality: {best.cell.series} with {number(best.quality, 3)}; "
        f"{lead.cell.series} has {number(lead.quality, 3)}."
    )


def _say_max_rates(name: str, results: Sequence[_Result]) -> str:
    """Say up to which rate each system meets the limit, at that rate and all lower ones."""
    rates: dict[str, list[tuple[float, bool]]] = {}
    for result in results:
        cell = result.cell
        if cell.load.rate_rpm is not None:
            rates.setdefault(cell.series, []).append((cell.load.rate_rpm, result.meets))
    if max(map(len, rates.values()), default=0) < 2:
        return ""
    highest: dict[float, list[str]] = {}
    for series, tried in rates.items():
        best = 0.0
        for rate, meets in sorted(tried):
            if not meets:
                break
            best = rate
        highest.setdefault(best, []).append(series)
    if not any(highest):
        return ""
    parts = [
        f"{_list(names)} {f'up to {rate:g} rpm' if rate else 'at no rate'}"
        for rate, names in sorted(highest.items(), reverse=True)
    ]
    within = limit_name(name) if name == OWN else name
    return f"At least {percent(TARGET, 0)} of requests are within {within}: {'; '.join(parts)}."


def _fastest(grid: Sequence[SeriesAtLoad]) -> str:
    """Name the system with the lowest p95 latency at the highest load, where no run has a limit."""
    known = [(p95, cell) for cell in grid if (p95 := cell.mean("latency_s", "p95")) is not None]
    if not known:
        return "No run has a latency."
    load = known[-1][1].load
    here = sorted((pair for pair in known if pair[1].load == load), key=lambda pair: pair[0])
    (seconds, first), *rest = here
    others = "".join(f"; {cell.series} {number(p95, 3)} s" for p95, cell in rest[:_MAX_NAMED])
    best = f"the p95 latency of {first.series} is {number(seconds, 3)} s"
    return f"No run has a latency limit. At {load.label}, {best}{others}."


def _at_loads(members: Sequence[SeriesAtLoad]) -> str:
    """Return systems with their loads: "vanilla at 14 rpm and 22 rpm; nirvana at 22 rpm"."""
    loads: dict[str, list[str]] = {}
    for cell in members:
        loads.setdefault(cell.series, []).append(cell.load.label)
    named = [f"{series} at {_list(at)}" for series, at in loads.items()]
    more = [f"{len(named) - _MAX_LISTED} more systems"] if len(named) > _MAX_LISTED else []
    return "; ".join(named[:_MAX_LISTED] + more)


def _list(words: Sequence[str]) -> str:
    """Return words in a row: "a, b and c"; long rows are cut."""
    *first, last = words if len(words) <= _MAX_LISTED else [*words[:_MAX_LISTED], f"{len(words) - _MAX_LISTED} more"]
    return f"{', '.join(first)} and {last}" if first else last


def _share(value: float) -> str:
    """Return a share in per cent, with more decimals where rounding would reach the target or all requests."""
    is_close = value not in (TARGET, 1.0) and min(abs(value - TARGET), abs(value - 1.0)) < 5e-4
    return percent(value, 4 if is_close else 1)


def _usd(value: float | None) -> str:
    return f"{number(value, 3)} US$"
