"""CLIP: prompts and images as vectors of one space, from weights at hand.

NIRVANA and MoDM put their thresholds on cosines of openai/clip-vit-large-patch14. The models are transformers' own,
run in float32; nothing that is encoded leaves this machine.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from tqdm import tqdm

from traces.encoders.quiet import quiet_transformers
from traces.encoders.vectors import Floats, digest
from traces.error import TraceError
from traces.table.validation import check_count

VIT_L14 = "openai/clip-vit-large-patch14"
MODEL = ("config.json", "model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json")
"""The files that decide the vectors."""

DEFAULT_DIM = 512
"""transformers leaves a projection of this width out of config.json."""


@dataclass(slots=True)
class ClipWeights:
    """A folder of CLIP weights, as ``save_pretrained`` writes them.

    Args:
        where: the folder, or the id of a model on the hub, which is looked for among those downloaded before.
        allow_hub: whether a model that was not may be downloaded.
        device: where to compute, as torch names it.

    Raises (at first use):
        TraceError: the weights, their tokenizer or the packages are not there, are damaged, or are not CLIP's.
    """

    where: str
    allow_hub: bool = False
    device: str = "cpu"
    _folder: Path | None = field(default=None, init=False, repr=False, compare=False)
    _name: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Names the content of the folder and, as rounding differs there, a device that is not the CPU."""
        if self._name is None:
            folder = self.folder()
            files = [path for pattern in (*MODEL, *TOKENIZER) for path in sorted(folder.glob(pattern))]
            kind = "" if self.device == "cpu" else "-" + self.device.partition(":")[0]
            self._name = f"clip-{digest(files)[:16]}{kind}-v1"
        return self._name

    @property
    def dim(self) -> int:
        """Length of a vector: 768 for ViT-L/14."""
        found = self._config().get("projection_dim", DEFAULT_DIM)
        check_count(str(self.folder() / "config.json"), "projection_dim", found)
        return int(found)

    def folder(self) -> Path:
        """The folder on this machine, with a config and weights in it."""
        if self._folder is None:
            folder = Path(self.where).expanduser()
            if not folder.is_dir():
                folder = self._from_hub()
            for needed in ("config.json", "model*.safetensors"):
                if not any(folder.glob(needed)):
                    raise TraceError(f"{folder}: found no {needed}; {_what_to_do()}")
            self._folder = folder
        return self._folder

    def text(self) -> tuple[Any, Any]:
        """The tokenizer and the text model (CLIPTextModelWithProjection)."""
        model, folder = self._model("text"), self.folder()
        if not (folder / "tokenizer.json").exists() and not (folder / "vocab.json").exists():
            raise TraceError(f"{folder}: found no tokenizer.json and no vocab.json; {_what_to_do()}")
        import transformers

        return self._read(transformers.CLIPTokenizer, "a CLIP tokenizer"), model

    def vision(self) -> tuple[Any, Any]:
        """What prepares images (shorter side to the model's, bicubic, centre crop, CLIP's mean and deviation),
        and the image model (CLIPVisionModelWithProjection)."""
        model = self._model("vision")
        import transformers

        # by this name where it has one, so that images are prepared alike with and without torchvision
        plain = "CLIPImageProcessorPil"
        processor = getattr(transformers, plain if hasattr(transformers, plain) else "CLIPImageProcessor")
        side = model.config.image_size
        return processor(size={"shortest_edge": side}, crop_size={"height": side, "width": side}), model

    def _model(self, side: Literal["text", "vision"]) -> Any:
        try:
            import torch  # noqa: F401
            import transformers
        except ImportError as error:
            raise TraceError(
                f"CLIP needs packages that are not installed ({error}); pip install 'mezzotint[text]' (or [live])"
            ) from error
        kind = self._config().get("model_type")
        if kind not in ("clip", f"clip_{side}_model"):
            raise TraceError(f"{self.folder()}: holds a model of type {kind!r}, expected CLIP's {side} side")
        name = f"CLIP{side.title()}"
        config = self._read(getattr(transformers, f"{name}Config"), "a CLIP config")
        config.projection_dim = self.dim  # a side's own may be a default that nobody used
        made = getattr(transformers, f"{name}ModelWithProjection")
        model, info = self._read(made, "a CLIP model", config=config, use_safetensors=True, output_loading_info=True)
        if info["missing_keys"]:  # they are otherwise filled with random numbers
            raise TraceError(
                f"{self.folder()}: lacks {len(info['missing_keys'])} of the {side} model's tensors; {_what_to_do()}"
            )
        try:
            return model.float().eval().to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise TraceError(f"device {self.device!r} cannot be used ({_line(error)}); cpu always can") from error

    def _config(self) -> dict[str, Any]:
        path = self.folder() / "config.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise TraceError(f"{path}: cannot be read ({_line(error)}); {_what_to_do()}") from error
        if not isinstance(found, dict):
            raise TraceError(f"{path}: found {type(found).__name__}, expected a JSON object; {_what_to_do()}")
        return found

    def _read(self, kind: Any, what: str, **options: Any) -> Any:
        from safetensors import SafetensorError

        try:
            with quiet_transformers():
                return kind.from_pretrained(str(self.folder()), local_files_only=True, **options)
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            raise TraceError(f"{self.folder()}: cannot be read as {what} ({_line(error)}); {_what_to_do()}") from error

    def _from_hub(self) -> Path:
        import huggingface_hub

        try:
            found = huggingface_hub.snapshot_download(
                self.where, allow_patterns=[*MODEL, *TOKENIZER], local_files_only=not self.allow_hub
            )
        except Exception as error:  # no such id, no network, no permission: each has a class of its own
            tried = "the hub gave none" if self.allow_hub else "no model of that id was downloaded before"
            raise TraceError(
                f"CLIP weights {self.where!r}: there is no such folder and {tried} ({_line(error)}); {_what_to_do()}"
            ) from error
        return Path(found)


