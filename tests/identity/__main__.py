"""Compare what two commits write: ``python -m tests.identity BEFORE [AFTER]``.

Every case of ``cases.yaml`` runs in a process of its own in a checkout of each commit. A case is the same where
requests.parquet is equal byte by byte, and attempts.parquet if it was written. cluster.parquet and summary.json (its
``wall`` aside) are compared too; a difference there gets a line of its own and changes the status only with
``--strict``.
"""

import argparse
import fnmatch
import hashlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tests.identity import differences
from tests.identity.cases import Case, table
from tests.identity.trees import HERE, Failed, Tree, checkout, commit

MADE = 2000
"""Rows of the trace file, and of the given images."""

LAST = "summary.json"
"""The file that a run writes last."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two commits: its checkout, and the folder of its runs' outputs; ``kept`` is reused."""

    tree: Tree
    outputs: Path
    kept: bool

    def folder(self, case: Case) -> Path:
        """The run directory of ``case``."""
        return self.outputs / f"{case.name}-{_digest(case.overrides(self.tree.form))}"

    def runs(self, cases: Iterable[Case], jobs: int) -> Iterator[tuple[Case, str | None]]:
        """Run each case that is not kept. Yields each when it ends, with its failure if any."""
        found = [case for case in cases if self.kept and (self.folder(case) / LAST).exists()]
        yield from ((case, None) for case in found)
        left = [case for case in cases if case not in found]
        commands = [["run", *case.overrides(self.tree.form), f"run.dir={self.folder(case)}"] for case in left]
        for number, failure, _ in self.tree.runs(commands, jobs):
            yield left[number], failure


def main() -> int:
    """Print a line for every case. Returns 0 if all are the same, 1 if one differs, 2 for a wrong option."""
    args = _options()
    cases = [case for case in table() if fnmatch.fnmatch(case.name, args.cases)]
    if not cases:
        print(f"no case is named {args.cases}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="identity-") as temporary:
        try:
            counted = _compare(cases, *_sides(args, Path(temporary)), args)
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 2
    print(
        f"{len(cases)} cases: {counted['same']} same, {counted['differs']} differ, {counted['failed']} failed; "
        f"{counted['beside']} of the same differ in another file"
    )
    return int(counted["same"] < len(cases) or (args.strict and counted["beside"] > 0))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.identity", description="Compare what two commits write.")
    parser.add_argument("before", metavar="BEFORE", help="a commit")
    parser.add_argument("after", metavar="AFTER", nargs="?", default=HERE, help="a commit; else the working tree")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--cases", metavar="GLOB", default="*", help="only the cases of such names")
    parser.add_argument("--cache", metavar="DIR", type=Path, help="keep the runs of BEFORE here and find them again")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="copy all runs to DIR/before and DIR/after")
    parser.add_argument("--strict", action="store_true", help="status 1 too where only another file differs")
    return parser.parse_args()


def _sides(args: argparse.Namespace, temporary: Path) -> tuple[Side, Side]:
    """Return the two commits, ready to run, with the same inputs; the first commit makes them."""
    first = commit(args.before)
    before, after = (checkout(r, temporary / side) for r, side in ((args.before, "before"), (args.after, "after")))
    kept = args.cache is not None and first is not None
    outputs = args.cache.resolve() / f"{first}-{_environment()}" if kept else temporary / "before" / "runs"
    made = outputs / "made.parquet"
    if not made.exists():
        outputs.mkdir(parents=True, exist_ok=True)
        before.mezzotint("trace", "synth", "-o", str(made), "--requests", str(MADE), "--seed", "7")
    images = np.random.default_rng(7).standard_normal((MADE, 512)).astype(np.float32)
    for tree in (before, after):
        shutil.copy2(made, tree.work)
        np.save(tree.work / "images.npy", images)
    return Side(before, outputs, kept), Side(after, temporary / "after" / "runs", False)


def _compare(cases: list[Case], before: Side, after: Side, args: argparse.Namespace) -> Counter[str]:
    """Run every case on both sides and print what differs. Returns how many are the same, and how many are not."""
    counted: Counter[str] = Counter()
    with tqdm(total=2 * len(cases), unit="run", disable=None) as bar:
        failed = {}
        for case, failure in before.runs(cases, args.jobs):
            failed[case] = failure
            bar.update()
        for case, failure in after.runs(cases, args.jobs):
            sides = {"before": (before, failed[case]), "after": (after, failure)}
            found = {name: failure for name, (_, failure) in sides.items() if failure is not None}
            if found:
                verdict = "failed"
            else:
                found = differences.runs(before.folder(case), after.folder(case), before.tree.class_names)
                verdict = "same" if found.keys().isdisjoint(differences.RESULTS) else "differs"
            counted[verdict] += 1
            counted["beside"] += verdict == "same" and bool(found)
            for line in (f"{verdict:<8} {case.name}", *(f"{'':8} {what}: {text}" for what, text in found.items())):
                tqdm.write(line)
            if args.keep:
                for name, (side, failure) in sides.items():
                    if failure is None:
                        shutil.copytree(side.folder(case), args.keep / name / case.name, dirs_exist_ok=True)
            bar.update()
    return counted


def _environment() -> str:
    """Return a digest of the interpreter and the installed packages: other versions may round differently."""
    installed = sorted(f"{d.name} {d.version}" for d in distributions() if d.name != "mezzotint")
    return _digest([sys.version, *installed])


def _digest(words: list[str]) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
