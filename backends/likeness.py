"""Similarity of the inputs of a denoiser's blocks from step to step: a table and its file."""

import json
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mezzotint.backends.base import BackendError
from mezzotint.files.atomic import atomic_write
from mezzotint.files.validation import first_error

Share = Annotated[float, Field(ge=0, le=1)]


class SimilarityCurve(BaseModel):
    """Shares of block inputs within the threshold of the step before, of one model at one size.

    Attributes:
        patch_share: share of (patch, block) by step; 0 for the first.
        image_share: share of blocks by step of which all patches of an image are within the threshold.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    width: Annotated[int, Field(ge=1)]
    height: Annotated[int, Field(ge=1)]
    patch_px: Annotated[int, Field(ge=1)]
    blocks: Annotated[int, Field(ge=1)]
    images: Annotated[int, Field(ge=1)]
    patch_share: Annotated[list[Share], Field(min_length=2)]
    image_share: Annotated[list[Share], Field(min_length=2)]

    @model_validator(mode="after")
    def _shares(self) -> "SimilarityCurve":
        if len(self.patch_share) != len(self.image_share):
            steps = f"{len(self.patch_share)} and {len(self.image_share)}"
            raise ValueError(f"patch_share and image_share have {steps} steps, expected as many; measure it again")
        for step, (patches, images) in enumerate(zip(self.patch_share, self.image_share, strict=True)):
            if images > patches + 1e-6:  # both are rounded
                raise ValueError(
                    f"image_share.{step} is {images:g}, expected at most {patches:g}, the share of single patches; "
                    "measure it again"
                )
        return self


class SimilarityTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    measured_on: Annotated[str, Field(min_length=1)]
    threshold: Annotated[float, Field(gt=0)]
    rows: Annotated[list[SimilarityCurve], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_curve_of_a_cell(self) -> "SimilarityTable":
        first = dict[tuple[str, int], int]()
        for number, row in enumerate(self.rows):
            before = first.setdefault((row.model, row.width * row.height), number)
            for column in ("patch_share", "image_share"):
                one, other = getattr(self.rows[before], column), getattr(row, column)
                if one != other:
                    raise ValueError(
                        f"rows.{before} and rows.{number} are both of {row.model} at {row.width * row.height} pixels: "
                        f"found {column} {shortened(one)} and {shortened(other)}, expected one curve; keep one"
                    )
        return self

    @property
    def models(self) -> list[str]:
        return sorted({row.model for row in self.rows})

    def curves(self, model: str, column: str) -> Mapping[int, list[float]]:
        """Return pixels -> shares by step."""
        return {row.width * row.height: getattr(row, column) for row in self.rows if row.model == model}


def read(path: Path) -> SimilarityTable:
    """Read a table. Raises ValueError naming ``path`` if it holds none."""
    try:
        return SimilarityTable.model_validate_json(path.read_bytes())
    except OSError as error:
        remedy = "make one with `mezzotint calibrate feature-similarity`"
        raise ValueError(f"{path}: {error.strerror or error}; {remedy}") from None
    except ValidationError as error:
        raise ValueError(f"{path}: {first_error(error)}") from None


def write(table: SimilarityTable, path: Path) -> None:
    """Write ``table`` to ``path`` atomically. Raises BackendError."""
    with atomic_write(path, BackendError) as aside:
        aside.write_text(json.dumps(table.model_dump(), indent=1) + "\n", encoding="utf-8")
