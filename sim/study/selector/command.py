"""`mezzotint calibrate selector`: from which similarity on may K steps be skipped? Measured on real images."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from backends.base import BackendError
from sim.errors import ConfigError
from sim.study.selector.options import ModelOptions, Options, checked

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from backends.calibrate.machine import Machine
    from backends.diffusers_ import LiveModel
    from backends.quality import ClipWeights, Metric
    from sim.study.selector.journal import Scores
    from sim.study.selector.live import LivePairs
    from sim.study.selector.page import Findings
    from sim.study.selector.pairs import Pair
    from traces.table.trace import Trace

JOURNAL = "journal.jsonl"


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add `selector` to what can be calibrated; the parsed arguments carry `run` under `run`."""
    parser = subparsers.add_parser(
        "selector",
        help="the similarity from which on K steps may be skipped (NIRVANA's Algorithm 2, MoDM's rule)",
        description="Make images in full and from cached ones, and find for each K the lowest similarity at which "
        "quality stays above alpha. Every finished pair is kept, the same command goes on.",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the files go")
    prompts = parser.add_argument_group("prompts")
    prompts.add_argument("--trace", type=Path, metavar="FILE", help="a canonical trace (default: the synthetic one)")
    prompts.add_argument("--requests", type=int, default=10_000, metavar="N", help="of the synthetic trace")
    prompts.add_argument("--pairs", type=int, default=100, metavar="N", help="query and cached prompt (default: 100)")
    prompts.add_argument("--encoder", default="ngram", help="ngram or minilm (default: ngram)")
    prompts.add_argument(
        "--similarity",
        default="text",
        help="text: of the two prompts (NIRVANA); image: of the query and the cached image, needs --clip (MoDM)",
    )
    prompts.add_argument("--seed", type=int, default=1, help="decides the synthetic trace, the pairs and the noise")
    for prefix, whose in (("", "the model"), ("refine-", "a small model that refines the large one's images (MoDM)")):
        group = parser.add_argument_group(whose)
        group.add_argument(f"--{prefix}family", required=not prefix, help="sd15, sdxl, sd3, flux or sana")
        group.add_argument(f"--{prefix}variant", help="of the family (default: its usual one)")
        group.add_argument(f"--{prefix}scale", default="full", help="full, or tiny for a CPU (default: full)")
        group.add_argument(
            f"--{prefix}weights", default="random", help="random, a pipeline folder, or with --allow-hub a hub id"
        )
        group.add_argument(f"--{prefix}dtype", help="float32, float16 or bfloat16 (default: by device and family)")
    where = parser.add_argument_group("where and how")
    where.add_argument("--device", default="cpu", help="cpu, cuda or cuda:i (default: cpu)")
    where.add_argument("--allow-hub", action="store_true", help="let weights be fetched from the hub")
    where.add_argument("--steps", type=int, default=50, help="of a full run (default: 50)")
    where.add_argument("--ks", default="5,10,15,20,25", help="steps skipped (default: 5,10,15,20,25)")
    where.add_argument("--size", help="pixels, one number or WxH (default: 1024; 512 for sd15; 128 for tiny models)")
    quality = parser.add_argument_group("quality")
    quality.add_argument("--metric", default="ssim", help="ssim, ms-ssim, psnr, clipscore or pickscore (default: ssim)")
    quality.add_argument("--clip", metavar="FOLDER", help="weights of CLIP ViT-L/14, for clipscore or image similarity")
    quality.add_argument("--pickscore", metavar="FOLDER", help="weights of PickScore v1, with its tokenizer")
    quality.add_argument(
        "--alpha",
        type=float,
        help="share of the full run's score that must be kept (default: 0.9; 0.95 with a small model; for psnr a share "
        "of 100 dB: 0.3)",
    )
    quality.add_argument(
        "--rule", default="all", help="all: every pair above the threshold is good (Algorithm 2); mean: their mean is"
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Measure what is not yet measured, write the files and print their paths.

    Raises:
        ConfigError, TraceError, BackendError: the options cannot be used; or no similarity suffices at any K, in
            which case the figure and the page are written and say why.
    """
    options = checked(args)
    # torch takes seconds to import, and is not in the base install
    if missing := [name for name in ("torch", "diffusers", "torchmetrics") if find_spec(name) is None]:
        raise BackendError(f"making images needs {', '.join(missing)}; install with: pip install 'mezzotint[live]'")
    from backends.calibrate.machine import machine
    from backends.diffusers_.networks.architectures import architecture
    from sim.study.selector.journal import Journal, measure
    from sim.study.selector.page import publish
    from sim.study.selector.pairs import choose
    from traces.encoders.embeddings import embed
    from traces.encoders.minilm import MiniLM
    from traces.encoders.ngram import HashedNgrams

    for model in (options.large, options.small):
        if model is not None:
            architecture(model.family, model.variant, model.scale)  # type: ignore[arg-type]
    here = machine(options.device)
    trace = _trace(options)
    encoder = MiniLM() if options.encoder == "minilm" else HashedNgrams()
    pairs = choose(trace, embed(trace, encoder), options.pairs, options.seed)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{options.output}: cannot be made ({error.strerror}); name another with -o") from error
    journal = Journal(options.output / JOURNAL, options.conditions(trace.digest, encoder.name, here.name))
    try:
        scores = measure(pairs, journal, lambda: _live(options))
    except KeyboardInterrupt:
        print(f"mezzotint: finished pairs are kept in {journal.path}; the same command goes on", file=sys.stderr)
        raise
    found = findings(options, pairs, scores, _facts(options, trace, encoder.name, here))
    for path in publish(found, options.output):
        print(path)
    if not found.at_least:
        raise ConfigError(
            f"no similarity of {len(pairs)} pairs keeps quality above {options.alpha:g} at K = {options.ks[0]}, the "
            "fewest steps to skip, so there is no table to write; lower --alpha, add a smaller K, or take --rule mean"
        )
    return 0


def findings(
    options: Options, pairs: "Sequence[Pair]", scores: "Sequence[Scores]", facts: dict[str, str]
) -> "Findings":
    """Scores as qualities, and the thresholds that follow.

    An image's quality is its share of the full image's score. For the full-reference metrics that score is the best
    there is: 1, or 100 dB. Where it is 0 or less the pair has no quality (NaN).
    """
    import numpy as np

    from sim.study.selector.page import Findings
    from sim.study.selector.rule import thresholds

    similarity = np.array([each.similarity for each in scores], np.float64)
    full = np.array([[each.full] for each in scores], np.float64)
    made = np.array([[each.by_k[k] for k in options.ks] for each in scores], np.float64)
    quality = np.where(full > 0, made / np.where(full > 0, full, 1.0), np.nan)
    of_images = options.similarity == "image"
    # the papers' thresholds are of prompts (NIRVANA) or of prompt and image (MoDM); the other is another scale
    system = "modm-throughput" if of_images else "nirvana"
    comparable = of_images or options.small is None
    random = "random" in (options.large.weights, options.small.weights if options.small else None)
    return Findings(
        facts=facts,
        warning="random weights: the images, and so these thresholds, mean nothing" if random else None,
        pairs=pairs,
        scores=scores,
        similarity=similarity,
        quality=quality,
        thresholds=thresholds(
            similarity, quality, options.ks, options.alpha, rule=options.rule, strict=options.small is None
        ),
        alpha=options.alpha,
        steps=options.steps,
        refines=options.small is not None,
        of_images=of_images,
        encoder=options.encoder,
        published=_published(system, options.steps) if comparable else {},
        paper="MoDM" if of_images else "NIRVANA",
    )


def _facts(options: Options, trace: "Trace", encoder: str, here: "Machine") -> dict[str, str]:
    rule = "every pair" if options.rule == "all" else "the mean of the pairs"
    beyond = "reaches" if options.small is not None else "exceeds"
    start = "the large model's final image" if options.small is not None else "its latent after K steps"
    versions = ", ".join(f"{package} {version}" for package, version in here.versions.items())
    similarity = "query prompt and cached image (CLIP)" if options.similarity == "image" else f"two prompts ({encoder})"
    return {
        "model": options.large.words,
        **({} if options.small is None else {"refined by": options.small.words}),
        "starts from": start,
        "metric": f"{options.metric}, {options.width}x{options.height} pixels, {options.steps} steps",
        "rule": f"{rule} at or above the threshold {beyond} alpha = {options.alpha:g} of the full run's score",
        "similarity": similarity,
        "pairs": f"{options.pairs} of trace {trace.name} ({trace.digest[:12]}), seed {options.seed}",
        "device": f"{here.name}; {versions}",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _published(system: str, steps: int) -> dict[int, float]:
    """The thresholds of a shipped system, from its own configuration; those whose share of ``steps`` is whole."""
    from sim.config.hydra_node import composed

    selector = composed([f"system={system}"]).selector
    of_steps = int(selector.of_steps)
    table = {int(k) * steps: float(limit) for k, limit in selector.at_least.items()}
    return {k // of_steps: limit for k, limit in table.items() if k % of_steps == 0}


def _trace(options: Options) -> "Trace":
    from sim.streams import stream
    from traces.sources.synthetic import Synthetic
    from traces.table.trace import read

    if options.trace is not None:
        return read(options.trace)
    return Synthetic(requests=options.requests).load(stream(options.seed, "trace"))


def _live(options: Options) -> "LivePairs":
    """Build the models, and see that they and the metric can do what is asked."""
    from transformers.utils import logging

    from conf.quiet import quiet

    # diffusers' pipelines import image processors that say what they fall back to; the first logger of
    # transformers sets its level, so it is asked for before that level is lowered
    logging.get_logger()
    with quiet("transformers"):
        return _opened(options)


def _opened(options: Options) -> "LivePairs":
    from backends.quality import ClipWeights
    from sim.study.selector.live import LivePairs

    clip = None
    if options.metric == "clipscore" or options.similarity == "image":
        given = {} if options.clip is None else {"weights": options.clip}
        clip = ClipWeights(device=options.device, allow_hub=options.allow_hub, **given)
    live = LivePairs(
        large=_model(options, options.large),
        small=None if options.small is None else _model(options, options.small),
        metric=_metric(options, clip),
        clip=clip if options.similarity == "image" else None,
        width=options.width,
        height=options.height,
        steps=options.steps,
        ks=options.ks,
        seed=options.seed,
    )
    live.check()
    return live


def _model(options: Options, model: ModelOptions) -> "LiveModel":
    from backends.diffusers_ import ModelSpec, build

    spec = ModelSpec(
        model.family,
        variant=model.variant,
        weights=model.weights,
        scale=model.scale,  # type: ignore[arg-type]
        dtype=model.dtype,  # type: ignore[arg-type]
        seed=options.seed,
        allow_hub=options.allow_hub,
    )
    return build(spec, options.device)


def _metric(options: Options, clip: "ClipWeights | None") -> "Metric":
    from backends.quality import ClipScore, ClipWeights, MsSsim, PickScore, Psnr, Ssim
    from backends.quality.clip import PICKSCORE, PICKSCORE_TOKENIZER

    if clip is not None and options.metric == "clipscore":
        return ClipScore(clip)
    if options.metric == "pickscore":
        own = options.pickscore is None  # from the hub, where the tokenizer lies elsewhere
        weights, tokenizer = options.pickscore or PICKSCORE, PICKSCORE_TOKENIZER if own else None
        return PickScore(ClipWeights(weights, tokenizer, options.device, options.allow_hub))
    if options.metric == "psnr":
        return Psnr()
    return MsSsim(options.device) if options.metric == "ms-ssim" else Ssim(options.device)
