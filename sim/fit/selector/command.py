"""`mezzotint calibrate selector`: measure on real images the similarity from which K steps may be skipped."""

import inspect
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from mezzotint.backends.base import BackendError
from mezzotint.extras import remedy
from mezzotint.settings.choice import choice
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.streams import TRACE, stream
from mezzotint.sim.fit.selector.journal import measure
from mezzotint.sim.fit.selector.options import Options
from mezzotint.sim.fit.selector.page import SelectorCalibration, publish
from mezzotint.sim.fit.selector.pairs import choose
from mezzotint.sim.fit.selector.rule import thresholds
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.traces.encoders.embeddings import Encoder, embed
from mezzotint.traces.sources.file import read_any
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.table.trace import Trace

if TYPE_CHECKING:
    from mezzotint.backends.calibrate.machine import Machine
    from mezzotint.backends.diffusers_ import ModelSpec


def selector(**given: Any) -> None:
    """Find for each K the lowest similarity at which quality stays above alpha. Makes images in full and from cached
    ones, and applies NIRVANA's Algorithm 2 or MoDM's rule. Every finished pair is kept: an interrupted calibration goes
    on with the same command.

    Raises:
        ConfigError, TraceError, BackendError: the options cannot be used, or no similarity suffices at any K. In the
            second case the figure and the page are written and say why.
    """
    options = Options(**given)
    # torch takes seconds to import, and is not in the base install
    if missing := [name for name in ("torch", "diffusers", "transformers", "torchmetrics") if find_spec(name) is None]:
        raise BackendError(f"making images needs {', '.join(missing)}; {remedy('live')}")
    from mezzotint.backends.calibrate.machine import machine
    from mezzotint.backends.diffusers_.networks.architectures import architecture
    from mezzotint.sim.fit.selector.live import open_models

    for model in filter(None, (options.large, options.small)):
        architecture(model.family, model.variant, model.scale)
    here = machine(options.device)
    synthetic = Synthetic(requests=options.requests)
    trace = read_any(options.trace) if options.trace else synthetic.load(stream(options.seed, TRACE))
    encoder: Encoder = build(choice("encoder", options.encoder), "encoder")
    pairs = choose(trace, embed(trace, encoder), options.pairs, options.seed)
    journal, conditions = options.output / "journal.jsonl", options.conditions(trace.digest, encoder.name, here.name)
    try:
        scores = measure(pairs, journal, conditions, lambda: open_models(options))
    except KeyboardInterrupt:
        print(f"mezzotint: finished pairs are kept in {journal}; the same command goes on", file=sys.stderr)
        raise
    similarity = np.array([pair.similarity for pair in scores], np.float64)
    full = np.array([[pair.full] for pair in scores], np.float64)
    made = np.array([[pair.by_k[k] for k in options.ks] for pair in scores], np.float64)
    quality = np.where(full > 0, made / np.where(full > 0, full, 1.0), np.nan)
    strict = options.refine_family is None
    limits = thresholds(similarity, quality, options.ks, options.alpha, rule=options.rule, strict=strict)
    facts = _facts(options, trace, encoder.name, here)
    published = _published_thresholds(options)
    calibration = SelectorCalibration(options, facts, pairs, scores, similarity, quality, limits, published)
    for path in publish(calibration, options.output):
        print(path)
    if not calibration.min_similarities:
        raise ConfigError(
            f"no similarity of {len(pairs)} pairs keeps quality above {options.alpha:g} at K = {options.ks[0]}, the "
            "fewest steps to skip, so there is no table to write; lower --alpha, add a smaller K, or take --rule mean"
        )


selector.__signature__ = inspect.signature(Options)  # type: ignore[attr-defined]  # its options are the fields


def _facts(options: Options, trace: Trace, encoder: str, here: "Machine") -> dict[str, str]:
    small, (width, height) = options.small, options.size
    rule = "every pair" if options.rule == "all" else "the mean of the pairs"
    comparison = "reaches" if small is not None else "exceeds"
    versions = ", ".join(f"{package} {version}" for package, version in here.versions.items())
    similarity = "query prompt and cached image (CLIP)" if options.similarity == "image" else f"two prompts ({encoder})"
    return {
        "model": _model_text(options.large),
        **({} if small is None else {"refined by": _model_text(small)}),
        "starts from": "its latent after K steps" if small is None else "the large model's final image",
        "metric": f"{options.metric}, {width}x{height} pixels, {options.steps} steps",
        "rule": f"{rule} at or above the threshold {comparison} alpha = {options.alpha:g} of the full run's score",
        "similarity": similarity,
        "pairs": f"{options.pairs} of trace {trace.name} ({trace.digest[:12]}), seed {options.seed}",
        "device": f"{here.name}; {versions}",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _model_text(model: "ModelSpec") -> str:
    size = "tiny, " if model.scale == "tiny" else ""
    return f"{model.variant or model.family} ({size}{model.dtype}, weights {model.weights})"


def _published_thresholds(options: Options) -> dict[int, float]:
    """Return the thresholds of NIRVANA (prompts) or MoDM (prompt and image) for whole numbers of our steps."""
    is_image = options.similarity == "image"
    if not is_image and options.refine_family is not None:
        return {}
    published = compose_config([f"system={'modm-throughput' if is_image else 'nirvana'}"]).selector
    of_steps = int(published.of_steps)
    table = {int(k) * options.steps: float(limit) for k, limit in published.thresholds.items()}
    return {k // of_steps: limit for k, limit in table.items() if k % of_steps == 0}
