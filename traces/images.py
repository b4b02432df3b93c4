"""Similarity to real images: a trace whose images are at hand, or were encoded already.

MoDM compares the CLIP text vector of a prompt with the CLIP vectors of the images in its cache (MoDM, 3.2). Bind
gives a space no names of requests, so images go by the number of their row in the trace, counted from 0, rows that
fill the cache before the start included.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from traces import kept, sidecar
from traces.clip import ClipWeights, image_vectors
from traces.error import TraceError
from traces.scale import Identity, Scale
from traces.similarity import Floats
from traces.validation import check_count
from traces.vectors import BLOCK, digest, mapped, unit

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")


class Opened(NamedTuple):
    """Image vectors, a row for every row of a trace, as they lie on disk.

    Attributes:
        rows: (n, d) real numbers, memory-mapped; all zeros where a row has no image.
        path: their file, for messages.
        source: where they are from, in words.
    """

    rows: NDArray[Any]
    path: Path
    source: str


@runtime_checkable
class Images(Protocol):
    """Where the vectors of the images come from."""

    def open(self, rows: int, dim: int) -> Opened:
        """The vectors for a trace of ``rows`` rows whose prompts are vectors of ``dim`` numbers.

        Raises:
            TraceError: they are for another number of rows, or of another width.
        """


@dataclass(frozen=True, slots=True)
class GivenImages:
    """Vectors that the user made: an ``.npy`` file of (n, d) numbers, row i for the image of the trace's row i.

    Args:
        path: the file. A row of zeros stands for a request without an image.
    """

    path: str

    def open(self, rows: int, dim: int) -> Opened:
        """See Images.open."""
        path = Path(self.path)
        found = mapped(path)
        if len(found) != rows:
            raise TraceError(f"{path}: found vectors of {len(found)} images, expected {rows}, one per row of the trace")
        _check_width(found.shape[1], dim, str(path))
        return Opened(found, path, f"given in {path.name}")


@dataclass(frozen=True, slots=True)
class ClipImages:
    """A folder of images, encoded by CLIP once and then remembered on disk.

    What is remembered holds for as long as the folder has the same path and its images the same names, sizes and
    times of change, and the weights the same content.

    Args:
        folder: holds ``<row>.png`` (or .jpg, .jpeg, .webp) for every row of the trace; leading zeros do not count.
        weights: of the model whose text side encodes the prompts; see ClipWeights, for the next two too.
        batch: images in a forward pass.

    Raises:
        TraceError: no weights are named. At bind: a row has no image or two; a file cannot be read; see ClipWeights.
    """

    folder: str
    weights: str | None
    allow_hub: bool = False
    device: str = "cpu"
    batch: int = 32

    def __post_init__(self) -> None:
        check_count("space", "batch", self.batch)
        if self.weights is None:
            raise TraceError("space: weights=null, expected a folder of CLIP weights; choose encoder=clip or name one")

    def open(self, rows: int, dim: int) -> Opened:
        """See Images.open."""
        weights = ClipWeights(str(self.weights), self.allow_hub, self.device)
        _check_width(weights.dim, dim, f"CLIP weights {self.weights}")
        folder = Path(self.folder).expanduser()
        paths = _by_row(folder, rows)
        about = {
            "schema": 1,
            "images": _fingerprint(folder, paths),
            "encoder": weights.name,
            "count": rows,
            "dim": weights.dim,
            "dtype": "float32",
        }
        stem = kept.home() / "images" / f"{about['images']}.{weights.name}"
        found = sidecar.load_about(stem, about)
        if found is None:
            sidecar.store_about(stem, about, image_vectors(weights, paths, self.batch))
            found = sidecar.load_about(stem, about)
        if found is None:
            raise TraceError(f"{sidecar.vectors_path(stem)}: vanished as it was written; run again")
        return Opened(np.asarray(found), sidecar.vectors_path(stem), f"{folder.name}, encoded by {weights.name}")


@dataclass(slots=True)
class TextToRealImage:
    """Cosine of a prompt's text vector and the vector of a real image (MoDM, 3.2), measured and not modelled.

    Both are of one model whose cosine is what the thresholds stand on, so there is no scale between them.

    Args:
        images: where the vectors of the images come from.

    Raises:
        TraceError: at bind, the images do not go with the trace or the encoder, or another scale than the identity
            was chosen.
    """

    images: Images
    _text: Floats = field(init=False, repr=False, compare=False)
    _opened: Opened = field(init=False, repr=False, compare=False)
    _key: str = field(init=False, default="", repr=False, compare=False)
    _own: float = field(init=False, default=0.0, repr=False, compare=False)
    _without: int = field(init=False, default=0, repr=False, compare=False)

    def bind(self, embeddings: Floats, rng: np.random.Generator, scale: Scale | None = None) -> None:
        """See Space.bind. Every vector is checked."""
        if scale is not None and not isinstance(scale, Identity):
            raise TraceError(
                f"scale: found {type(scale).__name__}, expected the identity: real image vectors need encoder=clip, or "
                "encoder=precomputed with vectors of the images' own model, and scale=identity"
            )
        self._text = embeddings
        opened = self._opened = self.images.open(len(embeddings), embeddings.shape[1])
        self._key = f"real-images-{digest([opened.path])[:32]}"
        self._without, total, pairs = 0, 0.0, 0
        for start in range(0, len(embeddings), BLOCK):
            images = unit(opened.rows[start : start + BLOCK], start, opened.path)
            prompts = np.asarray(embeddings[start : start + BLOCK])
            self._without += int((~images.any(axis=1)).sum())
            both = images.any(axis=1) & prompts.any(axis=1)
            total += float(np.einsum("ij,ij->", images[both].astype(np.float64), prompts[both].astype(np.float64)))
            pairs += int(both.sum())
        if not pairs:
            raise TraceError(f"{opened.path}: no row has both a prompt and an image; nothing could be compared")
        self._own = total / pairs

    def similar(self, product: float) -> float:
        """See Space.similar: the product is the cosine."""
        return product

    def product(self, similarity: float) -> float:
        """See Space.product."""
        return similarity

    def queries(self, start: int, stop: int) -> Floats:
        """See Space.queries."""
        return np.asarray(self._text[start:stop])

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        """See Space.artifacts."""
        return unit(self._opened.rows[rows], 0, self._opened.path)

    @property
    def key(self) -> str:
        """See Space.key: the content of the vectors' file."""
        return self._key

    def assumptions(self) -> list[tuple[str, Any, str]]:
        """See Space.assumptions."""
        source = f"measured; image vectors {self._opened.source}"
        said: list[tuple[str, Any, str]] = [
            ("text-to-image similarity", "cosine of text and image vectors, without a scale", source),
            ("mean cosine of a prompt and its own image", round(self._own, 4), source),
            ("image that a request leaves behind", "its row's, however it was served", self._opened.source),
        ]
        if self._without:
            said.append(("rows without an image, never found", self._without, self._opened.source))
        return said


def _check_width(found: int, dim: int, where: str) -> None:
    if found != dim:
        raise TraceError(
            f"{where}: found image vectors of {found} numbers, expected {dim} as the encoder gives for prompts; take "
            "both from one model (encoder=clip or encoder=precomputed)"
        )


def _by_row(folder: Path, rows: int) -> list[Path]:
    """The image of every row, in order."""
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such folder; name the folder of the images")
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in SUFFIXES or not (path.stem.isascii() and path.stem.isdigit()):
            continue
        row = int(path.stem)
        if row in found:
            raise TraceError(f"{folder}: row {row} has two images, {found[row].name} and {path.name}; keep one")
        found[row] = path
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
