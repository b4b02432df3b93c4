"""One input: files that lie in an empty folder, and the commands that are given there."""

import hashlib
import random
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LENGTH = 8192
"""Random bytes that an input is drawn from; more than any takes."""


@dataclass(frozen=True, slots=True)
class Input:
    """What is fed to the program.

    Attributes:
        files: content by path, in the folder where the commands are given.
        commands: words after ``mezzotint``; each is given if the one before it was done.
        outputs: what the commands may make beside what they name in their cache.
        key: what a refusal has to name, one of these; empty where that is not one thing.
        refused: whether the first command may not be done.
        same: of a run, the digest of the requests.parquet that it has to write if it writes one.
        covers: what of the program's faces this input tries.
        quick: whether the first command, the run of a config.yaml, may be given without Hydra, which takes ten times
            as long as such a run; what is wrong then is confirmed by the command itself.
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
        """The commands as a shell takes them."""
        return " && ".join(shlex.join(["mezzotint", *words]) for words in self.commands)


def lay(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write files, content by path, into ``folder``."""
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def digest(content: bytes) -> str:
    """A name for content."""
    return hashlib.sha256(content).hexdigest()


def drawing(strategy: st.SearchStrategy[Input]) -> Callable[[int, str, int], Input]:
    """What draws inputs: the one of a seed, a kind and a number is the same every time, whatever was drawn before."""
    found: list[Input] = []

    @settings(database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(one: Input) -> None:
        found.append(one)

    def draw(seed: int, kind: str, number: int) -> Input:
        found.clear()
        chance = random.Random(f"{seed} {kind} {number}")
        while not found:  # bytes that a filter of the strategy refuses give nothing
            collect.hypothesis.fuzz_one_input(chance.randbytes(LENGTH))
        return found[0]

    return draw
