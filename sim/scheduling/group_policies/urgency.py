"""The order of urgency of requests, and the GPUs that one takes."""

from bisect import bisect_left, insort

from mezzotint.sim.core.progress import Progress

Urgency = tuple[float, float, int]
"""Order of urgency: deadline, then arrival, then order of submission."""


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


def take(progress: Progress, degree: int, idle: list[int], stays: bool = True) -> tuple[int, ...]:
    """Take ``degree`` GPUs from ``idle``: its previous ones if it ``stays`` and can, else those of lowest number.

    A request can stay if its previous GPUs are ``degree`` many and all idle.
    """
    last = progress.group if stays else None
    if last is not None and len(last.gpus) == degree and all(gpu in idle for gpu in last.gpus):
        gpus = last.gpus
    else:
        gpus = tuple(idle[:degree])
    for gpu in gpus:
        idle.remove(gpu)
    return gpus
