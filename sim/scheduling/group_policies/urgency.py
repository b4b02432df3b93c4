"""The order of urgency of requests, and the GPUs that one takes."""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from mezzotint.sim.core.progress import Progress

Urgency = tuple[float, float, int]
"""Order of urgency: deadline, then arrival, then order of submission."""

Options = list[tuple[int, float]]
"""Parallel degrees, ascending, each with the estimated seconds that are left of a request on it."""


def urgency(progress: Progress) -> Urgency:
    """Return the key of the order of deadlines; the smallest is the most urgent."""
    return progress.request.deadline_s, progress.request.arrival_s, progress.submission_index


class Queue(list[tuple[Urgency, Progress]]):
    """Requests that wait, the most urgent first."""

    __slots__ = ()

    def add(self, progress: Progress) -> None:
        insort(self, (urgency(progress), progress))

    def leave(self, progress: Progress) -> None:
        """Take out ``progress``, which waits."""
        del self[bisect_left(self, (urgency(progress),))]


def take(degree: int, idle: list[int], kept: tuple[int, ...]) -> tuple[int, ...]:
    """Take ``degree`` GPUs from ``idle``: those of ``kept`` if they are so many and all idle, else the lowest."""
    gpus = kept if len(kept) == degree and all(gpu in idle for gpu in kept) else tuple(idle[:degree])
    for gpu in gpus:
        idle.remove(gpu)
    return gpus


def widen(
    chosen: dict[Progress, int],
    free: int,
    allowed: Callable[[Progress], Sequence[int]],
    seconds: Callable[[Progress, int], float],
) -> int:
    """Widen the first of ``chosen`` that its next degree makes faster, again and again; return the GPUs still free.

    Args:
        chosen: parallel degree by request.
        allowed: the degrees of a request, ascending.
        seconds: what makes a request faster on a degree.
    """
    while free:
        for progress, degree in chosen.items():
            wider = next((each for each in allowed(progress) if degree < each <= degree + free), 0)
            if wider and seconds(progress, wider) < seconds(progress, degree):
                chosen[progress] = wider
                free -= wider - degree
                # From the first again after each step (test_every_reference_table_is_equal_request_by_request).
                break
        else:
            break
    return free
