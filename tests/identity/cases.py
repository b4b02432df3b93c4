"""The runs that two commits are compared on: ``cases.yaml``."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.identity.forms import Form

TABLE = Path(__file__).with_name("cases.yaml")


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its name, and its overrides in present names, as a shell would read them."""

    name: str
    words: str

    def overrides(self, form: Form = str) -> list[str]:
        """Return the overrides, in the names of the version whose ``form`` is given."""
        return [form(word) for word in shlex.split(self.words)]


def table() -> list[Case]:
    """Return all cases, in the order of the file."""
    found = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Case(name, words) for name, words in found.items()]
