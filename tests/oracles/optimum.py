"""Offline optimum: the most deadlines that any schedule of one GPU could meet, for a handful of requests.

As in continuous batching, all active requests step together, a request joins or leaves only between two steps, no
request is interrupted, and preparing or decoding one holds up the others. The schedule is free in which request joins,
and when.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

Kind = int
"""Index of a request's size."""

NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """A request: its arrival, size, steps and deadline."""

    arrival_s: float
    kind: Kind
    steps: int
    deadline_s: float


def max_in_time(
    asked: Sequence[TimedRequest],
    step_s: Callable[[tuple[Kind, ...]], float],
    before_s: Callable[[Kind], float],
    after_s: Callable[[Kind], float],
    max_batch: int,
) -> int:
    """Return the largest number of ``asked`` that can meet their deadlines.

    The search covers every schedule except those that another certainly equals. Of requests that differ only in their
    deadlines, one that would join after a later one never joins, since each would do better in the other's place. A
    request that must be late never joins. The work grows as 3^n or faster with the number of requests: for ten or so.

    Args:
        step_s: seconds of one step of a batch of these sizes, in order.
        before_s, after_s: seconds to prepare and decode a request of a size.
    """
    price = cache(step_s)
    alike = [(each.kind, each.steps) for each in asked]

    @cache
    def best(now_s: float, active: tuple[tuple[int, int], ...], open_: frozenset[int]) -> int:
        """Return the largest number from here on: ``active`` are (index, steps left) by time of joining, ``open_`` may
        join."""
        done = [place for place, left in active if not left]
        if done:
            now_s, in_time = _decoded(now_s, [asked[place] for place in done], after_s)
            return in_time + best(now_s, tuple(each for each in active if each[1]), open_)
        batch = tuple(sorted(asked[place].kind for place, _ in active))
        open_ = frozenset(place for place in open_ if _can(asked[place], now_s, price, before_s, after_s))
        if not open_ and not active:
            return 0
        at_best = len(open_) + sum(
            now_s + left * price((asked[place].kind,)) + after_s(asked[place].kind) <= asked[place].deadline_s + NEARLY
            for place, left in active
        )
        max_met = 0
        here = [place for place in open_ if asked[place].arrival_s <= now_s + NEARLY]
        if len(active) < max_batch:
            earlier: dict[tuple[Kind, int], frozenset[int]] = {}
            for place in sorted(here, key=lambda place: (asked[place].deadline_s, place)):
                gone = earlier[alike[place]] = earlier.get(alike[place], frozenset()) | {place}
                joined = (*active, (place, asked[place].steps))
                max_met = max(max_met, best(now_s + before_s(asked[place].kind), joined, open_ - gone))
                if max_met == at_best:
                    return max_met
        if not at_best:
            return 0
        if active:
            min_steps = min(left for _, left in active)
            coming = [asked[place].arrival_s for place in open_ if asked[place].arrival_s > now_s + NEARLY]
            count = 1 if here else min_steps if not coming else _until(min(coming) - now_s, price(batch), min_steps)
            stepped = tuple((place, left - count) for place, left in active)
            return max(max_met, best(now_s + count * price(batch), stepped, open_))
        later = [asked[place].arrival_s for place in open_ if asked[place].arrival_s > now_s + NEARLY]
        return max(max_met, best(min(later), active, open_)) if later else max_met

    return best(0.0, (), frozenset(range(len(asked))))


def _until(gap_s: float, step_s: float, min_steps: int) -> int:
    """Return the steps until the next arrival or the end of a request."""
    return max(min(int(-(-(gap_s - NEARLY) // step_s)), min_steps), 1) if step_s > 0.0 else min_steps


def _can(
    each: TimedRequest,
    now_s: float,
    step_s: Callable[[tuple[Kind, ...]], float],
    before_s: Callable[[Kind], float],
    after_s: Callable[[Kind], float],
) -> bool:
    """Return whether the request would meet its deadline with the GPU to itself from now on."""
    standalone_s = before_s(each.kind) + each.steps * step_s((each.kind,)) + after_s(each.kind)
    return max(now_s, each.arrival_s) + standalone_s <= each.deadline_s + NEARLY


def _decoded(now_s: float, done: Sequence[TimedRequest], after_s: Callable[[Kind], float]) -> tuple[float, int]:
    """Return when all of ``done`` are decoded, and how many of them meet their deadlines, in the best order.

    The order is by deadline; before one that would be late, the longest is put off to the end (Moore and Hodgson,
    1968).
    """
    kept: list[float] = []
    for each in sorted(done, key=lambda each: each.deadline_s):
        kept.append(after_s(each.kind))
        if now_s + sum(kept) > each.deadline_s + NEARLY:
            kept.remove(max(kept))
    return now_s + sum(after_s(each.kind) for each in done), len(kept)
