"""The options of `mezzotint calibrate selector`, checked before anything long begins."""

import argparse
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from sim.errors import ConfigError
from sim.study.selector.rule import Rule

ALPHA, ALPHA_REFINED, ALPHA_PSNR = 0.9, 0.95, 0.3
"""NIRVANA 5.3.1; MoDM 5.2; 30 of the 100 dB that identical images score, where differences begin to be seen."""

_CHOICES = {
    "--metric": ("ssim", "ms-ssim", "psnr", "clipscore", "pickscore"),
    "--encoder": ("ngram", "minilm"),
    "--similarity": ("text", "image"),
    "--rule": ("all", "mean"),
    "--dtype": ("float32", "float16", "bfloat16"),
    "--scale": ("full", "tiny"),
}


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """One live model as the options name it; see backends.diffusers_.ModelSpec."""

    family: str
    variant: str | None
    scale: str
    weights: str
    dtype: str

    @property
    def words(self) -> str:
        """For a reader."""
        size = "tiny, " if self.scale == "tiny" else ""
        return f"{self.variant or self.family} ({size}{self.dtype}, weights {self.weights})"


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure and where to write it; `add_parser` in selector.py says what each means."""

    output: Path
    trace: Path | None
    requests: int
    pairs: int
    encoder: str
    similarity: str
    seed: int
    large: ModelOptions
    small: ModelOptions | None
    device: str
    allow_hub: bool
    steps: int
    ks: tuple[int, ...]
    width: int
    height: int
    metric: str
    clip: str | None
    pickscore: str | None
    alpha: float
    rule: Rule

    def conditions(self, digest: str, encoder: str, device: str) -> dict[str, Any]:
        """All that a pair's scores depend on: alpha and the rule are applied afterwards, at no cost."""
        return {
            "trace": digest,
            "encoder": encoder,
            "similarity": self.similarity,
            "large": asdict(self.large),
            "small": None if self.small is None else asdict(self.small),
            "device": device,
            "steps": self.steps,
            "ks": list(self.ks),
            "size": [self.width, self.height],
            "metric": self.metric,
            "scorer": self.pickscore
            if self.metric == "pickscore"
            else self.clip
            if self.metric == "clipscore"
            else None,
            "clip": self.clip if self.similarity == "image" else None,
            "seed": self.seed,
        }


def checked(args: argparse.Namespace) -> Options:
    """The options, complete and possible together. Whether a model exists is asked of the backend, later.

    Raises:
        ConfigError: an option out of its range or without the one that it needs; the message names it.
    """
    for option, choices in _CHOICES.items():
        for prefix in ("", "refine_") if option in ("--dtype", "--scale") else ("",):
            given = getattr(args, prefix + option.removeprefix("--"))
            if given not in choices and not (option == "--dtype" and given is None):
                shown = f"--{prefix.replace('_', '-')}{option.removeprefix('--')}"
                raise ConfigError(f"{shown}: found {given!r}, expected one of {', '.join(choices)}")
    for name, least in (("requests", 2), ("pairs", 1), ("steps", 2), ("seed", 0)):
        if getattr(args, name) < least:
            raise ConfigError(f"--{name}: found {getattr(args, name)}, expected {least} or more")
    if args.refine_family is None and (args.refine_variant or args.refine_dtype or args.refine_weights != "random"):
        raise ConfigError("--refine-variant, --refine-weights and --refine-dtype need --refine-family; add it")
    needs_clip = args.metric == "clipscore" or args.similarity == "image"
    if needs_clip and args.clip is None and not args.allow_hub:
        raise ConfigError(
            "--metric clipscore and --similarity image need the weights of openai/clip-vit-large-patch14; download "
            "that repository into a folder and name it with --clip, or add --allow-hub"
        )
    if args.metric == "pickscore" and args.pickscore is None and not args.allow_hub:
        raise ConfigError(
            "--metric pickscore needs the weights of yuvalkirstain/PickScore_v1 and the tokenizer of "
            "laion/CLIP-ViT-H-14-laion2B-s32B-b79K; download both into one folder and name it with --pickscore, or add "
            "--allow-hub"
        )
    usual = ALPHA_PSNR if args.metric == "psnr" else ALPHA if args.refine_family is None else ALPHA_REFINED
    alpha = usual if args.alpha is None else args.alpha
    if not 0 < alpha <= 1:
        raise ConfigError(f"--alpha: found {alpha}, expected a share above 0 and at most 1")
    width, height = _size(args)
    return Options(
        output=args.output,
        trace=args.trace,
        requests=args.requests,
        pairs=args.pairs,
        encoder=args.encoder,
        similarity=args.similarity,
        seed=args.seed,
        large=_model(args, ""),
        small=None if args.refine_family is None else _model(args, "refine_"),
        device=args.device,
        allow_hub=args.allow_hub,
        steps=args.steps,
        ks=_ks(args.ks, args.steps),
        width=width,
        height=height,
        metric=args.metric,
        clip=args.clip,
        pickscore=args.pickscore,
        alpha=alpha,
        rule=cast(Rule, args.rule),
    )


def _model(args: argparse.Namespace, prefix: str) -> ModelOptions:
    family, variant, scale, weights, dtype = (
        getattr(args, prefix + name) for name in ("family", "variant", "scale", "weights", "dtype")
    )
    # what the published checkpoints of these two are in; the others overflow in float16
    half = "float16" if family in ("sd15", "sdxl") else "bfloat16"
    return ModelOptions(family, variant, scale, weights, dtype or ("float32" if args.device == "cpu" else half))


def _ks(given: str, steps: int) -> tuple[int, ...]:
    try:
        ks = sorted({int(each) for each in given.split(",")})
    except ValueError:
        raise ConfigError(f"--ks: found {given!r}, expected whole numbers such as 5,10,15") from None
    if not 1 <= ks[0] <= ks[-1] < steps:
        raise ConfigError(
            f"--ks: found {given}, expected steps to skip from 1 to {steps - 1}, one less than --steps {steps}"
        )
    return tuple(ks)


def _size(args: argparse.Namespace) -> tuple[int, int]:
    if args.size is None:
        # what the published models were trained at
        side = 128 if args.scale == "tiny" else 512 if args.family == "sd15" else 1024
        return side, side
    found = re.fullmatch(r"(\d+)(?:x(\d+))?", args.size)
    if found is None or int(found[1]) < 1 or int(found[2] or 1) < 1:
        raise ConfigError(f"--size: found {args.size!r}, expected pixels such as 1024 or 1024x768")
    return int(found[1]), int(found[2] or found[1])
