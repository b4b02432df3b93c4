"""The runs that two commits are compared on: ``cases.yaml``."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

TABLE = Path(__file__).with_name("cases.yaml")


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its name and its overrides."""

    name: str
    overrides: tuple[str, ...]


def table() -> list[Case]:
    """All cases, in the order of the file."""
    found = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Case(name, tuple(shlex.split(said))) for name, said in found.items()]
