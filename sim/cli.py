"""The command line: ``mezzotint VERB``."""

import sys
from collections.abc import Sequence

from sim.choices import listed
from sim.errors import ConfigError
from sim.refusal import refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0, or 2 for anything that the user can put right."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["list"]:
        try:
            return listed(given[1:])
        except ConfigError as error:
            return refuse(error)
    # What a simulation needs takes seconds to import, and a list needs none of it.
    from sim.verbs import run

    return run(given)


if __name__ == "__main__":
    sys.exit(main())
