"""The runs that two commits are compared on: ``cases.yaml``."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.identity.forms import rewritten

TABLE = Path(__file__).with_name("cases.yaml")


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its name, and its overrides in the old form and in the new one, as a shell would read them."""

    name: str
    old: str
    new: str | None = None

    def overrides(self, new: bool) -> list[str]:
        """The overrides in the form asked for; rewritten, where nothing says what the new form is."""
        if new and self.new is not None:
            return shlex.split(self.new)
        return rewritten(shlex.split(self.old)) if new else shlex.split(self.old)


def table() -> list[Case]:
    """All cases, in the order of the file."""
    found = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Case(name, **(said if isinstance(said, dict) else {"old": said})) for name, said in found.items()]
