"""One input: files in an otherwise empty folder, and the commands to run there."""

import hashlib
import random
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LENGTH = 8192
"""Random bytes to draw an input from; more than any takes."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the program.

    Attributes:
        files: content by path, in the folder where the commands run.
        commands: words after ``mezzotint``; each runs if the one before it succeeded.
        outputs: what the commands may make beside the files that they name and their cache.
        key: a refusal must name one of these; empty where several keys are at fault.
        refused: whether the first command must be refused.
        same: the digest of the requests.parquet that a run must write if it writes one.
        covers: the part of the program that this input tries.
        quick: whether the first command, the run of a config.yaml, may skip Hydra, which takes ten times as long as
            such a run; the command itself then confirms a failure.
    """

    files: tuple[tuple[str, bytes], ...]
    commands: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...]
    key: tuple[str, ...] = ()
    refused: bool = False
    same: str | None = None
    covers: str = ""
    quick: bool = False

    def spelled(self) -> str:
        """Return the commands as a shell takes them."""
        return " && ".join(shlex.join(["mezzotint", *words]) for words in self.commands)


def lay(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write files, content by path, into ``folder``."""
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def digest(content: bytes) -> str:
    """Return a name for content."""
    return hashlib.sha256(content).hexdigest()


def drawing(strategy: st.SearchStrategy[Input]) -> Callable[[int, str, int], Input]:
    """Draw the input of a seed, a kind and a number: the same every time, whatever was drawn before."""
    found: list[Input] = []

    @settings(database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(one: Input) -> None:
        found.append(one)

    def draw(seed: int, kind: str, number: int) -> Input:
        found.clear()
        chance = random.Random(f"{seed} {kind} {number}")
        while not found:  # bytes that a filter of the strategy refuses give no input
            collect.hypothesis.fuzz_one_input(chance.randbytes(LENGTH))
        return found[0]

    return draw
