"""Similarity to the images that a live run makes, each encoded when it is first compared."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from mezzotint.networks.clip import ClipModel
from mezzotint.settings.assumption import Assumption
from mezzotint.traces.encoders.clip import encode_image
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.similarities import Floats, MeasuredCosine
from mezzotint.traces.similarity.similarity_map import Identity, SimilarityMap


@dataclass(slots=True)
class TextToMadeImage(MeasuredCosine):
    """Cosine of a prompt's text vector and the vector of an image that the run has made (MoDM, 3.2), measured.

    Images are files that do not exist before their request was served, so only ``search=scan`` can compare them. The
    seconds of encoding an image are not charged.

    Args:
        folder: where the live backend writes ``<row>.png`` (``backend.images``).
        weights, allow_hub, device: of the model that also encodes the prompts (mezzotint.networks.clip.ClipModel).

    Raises TraceError if no folder or no weights are named, at bind for another similarity map or width of vectors, and
    for an image that was not made.
    """

    folder: str | Path | None
    weights: Annotated[str, Path] | None
    allow_hub: bool = False
    device: str = "cpu"
    key: str = field(init=False, default="made-images")
    _model: ClipModel = field(init=False, repr=False, compare=False)
    _text: Floats = field(init=False, repr=False, compare=False)
    _vectors: dict[int, Floats] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for key, value, remedy in (
            ("folder", self.folder, "backend.images"),
            ("weights", self.weights, "encoder=clip"),
        ):
            if value is None:
                raise TraceError(f"similarity.{key}: found null, expected a path; give {remedy}")

    def bind(self, embeddings: Floats, rng: np.random.Generator, similarity_map: SimilarityMap | None = None) -> None:
        if similarity_map is not None and not isinstance(similarity_map, Identity):
            raise TraceError(
                f"similarity_map: found {type(similarity_map).__name__}, expected the identity; the images of a run "
                "need encoder=clip and similarity_map=identity"
            )
        self._model = ClipModel(str(self.weights), TraceError, allow_hub=self.allow_hub, device=self.device)
        if self._model.dim != embeddings.shape[1]:
            raise TraceError(
                f"similarity.weights: found image vectors of {self._model.dim} numbers, expected "
                f"{embeddings.shape[1]} as the encoder gives for prompts; take encoder=clip with the same weights"
            )
        self._text = embeddings
        self._vectors.clear()

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        return np.stack([self._vector(row) for row in rows.tolist()])

    def _vector(self, row: int) -> Floats:
        if row not in self._vectors:
            path = Path(str(self.folder)) / f"{row}.png"
            if not path.is_file():
                raise TraceError(
                    f"{path}: not made yet, and only images that were made can be compared; add search=scan"
                )
            self._vectors[row] = encode_image(self._model, path)
        return self._vectors[row]

    def assumptions(self) -> list[Assumption]:
        source = "measured on the images that the run makes; the seconds of encoding them are not charged"
        return [Assumption("text-to-image similarity", f"cosine of {self._model.name}", source)]
