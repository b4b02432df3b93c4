"""Similarity of the inputs of a denoiser's blocks from step to step: a table and its file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backends.base import BackendError
from conf.atomic import atomic_write
from conf.validation import first_error

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


class SimilarityTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    measured_on: Annotated[str, Field(min_length=1)]
    threshold: Annotated[float, Field(gt=0)]
    rows: Annotated[list[SimilarityCurve], Field(min_length=1)]

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
