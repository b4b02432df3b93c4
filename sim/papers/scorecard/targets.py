"""Targets: the papers' numbers and the tolerance of each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from mezzotint.sim.papers.study import read_data

Role = Literal["predict", "fit", "input", "order", "inconsistent"]
Value = float | list[float] | bool
"""A number, a number for each of several settings, or True if an ordering is the paper's."""

REL_TOL = 0.05
"""Relative tolerance of a value without its own."""

Positive = Annotated[FiniteFloat, Field(gt=0)]


class Target(BaseModel):
    """A number, several numbers, a bound or an ordering that a paper reports.

    Attributes:
        id: unique among all systems.
        what: the quantity, with its unit in brackets.
        role: predict (scored), fit (may have fitted an input), input (a constant), order (an ordering or direction
            that is true in the paper), or inconsistent (no reading gives it together with the paper's other rows).
        source: table, figure or section of the paper.
        value: in the unit of ``what``; several must all be within tolerance.
        rel_tol, abs_tol: the tolerance, relative to the value or in its unit; ``REL_TOL`` if neither is set.
        at_least, at_most: the bound, if the paper gives no value.
        needs: requirements of its simulation other than the project.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Annotated[str, Field(pattern=r"^[A-Z]+\d+[a-z]?(-[a-z0-9]+)?$")]
    what: Annotated[str, Field(min_length=1)]
    role: Role
    source: str = ""
    value: FiniteFloat | Annotated[list[FiniteFloat], Field(min_length=1)] | None = None
    rel_tol: Positive | None = None
    abs_tol: Positive | None = None
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    needs: str = ""

    @property
    def values(self) -> list[float]:
        """The value as a list; empty if there is none."""
        if self.value is None:
            return []
        return self.value if isinstance(self.value, list) else [self.value]

    @property
    def paper(self) -> Value | None:
        """The paper's value or bound; True of an ordering, None if the numbers are in a file of their own."""
        if self.role == "order":
            return True
        return next((stated for stated in (self.value, self.at_least, self.at_most) if stated is not None), None)

    @property
    def tolerance(self) -> dict[str, float] | None:
        """The tolerance by its kind (``rel``, ``abs``, ``at_least`` or ``at_most``); None if not scored."""
        if self.role in ("order", "input", "inconsistent") or self.paper is None:
            return None
        for name in ("at_least", "at_most"):
            if (bound := getattr(self, name)) is not None:
                return {name: bound}
        return {"abs": self.abs_tol} if self.abs_tol is not None else {"rel": self.rel_tol or REL_TOL}


Targets = Mapping[str, list[Target]]
"""The targets of each system, in the order of the file."""


def load_targets(path: Path) -> dict[str, list[Target]]:
    """Read a file of targets, a list for each system. Raises ConfigError as ``read_data``."""
    targets: dict[str, list[Target]] = read_data(path, dict[str, list[Target]])
    return targets
