"""The end of a command that is told to stop, and of the processes that it has started."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

LOOK_S = 0.2
"""Between two looks of a worker process at whether the process that it works for is still there."""


class Terminated(KeyboardInterrupt):
    """The command was told to stop by SIGTERM, as a service manager does; it ends as by Ctrl-C."""


@contextmanager
def told_to_stop() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what was begun is put away and worker processes end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interruption(error: BaseException) -> KeyboardInterrupt | None:
    """The interruption on which ``error`` arose, if it did.

    One that comes while a class is made, or a library tidies up, is an error of another kind by the time it is seen.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, KeyboardInterrupt):
            return each
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            waiting += [each.__cause__, each.__context__]
    return None


def workers_end_with_us() -> None:
    """From now on joblib's worker processes end when this process is gone, however that went.

    They watch from their start, and not from their first task, which one that waits for work may never get; and they
    are told who they work for, as it may be gone by then. Whoever starts workers of another kind (Ray's, Slurm's) sees
    to their end.
    """
    from joblib import register_parallel_backend  # takes a while, and most commands start no worker
    from joblib._parallel_backends import LokyBackend

    class Watched(LokyBackend):  # type: ignore[misc]
        def configure(self, *args: Any, **kwargs: Any) -> Any:
            return super().configure(*args, initializer=_end_with, initargs=(os.getpid(),), **kwargs)

    register_parallel_backend("loky", Watched)


def end_workers() -> None:
    """Kill joblib's worker processes, if there are any, without waiting for what they do."""
    loky = sys.modules.get("joblib.externals.loky.reusable_executor")
    executor = None if loky is None else loky._executor
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _end_with(parent: int) -> None:
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)
