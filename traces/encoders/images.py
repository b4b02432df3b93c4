"""Vectors of the real images of a trace, given as files or as vectors (MoDM, 3.2).

An image is named after its row of the trace, from 0, counting the rows that fill the cache before the start.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mezzotint.files.digest import digest
from mezzotint.networks.clip import ClipModel
from mezzotint.settings.ranges import Count
from mezzotint.traces.encoders.clip import image_vectors
from mezzotint.traces.encoders.disk_cache import compute_once
from mezzotint.traces.encoders.vectors import map_vectors
from mezzotint.traces.error import TraceError

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")


class OpenedImages(NamedTuple):
    """Image vectors of a trace, as stored on disk.

    Attributes:
        rows: (n, d) real numbers, all zeros if a row has no image.
        path: file or folder that they are from, for messages.
        source: origin in words.
        key: name of the content.
    """

    rows: NDArray[Any]
    path: Path
    source: str
    key: str


@runtime_checkable
class ImageSource(Protocol):
    """Source of the vectors of the images of a trace."""

    def open(self, rows: int, dim: int) -> OpenedImages:
        """Return the vectors for a trace of ``rows`` rows whose prompt vectors have ``dim`` numbers.

        Raises TraceError if they have another number of rows, or another width.
        """


@dataclass(frozen=True, slots=True)
class GivenImages:
    """Image vectors made by the user: an ``.npy`` file of (n, d) numbers, row i for the image of the trace's row i.

    Args:
        path: the file. A row of zeros is a request without an image.
    """

    path: str | Path

    def open(self, rows: int, dim: int) -> OpenedImages:
        path = Path(self.path)
        found = map_vectors(path)
        if len(found) != rows:
            raise TraceError(f"{path}: found vectors of {len(found)} images, expected {rows}, one per row of the trace")
        _check_width(found.shape[1], dim, str(path))
        return OpenedImages(found, path, f"given in {path.name}", digest([path], TraceError)[:32])


@dataclass(frozen=True, slots=True)
class ClipImages:
    """A folder of images, encoded by CLIP and cached on disk.

    The cached vectors are used while path, names, sizes and modification times of the images and the content of the
    weights stay the same.

    Args:
        folder: holds ``<row>.png`` (or .jpg, .jpeg, .webp) for every row of the trace; leading zeros are ignored.
        weights, allow_hub, device: of the model that also encodes the prompts (mezzotint.networks.clip.ClipModel).
        batch: images per forward pass.

    Raises TraceError if no weights are named. Opening raises it if a row has no image or two, or a file cannot be read.
    """

    folder: str | Path
    weights: Annotated[str, Path] | None
    allow_hub: bool = False
    device: str = "cpu"
    batch: Count = 32

    def __post_init__(self) -> None:
        if self.weights is None:
            raise TraceError(
                "similarity.images: weights=null, expected CLIP weights; choose encoder=clip or name a folder"
            )

    def open(self, rows: int, dim: int) -> OpenedImages:
        model = ClipModel(str(self.weights), TraceError, allow_hub=self.allow_hub, device=self.device)
        _check_width(model.dim, dim, f"CLIP weights {self.weights}")
        folder = Path(self.folder).expanduser()
        paths = _by_row(folder, rows)
        key = f"{_fingerprint(folder, paths)}.{model.name}"
        found = compute_once(
            "images", {"version": 1, "images": key, "dim": dim}, rows, {"vectors": (np.float32, (dim,))},
            lambda done: ((block,) for block in image_vectors(model, paths[len(done["vectors"]) :], self.batch)),
        )  # fmt: skip
        return OpenedImages(found["vectors"], folder, f"{folder.name}, encoded by {model.name}", key)


def _check_width(found: int, dim: int, where: str) -> None:
    if found != dim:
        raise TraceError(
            f"{where}: found image vectors of {found} numbers, expected {dim} as the encoder gives for prompts; take "
            "both from one model (encoder=clip or encoder=precomputed)"
        )


def _by_row(folder: Path, rows: int) -> list[Path]:
    """Return the image of every row, in order."""
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such folder, expected the folder of the images; check the path")
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in SUFFIXES and path.stem.isascii() and path.stem.isdigit():
            first = found.setdefault(row := int(path.stem), path)
            if first != path:
                raise TraceError(f"{folder}: row {row} has two images, {first.name} and {path.name}; keep one")
    missing = [row for row in range(rows) if row not in found]
    if missing:
        raise TraceError(
            f"{folder}: {len(missing)} of the trace's {rows} rows have no image, the first is row {missing[0]}, "
            f"expected {missing[0]}.png (rows count from 0); add them or take a trace of the rows that have one"
        )
    return [found[row] for row in range(rows)]


def _fingerprint(folder: Path, paths: list[Path]) -> str:
    total = hashlib.sha256(f"{folder.resolve()}\n".encode())
    for path in paths:
        state = path.stat()
        total.update(f"{path.name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return total.hexdigest()[:32]
