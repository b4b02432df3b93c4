"""The command line: ``mezzotint VERB``."""

import os
import sys
from collections.abc import Sequence

from sim.config.choices import listed
from sim.ending import Terminated, end_workers, told_to_stop
from sim.errors import ConfigError
from sim.refusal import refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0, or 2 for anything that the user can put right."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["list"]:
            return listed(given[1:])
        # What the other verbs need takes seconds to import, and a list needs none of it.
        with told_to_stop():
            from sim.verbs import run

            return run(given)
    except ConfigError as error:
        return refuse(error)
    except KeyboardInterrupt as stop:
        end_workers()
        print("mezzotint: interrupted", file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
