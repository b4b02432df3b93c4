"""Local CLIP models: transformers' own, in float32."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mezzotint.extras import remedy
from mezzotint.files.digest import digest
from mezzotint.files.document import parse_json
from mezzotint.networks.quiet import quiet

VIT_L14 = "openai/clip-vit-large-patch14"
MODEL = ("config.json", "model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json")
"""Files that the vectors depend on."""

DEFAULT_DIM = 512
"""transformers leaves a projection of this width out of config.json."""

REMEDY = (
    f"put config.json, model.safetensors and the tokenizer's files of a CLIP model ({VIT_L14} in the papers, "
    "yuvalkirstain/PickScore_v1 for PickScore) into one folder and name it (weights=; --clip, --pickscore), or let it "
    "be downloaded (allow_hub=true; --allow-hub)"
)


@dataclass
class ClipModel:
    """A CLIP model in a folder, as ``save_pretrained`` writes it; each side is read at first use and kept.

    Args:
        weights: the folder, or the id of a model on the hub, which is looked for among those downloaded before.
        error: class of errors, raised with one line of text.
        tokenizer: a folder or an id of its own; None for the weights' own.
        allow_hub: allow a download.
        device: where to compute, as torch names it.

    Raises (at first use):
        error: the weights, their tokenizer or the packages are not there, are damaged, or are not CLIP's.
    """

    weights: str
    error: type[Exception]
    tokenizer: str | None = None
    allow_hub: bool = False
    device: str = "cpu"

    @cached_property
    def name(self) -> str:
        """Name of the folder's content, and of a device other than the CPU, as rounding differs."""
        files = [path for pattern in (*MODEL, *TOKENIZER) for path in sorted(self.folder.glob(pattern))]
        kind = "" if self.device == "cpu" else "-" + self.device.partition(":")[0]
        return f"clip-{digest(files, self.error)[:16]}{kind}-v1"

    @property
    def dim(self) -> int:
        """Length of a vector: 768 for ViT-L/14."""
        found = self._config().get("projection_dim", DEFAULT_DIM)
        if isinstance(found, int) and found > 0:
            return found
        path = self.folder / "config.json"
        raise self.error(f"{path}: projection_dim={found!r}, expected a whole number, 1 or more")

    @property
    def gain(self) -> float:
        """Factor on cosines before the model's softmax: exp(logit_scale)."""
        from safetensors import SafetensorError, safe_open

        for path in sorted(self.folder.glob("model*.safetensors")):
            try:
                with safe_open(path, "pt") as file:
                    if "logit_scale" in file.keys():  # noqa: SIM118
                        return float(file.get_tensor("logit_scale").float().exp())
            except (OSError, SafetensorError) as error:
                raise self.error(f"{path}: cannot be read as a CLIP model ({_line(error)}); {REMEDY}") from error
        raise self.error(f"{self.folder}: lacks logit_scale among the model's tensors; {REMEDY}")

    @cached_property
    def folder(self) -> Path:
        """The folder on this machine, with a config and weights in it."""
        folder = self._at_hand(self.weights, (*MODEL, *TOKENIZER))
        for needed in ("config.json", "model*.safetensors"):
            if not any(folder.glob(needed)):
                raise self.error(f"{folder}: found no {needed}; {REMEDY}")
        return folder

    def text_vectors(self, prompts: Sequence[str]) -> Any:
        """Embed prompts, each cut at the model's length (77 tokens), as an (n, d) float32 tensor, not normalised."""
        tokenizer, model = self._text
        length = model.config.max_position_embeddings
        tokens = tokenizer(list(prompts), padding=True, truncation=True, max_length=length, return_tensors="pt")
        return self._run(model, {key: tokens[key] for key in ("input_ids", "attention_mask")}).text_embeds

    def image_vectors(self, images: Sequence[Any], **options: Any) -> Any:
        """Embed images (PIL's, or arrays) as an (n, d) float32 tensor, not normalised.

        Their shorter side is brought to the model's (bicubic), then the centre is cut out; ``options`` are those of
        transformers' CLIPImageProcessor.
        """
        prepare, model = self._vision
        pixels = prepare(images=list(images), return_tensors="pt", **options)["pixel_values"]
        return self._run(model, {"pixel_values": pixels}).image_embeds

    def _run(self, model: Any, given: dict[str, Any]) -> Any:
        import torch

        with torch.inference_mode():
            return model(**{key: tensor.to(self.device) for key, tensor in given.items()})

    @cached_property
    def _text(self) -> tuple[Any, Any]:
        """The tokenizer and the model."""
        model = self._model("text")
        from transformers import CLIPTokenizer

        folder = self.folder if self.tokenizer is None else self._at_hand(self.tokenizer, TOKENIZER)
        if not (folder / "tokenizer.json").exists() and not (folder / "vocab.json").exists():
            raise self.error(f"{folder}: found no tokenizer.json and no vocab.json; {REMEDY}")
        return self._read(CLIPTokenizer, "a CLIP tokenizer", folder), model

    @cached_property
    def _vision(self) -> tuple[Any, Any]:
        """The image processor and the model."""
        model = self._model("vision")
        import transformers

        # by this name where it has one, so that images are prepared alike with and without torchvision
        plain = "CLIPImageProcessorPil"
        processor = getattr(transformers, plain if hasattr(transformers, plain) else "CLIPImageProcessor")
        size = model.config.image_size
        return processor(size={"shortest_edge": size}, crop_size={"height": size, "width": size}), model

    def _model(self, side: Literal["text", "vision"]) -> Any:
        folder = self.folder
        try:
            import torch  # noqa: F401
            import transformers
        except ImportError as error:
            raise self.error(f"CLIP needs packages that are not installed ({error}); {remedy('text')}") from error
        kind = self._config().get("model_type")
        if kind not in ("clip", f"clip_{side}_model"):
            raise self.error(f"{folder}: holds a model of type {kind!r}, expected CLIP's {side} side")
        name = f"CLIP{side.title()}"
        config = self._read(getattr(transformers, f"{name}Config"), "a CLIP config", folder)
        config.projection_dim = self.dim  # a side's own may be a default that nobody used
        made = getattr(transformers, f"{name}ModelWithProjection")
        options = {"config": config, "use_safetensors": True, "output_loading_info": True}
        model, info = self._read(made, "a CLIP model", folder, **options)
        if info["missing_keys"]:  # they are otherwise filled with random numbers
            raise self.error(f"{folder}: lacks {len(info['missing_keys'])} of the {side} model's tensors; {REMEDY}")
        try:
            return model.float().eval().to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise self.error(f"device {self.device!r} cannot be used ({_line(error)}); cpu always can") from error

    def _config(self) -> dict[str, Any]:
        path = self.folder / "config.json"
        try:
            found = parse_json(path.read_bytes())
        except (ValueError, OSError) as error:
            raise self.error(f"{path}: cannot be read ({_line(error)}); {REMEDY}") from error
        if not isinstance(found, dict):
            raise self.error(f"{path}: found {type(found).__name__}, expected a JSON object; {REMEDY}")
        return found

    def _read(self, kind: Any, what: str, folder: Path, **options: Any) -> Any:
        from safetensors import SafetensorError

        try:
            with quiet("transformers"):
                return kind.from_pretrained(str(folder), local_files_only=True, **options)
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            raise self.error(f"{folder}: cannot be read as {what} ({_line(error)}); {REMEDY}") from error

    def _at_hand(self, where: str, files: Sequence[str]) -> Path:
        """The folder of that name or, for an id of the hub, that of the files which were downloaded or may be."""
        folder = Path(where).expanduser()
        if folder.is_dir():
            return folder
        import huggingface_hub

        try:
            found = huggingface_hub.snapshot_download(
                where, allow_patterns=list(files), local_files_only=not self.allow_hub
            )
            return Path(found)
        except Exception as error:  # no such id, no network, no permission: each has a class of its own
            tried = "the hub gave none" if self.allow_hub else "no model of that id was downloaded before"
            why = f"a CLIP model is needed, there is no such folder and {tried} ({_line(error)})"
            raise self.error(f"{where}: {why}; {REMEDY}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
