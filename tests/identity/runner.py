"""Runs many command lines of one checkout, each in a process of its own. A script: it imports that checkout alone.

Importing takes longer than most runs, so it is done once: every command line runs in a fork of a process that has
imported the command and run nothing. ``trees.py`` starts it with the checkout alone on PYTHONPATH.
"""

import json
import os
import signal
import sys
import traceback
from importlib import import_module


def main() -> None:
    """Read what to run from standard input; print the number, status and CPU-seconds of each command as it ends."""
    order = json.load(sys.stdin)
    module, _, function = order["entry"].partition(":")
    command = import_module(module)
    if not str(command.__file__).startswith(order["code"]):
        raise ImportError(f"{module} was found in {command.__file__}, not in {order['code']}")
    running: dict[int, int] = {}

    def ended() -> None:
        process, status, usage = os.wait4(-1, 0)
        cpu_s = usage.ru_utime + usage.ru_stime
        print(running.pop(process), os.waitstatus_to_exitcode(status), cpu_s, flush=True)

    for number, words in enumerate(order["commands"]):
        if len(running) == order["jobs"]:
            ended()
        process = os.fork()
        if process == 0:
            signal.alarm(order["limit_s"])
            log_file = os.open(f"{number}.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(log_file, 1)
            os.dup2(log_file, 2)
            sys.argv = ["mezzotint", *words]
            os._exit(_status(getattr(command, function)))
        running[process] = number
    while running:
        ended()


def _status(command: object) -> int:
    """Run ``command`` and flush its output; return the exit status, 1 if it raises."""
    try:
        sys.exit(command())
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main()
