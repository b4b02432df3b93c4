"""Models of a run: the images that they make, their precision, and the basis of their service times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mezzotint.backends.base import size_text
from mezzotint.files.printable import printable

BASES = {
    "measured": "measured",
    "published": "measured by others",
    "scaled": "scaled from another measurement",
    "assumed": "assumed",
    "live": "live",
}
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The images that a model makes. Speeds compare only between runs of equal images.

    Sizes and steps are None if requests bring their own, precision if it is unknown.
    """

    model: str
    width: int | None
    height: int | None
    steps: int | None
    precision: str | None
    frames: int = 1

    @property
    def precision_text(self) -> str:
        """The precision, or that it is not known."""
        return self.precision or f"precision {UNKNOWN}"

    def __str__(self) -> str:
        if self.width is None or self.height is None:
            size = "own sizes"
        else:
            size = size_text(self.width, self.height, self.frames)
        steps = "own steps" if self.steps is None else f"{self.steps} steps"
        return f"{self.model}, {size}, {steps}, {self.precision_text}"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model of a run.

    Attributes:
        basis: a key of BASES; None if unknown.
        service_error: relative error of its service times, a fraction; None if unknown.
        gpu: the kind of GPU, in a run with several kinds; else None.
    """

    role: str
    images: ImageSpec
    basis: str | None
    service_error: float | None
    gpu: str | None = None

    @property
    def basis_text(self) -> str:
        """The basis in words."""
        return BASES.get(self.basis or "", f"basis {UNKNOWN}")

    def __str__(self) -> str:
        return f"{self.images}{f' on {self.gpu}' if self.gpu else ''} ({self.basis_text})"


def served_models(summary: Mapping[str, Any]) -> tuple[ServedModel, ...]:
    """Return a run's models, the reference model first; empty for older summaries, which lack them."""
    models = []
    rows = summary.get("models") or []
    has_kinds = len({row.get("gpu") for row in rows}) > 1
    for row in rows:
        precision = row["precision"] and printable(row["precision"])
        shape = (row["width"], row["height"], row["steps"])
        images = ImageSpec(printable(row["model"]), *shape, precision, row.get("frames") or 1)
        gpu = printable(row["gpu"]) if has_kinds else None
        models.append(ServedModel(row["role"], images, row["basis"], row["service_error"], gpu))
    return tuple(models)


def service_error(models: Sequence[ServedModel]) -> float | None:
    """Return the largest error of the models' service times; None if that of some model is unknown."""
    known = [model.service_error for model in models if model.service_error is not None]
    return max(known) if known and len(known) == len(models) else None


def runs_by_images(runs: Sequence[tuple[str, Sequence[ServedModel]]]) -> list[tuple[str, list[str]]]:
    """Group runs (name, models) by the images of their reference model.

    Returns:
        The images with their basis, and the names of their runs; empty if all runs make the same images.
    """
    groups: dict[ImageSpec, list[tuple[str, ServedModel]]] = {}
    for name, models in runs:
        if models:
            groups.setdefault(models[0].images, []).append((name, models[0]))
    if len(groups) < 2:
        return []
    texts = []
    for images, members in groups.items():
        bases = ", ".join(dict.fromkeys(model.basis_text for _, model in members))
        texts.append((f"{images} ({bases})", list(dict.fromkeys(name for name, _ in members))))
    return texts
