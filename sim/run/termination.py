"""Termination: end a command on a signal, together with its worker processes."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

RESEND_S = 0.2
"""Seconds until a signal is sent again after Python dropped its exception."""

POLL_S = 0.2
"""Seconds between a worker process's checks that its parent is alive."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as a service manager sends it; the command ends as after Ctrl-C."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM in the block into an exception, as Ctrl-C, so that files are cleaned up and workers end.

    Python drops exceptions in finalizers and callbacks of weak references; the signal is then sent again.
    """
    is_terminated = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal is_terminated
        is_terminated = True
        raise Terminated

    before, hook = signal.signal(signal.SIGTERM, stop), sys.unraisablehook

    def send_again(dropped: "sys.UnraisableHookArgs") -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            signal_number = signal.SIGTERM if isinstance(dropped.exc_value, Terminated) else signal.SIGINT
            start_new_thread(_send_later, (signal_number,))  # does not wait: a signal in here would be dropped too
        else:
            hook(dropped)

    sys.unraisablehook = send_again
    try:
        yield
    except KeyboardInterrupt as error:
        if is_terminated and not isinstance(error, Terminated):  # Ray raises one of its own in its place
            raise Terminated from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.unraisablehook = hook


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interruption behind ``error``, or None.

    A library that is interrupted in its cleanup may raise an error of another kind.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def workers_end_with_us() -> None:
    """Have joblib's worker processes end with this process, however it ends.

    They watch from their start, since an idle worker may never get a task.
    """
    from joblib import parallel_config, register_parallel_backend  # slow to import, and most commands start no worker

    with parallel_config(backend="loky") as config:
        backend: Any = type(config["backend"])
    register_parallel_backend("loky", partial(backend, initializer=_watch_parent, initargs=(os.getpid(),)))


@contextmanager
def ending_without(alive: Path | None) -> Iterator[None]:
    """End this worker process, which may be on another machine than its command, once the file ``alive`` is gone."""
    done = threading.Event()
    if alive is not None:
        _end_unless(lambda: done.is_set() or alive.exists())
    try:
        yield
    finally:
        done.set()


def end_workers() -> None:
    """Kill all worker processes at once, those of joblib and of Ray."""
    if (ray := sys.modules.get("ray")) is not None:
        ray.shutdown()
    workers = multiprocessing.active_children()
    for worker in workers:
        with suppress(ProcessLookupError):  # joblib kills the others once one is gone, and may be first
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGKILL)
    for worker in workers:
        worker.join()


def _send_later(signal_number: int) -> None:
    time.sleep(RESEND_S)
    os.kill(os.getpid(), signal_number)


def _watch_parent(parent: int) -> None:
    _end_unless(lambda: os.getppid() == parent)


def _end_unless(is_needed: Callable[[], bool]) -> None:
    """End this process at the first look at which it is not needed; a thread looks every POLL_S."""

    def watch() -> None:
        while is_needed():
            time.sleep(POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
