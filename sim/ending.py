"""The end of a command that is told to stop, and of the processes that it has started."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

AGAIN_S = 0.01
"""Until a signal is sent again whose exception Python dropped."""

LOOK_S = 0.2
"""Between two looks of a worker process at whether the process that it works for is still there."""


class Terminated(KeyboardInterrupt):
    """The command was told to stop by SIGTERM, as a service manager does; it ends as by Ctrl-C."""


@contextmanager
def told_to_stop() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what was begun is put away and worker processes end.

    Python drops an exception that is raised in a finalizer or a weak reference's callback; the signal is sent again.
    """
    before, hook = signal.signal(signal.SIGTERM, _stop), sys.unraisablehook

    def send_again(dropped: "sys.UnraisableHookArgs") -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            number = signal.SIGTERM if isinstance(dropped.exc_value, Terminated) else signal.SIGINT
            threading.Timer(AGAIN_S, os.kill, (os.getpid(), number)).start()
        else:
            hook(dropped)

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.unraisablehook = hook


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interruption on which ``error`` arose, if it did: one that comes while a library tidies up is an error
    of another kind by the time it is seen."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def workers_end_with_us() -> None:
    """From now on joblib's worker processes end when this process is gone, however that went. They watch from their
    start, as one that waits for work may never get a task."""
    from joblib import parallel_config, register_parallel_backend  # takes a while, and most commands start no worker

    with parallel_config(backend="loky") as config:
        backend: Any = type(config["backend"])
    register_parallel_backend("loky", partial(backend, initializer=_end_with, initargs=(os.getpid(),)))


def end_workers() -> None:
    """Kill the worker processes, if there are any, without waiting for what they do."""
    workers = multiprocessing.active_children()
    for each in workers:
        if each.pid is not None:
            os.kill(each.pid, signal.SIGKILL)
    for each in workers:
        each.join()


def _stop(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _end_with(parent: int) -> None:
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)
