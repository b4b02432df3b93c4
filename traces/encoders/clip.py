"""CLIP as an encoder: the thresholds of NIRVANA and MoDM refer to openai/clip-vit-large-patch14."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tqdm import tqdm

from mezzotint.networks.clip import VIT_L14, ClipModel
from mezzotint.settings.ranges import Count
from mezzotint.traces.encoders.vectors import Floats, by_length
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import excerpt


@dataclass(slots=True)
class Clip:
    """CLIP's text encoder: 768 numbers with ViT-L/14, prompts cut at the model's length (77 tokens, as in MoDM).

    An empty prompt is all zeros, as with every encoder, although CLIP has a vector for it.

    Args:
        weights, allow_hub, device: see mezzotint.networks.clip.ClipModel.
        batch: prompts per forward pass, sorted by length to pad little.
    """

    weights: Annotated[str, Path] = VIT_L14
    allow_hub: bool = False
    device: str = "cpu"
    batch: Count = 64
    _model: ClipModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._model = ClipModel(self.weights, TraceError, allow_hub=self.allow_hub, device=self.device)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def dim(self) -> int:
        return self._model.dim

    def encode(self, prompts: Sequence[str], progress: bool) -> Floats:
        vectors = np.zeros((len(prompts), self.dim), np.float32)
        for rows, texts in by_length(prompts, self.batch, progress):
            vectors[rows] = _unit(self._model.text_vectors(texts))
        return vectors


def image_vectors(model: ClipModel, paths: Sequence[Path], batch: int) -> Iterator[Floats]:
    """Yield vectors of image files, ``batch`` at a time, as (k, dim) float32 rows of length 1.

    Raises TraceError if a file cannot be read as an image.
    """
    with tqdm(total=len(paths), desc=f"encode images with {model.name}", unit="image", disable=None) as bar:
        for start in range(0, len(paths), batch):
            rows = _unit(model.image_vectors([_open_image(path) for path in paths[start : start + batch]]))
            yield rows
            bar.update(len(rows))


def encode_image(model: ClipModel, path: Path) -> Floats:
    """Return the vector of one image file, (dim,) float32 of length 1. Raises TraceError if it cannot be read."""
    vector: Floats = _unit(model.image_vectors([_open_image(path)]))[0]
    return vector


def _unit(rows: Any) -> Floats:
    import torch

    scaled: Floats = torch.nn.functional.normalize(rows, dim=1).cpu().numpy()
    return scaled


def _open_image(path: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TraceError(f"{path}: cannot be read as an image ({excerpt(str(error))}); replace the file") from error
