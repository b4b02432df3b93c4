"""The most requests that any schedule of one GPU could have served in time, knowing what comes: for a handful of them.

Everything is as with step-by-step execution: all active requests step together, one joins or leaves between two steps,
nobody is interrupted, and while one is prepared or decoded the others wait. What is free is who joins, and when.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

Kind = int
"""Of a request: its size, as a place among all sizes."""

NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class RequestInputs:
    """A request: when it comes, its kind, its steps, and until when its image must be there."""

    arrival_s: float
    kind: Kind
    steps: int
    deadline_s: float


def most_in_time(
    asked: Sequence[RequestInputs],
    step_s: Callable[[tuple[Kind, ...]], float],
    before_s: Callable[[Kind], float],
    after_s: Callable[[Kind], float],
    limit: int,
) -> int:
    """How many of ``asked`` at most are in time.

    Every schedule is looked at, but for those of which it is clear that another is no worse: of requests alike but for
    their deadlines one that would join after a later one never joins (each would do better in the other's place), and
    nobody who cannot be in time joins. The work grows with the number of requests as 3^n and more: meant for up to ten
    or so.

    Args:
        asked: the requests.
        step_s: one step of a batch of these kinds, in order.
        before_s, after_s: preparing and decoding a request of a kind.
        limit: requests of a batch at most.
    """
    price = cache(step_s)
    alike = [(each.kind, each.steps) for each in asked]

    @cache
    def best(now_s: float, active: tuple[tuple[int, int], ...], open_: frozenset[int]) -> int:
        """The most from here on: ``active`` are (place, steps left) in the order of joining, ``open_`` may join."""
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
        most = 0
        here = [place for place in open_ if asked[place].arrival_s <= now_s + NEARLY]
        if len(active) < limit:
            earlier: dict[tuple[Kind, int], frozenset[int]] = {}
            for place in sorted(here, key=lambda place: (asked[place].deadline_s, place)):
                gone = earlier[alike[place]] = earlier.get(alike[place], frozenset()) | {place}
                joined = (*active, (place, asked[place].steps))
                most = max(most, best(now_s + before_s(asked[place].kind), joined, open_ - gone))
                if most == at_best:
                    return most
        if not at_best:
            return 0
        if active:
            least = min(left for _, left in active)
            coming = [asked[place].arrival_s for place in open_ if asked[place].arrival_s > now_s + NEARLY]
            count = 1 if here else least if not coming else _until(min(coming) - now_s, price(batch), least)
            stepped = tuple((place, left - count) for place, left in active)
            return max(most, best(now_s + count * price(batch), stepped, open_))
        later = [asked[place].arrival_s for place in open_ if asked[place].arrival_s > now_s + NEARLY]
        return max(most, best(min(later), active, open_)) if later else most

    return best(0.0, (), frozenset(range(len(asked))))


def _until(gap_s: float, step_s: float, least: int) -> int:
    """Steps until somebody comes, or somebody is done."""
    return max(min(int(-(-(gap_s - NEARLY) // step_s)), least), 1) if step_s > 0.0 else least


def _can(
    each: RequestInputs,
    now_s: float,
    step_s: Callable[[tuple[Kind, ...]], float],
    before_s: Callable[[Kind], float],
    after_s: Callable[[Kind], float],
) -> bool:
    """Whether it would be in time if it had the GPU for itself from now on."""
    standalone_s = before_s(each.kind) + each.steps * step_s((each.kind,)) + after_s(each.kind)
    return max(now_s, each.arrival_s) + standalone_s <= each.deadline_s + NEARLY


def _decoded(now_s: float, done: Sequence[RequestInputs], after_s: Callable[[Kind], float]) -> tuple[float, int]:
    """When all of ``done`` are decoded, and how many of them are in time, in the best order: by deadline, the longest
    of those before one that would be late put off to the end (Moore and Hodgson, 1968)."""
    kept: list[float] = []
    for each in sorted(done, key=lambda each: each.deadline_s):
        kept.append(after_s(each.kind))
        if now_s + sum(kept) > each.deadline_s + NEARLY:
            kept.remove(max(kept))
    return now_s + sum(after_s(each.kind) for each in done), len(kept)