@dataclass(slots=True)
class Clip:
    """CLIP's text side: prompts cut at the model's length (77 tokens, as MoDM does), 768 numbers with ViT-L/14.

    An empty prompt is all zeros, as with every encoder, though CLIP itself has a vector for it.

    Args:
        weights, allow_hub, device: see ClipWeights.
        batch: prompts in a forward pass; they are taken in order of length, to pad little.

    Raises:
        TraceError: ``batch`` is not a whole number of 1 or more; and see ClipWeights.
    """

    weights: Annotated[str, Path] = VIT_L14
    allow_hub: bool = False
    device: str = "cpu"
    batch: int = 64
    _weights: ClipWeights = field(init=False, repr=False, compare=False)
    _loaded: tuple[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("encoder", "batch", self.batch)
        self._weights = ClipWeights(self.weights, self.allow_hub, self.device)

    @property
    def name(self) -> str:
        """See Encoder.name: the content of the weights' folder, wherever it lies."""
        return self._weights.name

    @property
    def dim(self) -> int:
        """See Encoder.dim."""
        return self._weights.dim

    def encode(self, prompts: Sequence[str], progress: bool) -> Floats:
        """See Encoder.encode."""
        if self._loaded is None:
            self._loaded = self._weights.text()
        tokenizer, model = self._loaded
        import torch

        vectors = np.zeros((len(prompts), self.dim), np.float32)
        filled = [index for index, prompt in enumerate(prompts) if prompt.strip()]
        filled.sort(key=lambda index: len(prompts[index]))
        length = model.config.max_position_embeddings
        with torch.inference_mode():
            starts = range(0, len(filled), self.batch)
            for start in tqdm(starts, "encode", disable=not progress, unit="batch"):
                rows = filled[start : start + self.batch]
                texts = [prompts[row] for row in rows]
                tokens = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
                given = {key: tokens[key].to(self.device) for key in ("input_ids", "attention_mask")}
                vectors[rows] = torch.nn.functional.normalize(model(**given).text_embeds, dim=1).cpu().numpy()
        return vectors


def image_vectors(weights: ClipWeights, paths: Sequence[Path], batch: int) -> Iterator[Floats]:
    """Encode image files, ``batch`` of them at a time, as (k, dim) float32 rows of length 1.

    Raises:
        TraceError: a file is not an image that can be read; and see ClipWeights.
    """
    prepare, model = weights.vision()
    import torch

    with tqdm(total=len(paths), desc=f"encode images with {weights.name}", unit="image", disable=None) as bar:
        for start in range(0, len(paths), batch):
            images = [_open_image(path) for path in paths[start : start + batch]]
            pixels = prepare(images=images, return_tensors="pt")["pixel_values"].to(weights.device)
            with torch.inference_mode():
                rows: Floats = torch.nn.functional.normalize(model(pixels).image_embeds, dim=1).cpu().numpy()
            yield rows
            bar.update(len(rows))


def _open_image(path: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TraceError(f"{path}: cannot be read as an image ({_line(error)}); mend the file") from error


def _what_to_do() -> str:
    return (
        f"put config.json, model.safetensors and the tokenizer's files of a CLIP model ({VIT_L14} in the papers) into "
        "one folder and name it (weights=PATH), or let it be downloaded (allow_hub=true)"
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
