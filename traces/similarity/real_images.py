"""Similarity to real images, measured from the images of a trace or from their vectors."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.assumption import Assumption
from mezzotint.traces.encoders.images import ImageSource, OpenedImages
from mezzotint.traces.encoders.vectors import BLOCK, unit
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.similarities import Floats, MeasuredCosine
from mezzotint.traces.similarity.similarity_map import Identity, SimilarityMap


@dataclass(slots=True)
class TextToRealImage(MeasuredCosine):
    """Cosine of a prompt's text vector and the vector of a real image (MoDM, 3.2), measured and not modelled.

    Both vectors are of the model that the thresholds refer to, so the only similarity map is the identity.

    Args:
        images: the vectors of the images.

    Raises TraceError at bind, for another similarity map, or for images that do not fit the trace or the encoder.
    """

    images: ImageSource
    _text: Floats = field(init=False, repr=False, compare=False)
    _opened: OpenedImages = field(init=False, repr=False, compare=False)
    _key: str = field(init=False, default="", repr=False, compare=False)
    _own: float = field(init=False, default=0.0, repr=False, compare=False)
    _without: int = field(init=False, default=0, repr=False, compare=False)

    def bind(self, embeddings: Floats, rng: np.random.Generator, similarity_map: SimilarityMap | None = None) -> None:
        """Check every vector and measure the mean cosine of a prompt and its own image."""
        if similarity_map is not None and not isinstance(similarity_map, Identity):
            raise TraceError(
                f"similarity_map: found {type(similarity_map).__name__}, expected the identity; real images need "
                "encoder=clip, or encoder=precomputed with the images' own model, and similarity_map=identity"
            )
        self._text = embeddings
        opened = self._opened = self.images.open(len(embeddings), embeddings.shape[1])
        self._key = f"real-images-{opened.key}"
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

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        return unit(self._opened.rows[rows], 0, self._opened.path)

    @property
    def key(self) -> str:
        return self._key

    def assumptions(self) -> list[Assumption]:
        source = f"measured; image vectors {self._opened.source}"
        assumptions = [
            Assumption("text-to-image similarity", "cosine of text and image vectors, without a scale", source),
            Assumption("mean cosine of a prompt and its own image", round(self._own, 4), source),
            Assumption("image that a request leaves behind", "its row's, however it was served", self._opened.source),
        ]
        if self._without:
            assumptions.append(Assumption("rows without an image, never found", self._without, self._opened.source))
        return assumptions
