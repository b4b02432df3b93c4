"""The options of `mezzotint calibrate selector`, checked before anything long begins."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.selector.rule import Rule

if TYPE_CHECKING:
    from mezzotint.backends.diffusers_ import ModelSpec

ALPHA, ALPHA_REFINED, ALPHA_PSNR = 0.9, 0.95, 0.3
"""NIRVANA 5.3.1; MoDM 5.2; for PSNR 30 of the 100 dB of identical images, where differences begin to show."""

Family = Annotated[str, Option(help="sd15, sdxl, sd3, flux or sana")]
Variant = Annotated[str | None, Option(show_default="the family's usual one", help="variant of the family")]
Scale = Annotated[Literal["full", "tiny"], Option(help="full size, or tiny for a CPU")]
Weights = Annotated[str, Option(help="random, a pipeline folder, or a hub id with --allow-hub")]
Dtype = Annotated[
    Literal["float32", "float16", "bfloat16"] | None,
    Option(show_default="by device and family", help="number format of the weights"),
]
MODEL = ("family", "variant", "scale", "weights", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a calibration. Raises ConfigError for an option without the one that it needs."""

    output: Annotated[Path, Option("-o", "--output", metavar="FOLDER", help="folder of the results")]
    trace: Annotated[
        Path | None, Option(metavar="FILE", show_default="the synthetic one", help="a canonical trace")
    ] = None
    requests: Annotated[int, Option(min=2, help="length of the synthetic trace")] = 10_000
    pairs: Annotated[int, Option(min=1, help="number of pairs of a query and a cached prompt")] = 100
    encoder: Annotated[Literal["ngram", "minilm"], Option(help="encoder of the prompts")] = "ngram"
    similarity: Annotated[
        Literal["text", "image"],
        Option(help="between the two prompts (NIRVANA), or the query and the cached image, with --clip (MoDM)"),
    ] = "text"
    seed: Annotated[int, Option(min=0, help="seed of the synthetic trace, the pairs and the noise")] = 1
    family: Family
    variant: Variant = None
    scale: Scale = "full"
    weights: Weights = "random"
    dtype: Dtype = None
    refine_family: Annotated[
        str | None,
        Option(help="family of a small model that refines the large model's images (MoDM); likewise --refine-..."),
    ] = None
    refine_variant: Variant = None
    refine_scale: Scale = "full"
    refine_weights: Weights = "random"
    refine_dtype: Dtype = None
    device: Annotated[str, Option(help="cpu, cuda or cuda:i")] = "cpu"
    allow_hub: Annotated[bool, Option("--allow-hub", help="allow downloads of weights from the hub")] = False
    steps: Annotated[int, Option(min=2, help="denoising steps of a full run")] = 50
    skipped: Annotated[str, Option("--ks", metavar="LIST", help="numbers of steps to skip")] = "5,10,15,20,25"
    pixels: Annotated[
        str | None,
        Option(
            "--size",
            metavar="N|WxH",
            show_default="1024; 512 for sd15; 128 for tiny models",
            help="image size in pixels",
        ),
    ] = None
    metric: Annotated[Literal["ssim", "ms-ssim", "psnr", "clipscore", "pickscore"], Option(help="quality metric")] = (
        "ssim"
    )
    clip: Annotated[
        str | None, Option(metavar="FOLDER", help="weights of CLIP ViT-L/14, for clipscore or image similarity")
    ] = None
    pickscore: Annotated[str | None, Option(metavar="FOLDER", help="weights of PickScore v1, with its tokenizer")] = (
        None
    )
    share: Annotated[
        float | None,
        Option(
            "--alpha", min=1e-9, max=1, show_default="0.9; 0.95 with a small model; 0.3 for psnr, a share of 100 dB",
            help="share of the full run's score that must be kept",
        ),
    ] = None  # fmt: skip
    rule: Annotated[
        Rule, Option(help="all: every pair above the threshold suffices (Algorithm 2); mean: their mean does")
    ] = "all"

    def __post_init__(self) -> None:
        if self.refine_family is None and (self.refine_variant or self.refine_dtype or self.refine_weights != "random"):
            raise ConfigError("--refine-variant, --refine-weights and --refine-dtype need --refine-family; add it")
        if self.needs_clip and self.clip is None and not self.allow_hub:
            raise ConfigError(
                "--metric clipscore and --similarity image need the weights of openai/clip-vit-large-patch14; download "
                "that repository into a folder and name it with --clip, or add --allow-hub"
            )
        if self.metric == "pickscore" and self.pickscore is None and not self.allow_hub:
            raise ConfigError(
                "--metric pickscore needs the weights of yuvalkirstain/PickScore_v1 and the tokenizer of "
                "laion/CLIP-ViT-H-14-laion2B-s32B-b79K; download both into one folder and name it with --pickscore, "
                "or add --allow-hub"
            )
        if not 1 <= self.ks[0] <= self.ks[-1] < self.steps:
            raise ConfigError(
                f"--ks: found {self.skipped}, expected steps to skip from 1 to {self.steps - 1}, one less than --steps "
                f"{self.steps}"
            )
        if min(self.size) < 1:
            raise ConfigError(f"--size: found {self.pixels!r}, expected pixels such as 1024 or 1024x768")

    @property
    def needs_clip(self) -> bool:
        """True if the options need the weights of CLIP."""
        return self.metric == "clipscore" or self.similarity == "image"

    @property
    def alpha(self) -> float:
        """The share of the full run's score that must be kept."""
        if self.share is not None:
            return self.share
        return ALPHA_PSNR if self.metric == "psnr" else ALPHA if self.refine_family is None else ALPHA_REFINED

    @property
    def ks(self) -> tuple[int, ...]:
        """Numbers of steps to skip, ascending."""
        try:
            return tuple(sorted({int(steps) for steps in self.skipped.split(",")}))
        except ValueError:
            raise ConfigError(f"--ks: found {self.skipped!r}, expected whole numbers such as 5,10,15") from None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height; by default the training size of the published models. (0, 0) for a malformed --size."""
        if self.pixels is None:
            side = 128 if self.scale == "tiny" else 512 if self.family == "sd15" else 1024
            return side, side
        match = re.fullmatch(r"(\d+)(?:x(\d+))?", self.pixels)
        return (int(match[1]), int(match[2] or match[1])) if match else (0, 0)

    @property
    def large(self) -> "ModelSpec":
        """The model that makes the cached images."""
        return self._model("")

    @property
    def small(self) -> "ModelSpec | None":
        """The model that refines cached images; None if the large model resumes its own latents."""
        return None if self.refine_family is None else self._model("refine_")

    def _model(self, prefix: str) -> "ModelSpec":
        from mezzotint.backends.diffusers_ import ModelSpec

        fields = {name: getattr(self, prefix + name) for name in MODEL}
        # as the published checkpoints of these two; the others overflow in float16
        half = "float16" if fields["family"] in ("sd15", "sdxl") else "bfloat16"
        fields["dtype"] = fields["dtype"] or ("float32" if self.device == "cpu" else half)
        return ModelSpec(**fields, seed=self.seed, allow_hub=self.allow_hub)

    def conditions(self, digest: str, encoder: str, device: str) -> dict[str, Any]:
        """Return everything that a pair's scores depend on; alpha and the rule are applied afterwards."""
        models = {"large": self.large, "small": self.small}
        return {
            "trace": digest,
            "encoder": encoder,
            "device": device,
            **{which: model and {name: getattr(model, name) for name in MODEL} for which, model in models.items()},
            **{name: getattr(self, name) for name in ("similarity", "steps", "metric", "seed")},
            "ks": list(self.ks),
            "size": list(self.size),
            "scorer": {"pickscore": self.pickscore, "clipscore": self.clip}.get(self.metric),
            "clip": self.clip if self.similarity == "image" else None,
        }
