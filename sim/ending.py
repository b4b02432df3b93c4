"""The end of a command that is told to stop, and of the processes that it has started."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LOOK_S = 0.2
"""Between two looks of a worker process at whether the process that it works for is still there."""

_WATCH = "mezzotint-watch"


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


def end_with_parent() -> None:
    """In a worker process of joblib's: end when the process that it works for is gone, however that went.

    Elsewhere, as in a worker of Ray's or Slurm's, there is nothing to do.
    """
    worker = "Loky" in multiprocessing.current_process().name
    if worker and all(thread.name != _WATCH for thread in threading.enumerate()):
        threading.Thread(target=_watch, args=(os.getppid(),), name=_WATCH, daemon=True).start()


def end_workers() -> None:
    """Kill joblib's worker processes, if there are any, without waiting for what they do."""
    loky = sys.modules.get("joblib.externals.loky.reusable_executor")
    executor = None if loky is None else loky._executor
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)
