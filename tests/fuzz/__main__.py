"""Feed the program hostile input: ``python -m tests.fuzz --inputs 10000 --seed 1 [--only config]``.

Ends with status 1 after any failure, which is printed with its commands and kept with its files in a folder of its
own; ``--seed N --only KIND --at NUMBER`` repeats the input.
"""

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from tests.fuzz import caches, config, importers, profiles, rundirs
from tests.fuzz.inputs import Input, drawing, lay
from tests.fuzz.pool import judge_all

KINDS = {
    "config": (config.inputs, 10),
    "importers": (importers.inputs, 5),
    "profiles": (profiles.inputs, 2),
    "caches": (caches.inputs, 1),
    "rundirs": (rundirs.inputs, 2),
}
"""What draws the inputs of each kind, and how many of twenty are of it."""

SHOWN = 4
"""Inputs reported for each kind of failure; the others are counted."""


def numbered(kind: str, seed: int, numbers: Iterable[int]) -> Iterator[tuple[int, Input]]:
    """Yield the inputs of a kind with their numbers."""
    draw = drawing(KINDS[kind][0]())
    return ((number, draw(seed, kind, number)) for number in numbers)


def main() -> int:
    """Judge the requested inputs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="in all (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--only", choices=list(KINDS), action="append", help="inputs of this kind; may be repeated")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="leave out those before")
    parser.add_argument("--at", type=int, metavar="N", help="this one input alone, printed in full")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--keep", type=Path, default=Path("results/runs/fuzz"), metavar="DIR")
    args = parser.parse_args()
    kinds = {kind: share for kind, (_, share) in KINDS.items() if args.only is None or kind in args.only}
    found: Counter[str] = Counter()
    statuses: Counter[object] = Counter()
    covered: set[str] = set()
    seen: Counter[tuple[str, str]] = Counter()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    total, began = 0, time.monotonic()
    for kind, share in kinds.items():
        share_of = args.inputs * share // sum(kinds.values())
        numbers = range(args.first, share_of) if args.at is None else range(args.at, args.at + 1)
        inputs = numbered(kind, args.seed, numbers)
        bar = tqdm(judge_all(inputs, min(args.jobs, len(numbers))), total=len(numbers), desc=kind, disable=None)
        for number, given, status, output, wrong in bar:
            total += 1
            statuses[status] += 1
            covered.add(given.covers)
            if args.at is not None:
                print(f"{given.spelled()}\nstatus {status}: {output}")
            if wrong and all(each.startswith("over ") for each in wrong):  # a busy machine is slow: try once more
                _, _, _, _, wrong = next(iter(judge_all(iter([(number, given)]), 1)))
            if not wrong:
                continue
            found[kind] += 1
            alike = kind, re.sub(r"\d+|'[^']*'|\S*/\S*", "~", wrong[0])[:90]
            seen[alike] += 1
            if seen[alike] > SHOWN:
                continue
            folder = args.keep / f"{kind}-{args.seed}-{number}"
            folder.mkdir(parents=True, exist_ok=True)
            lay(given.files, folder)
            again = f"python -m tests.fuzz --seed {args.seed} --only {kind} --at {number}"
            lines = [f"{kind} {number} [{given.covers}]", *(f"  {each}" for each in wrong)]
            text = "\n".join([*lines, f"  cd {folder} && {given.spelled()[:500]}", f"  {again}"])
            bar.write(text, file=sys.stdout)
            sys.stdout.flush()
    seconds = time.monotonic() - began
    print(
        f"{total} inputs, seed {args.seed}, {seconds:.0f} s: "
        f"{statuses[0]} done, {statuses[2]} refused; {found.total()} with something wrong {dict(found)}; "
        f"{len(covered)} keys and faces tried"
    )
    for (kind, text), count in seen.most_common():
        print(f"{count:6} {kind}: {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
