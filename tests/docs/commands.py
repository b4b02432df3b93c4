"""Run the commands of the how-to and systems pages as printed: ``python -m tests.docs.commands [PAGE ...]``.

Each page has two minutes, a temporary folder of its own, and an empty disk cache. The files that it shows are written
first, and those that it expects of the reader are made up (``READERS``). A block after a line
``<!-- not run: REASON -->`` is left out, and the reason is printed. Exit status 1 means that a command failed or that a
page took longer.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = [path for folder in ("how-to", "systems") for path in sorted((DOCS / folder).glob("*.md"))]
LIMIT_S = 120.0
READERS = {
    "log.parquet": "mezzotint trace synth -o log.parquet --requests 3000 --seed 1",
    "mine.parquet": "mezzotint trace synth -o mine.parquet --requests 3000 --seed 1",
    "log.csv": "printf 'prompt\\na red fox\\na red fox in snow\\na lighthouse at night\\n' > log.csv",
    "my-prices.yaml": "echo 'mi210: 1.5' > my-prices.yaml",
}
"""Files that a page expects of its reader, and how to make one."""

BLOCK = re.compile(r"(?:^<!-- not run: (.+?) -->\n+)?^```(sh|python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Timed:
    """What a page took: seconds on the clock, and of all processors."""

    page: str
    wall_s: float = 0.0
    cpu_s: float = 0.0
    commands: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        return "failed" if self.failed else "over two minutes" if self.wall_s > LIMIT_S else "ok"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a page in their order, their continued lines joined, and why one is not run."""
    for reason, language, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines() if language == "sh" else ():
            if line.strip() and not line.startswith("#"):
                yield " ".join(line.split()), reason


def write_files(text: str, folder: Path) -> None:
    """Write the files that the blocks of a page name in their first comments; a later part is appended."""
    for _, language, block in BLOCK.findall(text):
        found = re.search(r"^# (?:In )?([\w./-]+\.(?:py|yaml))\b", block, re.MULTILINE)
        if language == "sh" or found is None:
            continue
        path = folder / found[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(block)


def run_page(page: Path) -> Timed:
    """Run the commands of ``page``, each after the one before it, and print each as it ends."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(DOCS).as_posix()
    timed = Timed(name)
    print(name, flush=True)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "here")
        folder.mkdir()
        environment = os.environ | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "MEZZOTINT_CACHE": str(Path(temporary, "cache")),
        }
        write_files(text, folder)
        run = " ".join(words for words, reason in commands(text) if not reason)
        made_here = " ".join(re.findall(r"(?:-o|>) (\S+)", run))
        for file, how in READERS.items():
            if file in run and file not in made_here:
                subprocess.run(how, shell=True, cwd=folder, env=environment, check=True, capture_output=True)
        for words, reason in commands(text):
            if reason:
                timed.skipped += 1
                print(f"  not run, {reason}: {words}", flush=True)
                continue
            began, before = time.perf_counter(), _children_s()
            done = subprocess.run(["bash", "-c", words], cwd=folder, env=environment, capture_output=True, text=True)
            wall_s, cpu_s = time.perf_counter() - began, _children_s() - before
            timed.wall_s, timed.cpu_s, timed.commands = timed.wall_s + wall_s, timed.cpu_s + cpu_s, timed.commands + 1
            print(f"  {wall_s:6.1f} s, {cpu_s:6.1f} CPU-s: {words}", flush=True)
            if done.returncode:
                timed.failed.append(words)
                print(f"  ended with status {done.returncode}: {done.stderr.strip()[-1000:]}", flush=True)
    return timed


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(names: Sequence[str]) -> int:
    pages = [page for page in PAGES if not names or any(str(page).endswith(f"{name}.md") for name in names)]
    unknown = [name for name in names if not any(str(page).endswith(f"{name}.md") for page in pages)]
    if unknown:
        print(f"{unknown[0]}: no such page; expected one of {', '.join(page.stem for page in PAGES)}", file=sys.stderr)
        return 2
    results = []
    for at, page in enumerate(pages, start=1):
        print(f"[{at}/{len(pages)}] ", end="")
        results.append(run_page(page))
    print(f"\n{'page':34} {'run':>4} {'left':>4} {'wall s':>7} {'CPU s':>7}  verdict")
    for row in results:
        print(f"{row.page:34} {row.commands:4} {row.skipped:4} {row.wall_s:7.1f} {row.cpu_s:7.1f}  {row.verdict}")
    return int(any(row.verdict != "ok" for row in results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as how-to/cache; all without one")
    sys.exit(main(parser.parse_args().pages))
