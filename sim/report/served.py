"""The models that a run served with: which images, at which precision, and how their times are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conf.printable import printable

BASES = {
    "measured": "measured",
    "published": "measured by others",
    "scaled": "scaled from another measurement",
    "assumed": "assumed",
    "live": "live",
}
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Work:
    """The images that a run makes. Speeds compare only between runs of equal work.

    Sizes and steps are None where requests bring their own, precision where it is not known.
    """

    model: str
    width: int | None
    height: int | None
    steps: int | None
    precision: str | None

    def __str__(self) -> str:
        size = "own sizes" if self.width is None or self.height is None else f"{self.width}x{self.height}"
        steps = "own steps" if self.steps is None else f"{self.steps} steps"
        return f"{self.model}, {size}, {steps}, {self.precision or f'precision {UNKNOWN}'}"


@dataclass(frozen=True, slots=True)
class Served:
    """One model of a run.

    Attributes:
        basis: a key of BASES; None where it is not known.
        service_error: the known relative error of its service times, a fraction; None where it is not known.
    """

    role: str
    work: Work
    basis: str | None
    service_error: float | None

    @property
    def basis_words(self) -> str:
        """The basis as a table shows it."""
        return BASES.get(self.basis or "", UNKNOWN)

    @property
    def told_basis(self) -> str:
        """The basis as it reads without a heading."""
        return BASES.get(self.basis or "", f"basis {UNKNOWN}")

    def __str__(self) -> str:
        return f"{self.work} ({self.told_basis})"


def served(summary: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Served, ...]:
    """Return a run's models, the reference model first; none where the summary, an older one, does not tell them.

    The first role of ``config``, the resolved configuration by dotted key, is the reference model's.
    """
    roles = [key.split(".")[1] for key in config if key.startswith("models.")] or ["large"]
    found = []
    for row in summary.get("models") or []:
        precision = row["precision"] and printable(row["precision"])
        work = Work(printable(row["model"]), row["width"], row["height"], row["steps"], precision)
        found.append(Served(row["role"], work, row["basis"], row["service_error"]))
    return tuple(sorted(found, key=lambda each: roles.index(each.role) if each.role in roles else len(roles)))


def service_error(models: Sequence[Served]) -> float | None:
    """Return the largest known error of the models' service times; None where that of some model is not known."""
    errors = [each.service_error for each in models]
    known = [error for error in errors if error is not None]
    return max(known) if known and len(known) == len(errors) else None


def unlike(runs: Sequence[tuple[str, Sequence[Served]]]) -> list[tuple[str, list[str]]]:
    """Group runs (name, models) by the work of their reference model.

    Returns the work with its basis, and the names of the runs that do it; nothing where all do the same.
    """
    groups: dict[Work, list[tuple[str, Served]]] = {}
    for name, models in runs:
        if models:
            groups.setdefault(models[0].work, []).append((name, models[0]))
    if len(groups) < 2:
        return []
    found = []
    for work, of in groups.items():
        bases = ", ".join(dict.fromkeys(each.told_basis for _, each in of))
        found.append((f"{work} ({bases})", list(dict.fromkeys(name for name, _ in of))))
    return found
