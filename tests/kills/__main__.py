"""``python -m tests.kills --moments 200 --seed 1``: kill commands at random moments, by hand; minutes to hours."""

import argparse
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.kills.trials import COMMANDS, SCORECARD, trials


def main() -> int:
    """Run the trials; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the commands")
    parser.add_argument("--launcher", default="joblib", help="where sweep, rate and plan run; ray: see RAY_ADDRESS")
    asked = parser.parse_args()
    known = [*COMMANDS, SCORECARD]
    chosen = [each for each in known if asked.only is None or each.name in asked.only]
    # A shell's background job ignores SIGINT, and its commands would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mezzotint-kills-") as folder:
        for number, (said, killed) in enumerate(
            trials(Path(folder), chosen, asked.moments, asked.seed, asked.launcher), 1
        ):
            counts[outcome := "killed" if killed else "ended before"] += 1
            print(f"{number} of {asked.moments}: {said}: {outcome}", flush=True)
    print(f"seed {asked.seed}: {asked.moments} moments, {dict(counts)}, nothing lost and nothing wrong left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
