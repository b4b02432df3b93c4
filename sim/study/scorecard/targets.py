"""Targets: what a paper reports, and how far from it a simulation may land."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError, model_validator

from conf.document import DocumentError, parse
from conf.validation import first_error
from sim.errors import ConfigError

Role = Literal["predict", "fit", "input", "order", "contradicted"]
Value = float | list[float] | bool
"""A number, one number for each of several settings, or whether an ordering is as the paper has it."""

REL_TOL = 0.05
"""Relative tolerance of a value that states none."""

Positive = Annotated[FiniteFloat, Field(gt=0)]


class Target(BaseModel):
    """A number, several numbers, a bound or an ordering that a paper reports.

    Attributes:
        id: unique among all systems.
        what: the quantity, with its unit in brackets.
        role: predict (to be arrived at), fit (may have calibrated an input), input (taken as given), order (an
            ordering or a direction, true in the paper), contradicted (no single reading gives it together with the
            paper's other rows).
        source: table, figure or section of the paper.
        value: in the unit of ``what``; several are held only all together.
        rel_tol, abs_tol: the tolerance, relative to the value or in its unit; ``REL_TOL`` where neither is given.
        at_least, at_most: the bound, where the paper gives no value.
        needs: what a simulation of it takes beside the project itself.
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

    @model_validator(mode="after")
    def _consistent(self) -> "Target":
        told = [name for name in ("value", "at_least", "at_most") if getattr(self, name) is not None]
        allowed = [name for name in ("rel_tol", "abs_tol") if getattr(self, name) is not None]
        if self.role == "order" and told + allowed:
            raise ValueError(f"an ordering is true or false and has no {(told + allowed)[0]}")
        if len(told) > 1:
            raise ValueError(f"{told[0]} and {told[1]} exclude each other")
        if len(allowed) > 1:
            raise ValueError("rel_tol and abs_tol exclude each other")
        if allowed and told and told[0] != "value":
            raise ValueError(f"{allowed[0]} does not go with {told[0]}, which is the limit itself")
        if self.abs_tol is None and not all(self.values):
            raise ValueError("a value of 0 needs abs_tol")
        return self

    @property
    def values(self) -> list[float]:
        """The value as a list of one or more; empty where there is none."""
        if self.value is None:
            return []
        return self.value if isinstance(self.value, list) else [self.value]

    @property
    def paper(self) -> Value | None:
        """What the paper has: the value or bound, True of an ordering, None where it is in a file of its own."""
        if self.role == "order":
            return True
        return next((told for told in (self.value, self.at_least, self.at_most) if told is not None), None)

    @property
    def tolerance(self) -> dict[str, float] | None:
        """How far from ``paper`` is still held: ``rel``, ``abs``, ``at_least`` or ``at_most``; None if not scored."""
        if self.role in ("order", "input", "contradicted") or self.paper is None:
            return None
        for name in ("at_least", "at_most"):
            if (bound := getattr(self, name)) is not None:
                return {name: bound}
        return {"abs": self.abs_tol} if self.abs_tol is not None else {"rel": self.rel_tol or REL_TOL}


Targets = Mapping[str, list[Target]]
"""The targets of each system, in the order of the file."""


def load_targets(path: Path) -> dict[str, list[Target]]:
    """Read a file of targets, a list for each system. Raises ConfigError as ``read_data``, and for an id twice."""
    targets: dict[str, list[Target]] = read_data(path, dict[str, list[Target]])
    seen: set[str] = set()
    for system, listed in targets.items():
        for target in listed:
            if target.id in seen:
                raise ConfigError(f"{path}: {system}: the id {target.id} is there twice; give one of them another")
            seen.add(target.id)
    return targets


Reasons = Mapping[str, str | Mapping[str, str]]
"""Why rows are missed, by target id: a text that is true of every trace, or one for each column that it is known of."""


def load_reasons(path: Path, targets: Targets) -> dict[str, str | Mapping[str, str]]:
    """Why rows are missed, by target id. Raises ConfigError as ``read_data``, and for an id that is no target's."""
    said = read_data(path, dict[str, str | dict[str, str]] | None) or {}
    known = {target.id for listed in targets.values() for target in listed}
    for name in said:
        if name not in known:
            raise ConfigError(f"{path}: {name} is no target's id; correct it or take it out")
    return {
        name: " ".join(why.split()) if isinstance(why, str) else {of: " ".join(its.split()) for of, its in why.items()}
        for name, why in said.items()
    }


def reasons_of(column: str, reasons: Reasons) -> dict[str, str]:
    """What is known of one column, by target id."""
    told = {name: why if isinstance(why, str) else why.get(column) for name, why in reasons.items()}
    return {name: why for name, why in told.items() if why is not None}


def read_data(path: Path, form: Any) -> Any:
    """Return a YAML file as the type ``form``. Raises ConfigError: unreadable, no YAML, an entry of another form."""
    try:
        return TypeAdapter(form).validate_python(parse(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); put the file there") from None
    except DocumentError as error:
        raise ConfigError(f"{path}: is not valid YAML ({error}); correct the file") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_error(error)}; correct the file") from None
