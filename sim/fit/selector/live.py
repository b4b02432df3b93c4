"""Scores of a pair on live models: its images are generated in full and from the cached artifact at each K."""

from dataclasses import dataclass

import numpy as np
import torch

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_ import LiveModel, build
from mezzotint.backends.quality import ClipScore, ClipWeights, Metric, MsSsim, PickScore, Psnr, Ssim
from mezzotint.backends.quality.clip import PICKSCORE, PICKSCORE_TOKENIZER
from mezzotint.networks.quiet import quiet
from mezzotint.sim.fit.selector.journal import Scores
from mezzotint.sim.fit.selector.options import Options
from mezzotint.sim.fit.selector.pairs import Pair
from mezzotint.traces.similarity.similarities import DECIMALS


@dataclass(frozen=True, slots=True)
class PairScorer:
    """Generate and score the images of a pair on live models.

    The large model runs the cached prompt and the query in full. The query then runs from each K: on the large model
    from the cached run's latent (NIRVANA), or on a small model from the cached run's final image (MoDM). With ``clip``
    the pair's similarity is the cosine of the query and the cached image (MoDM, 3.2), not of the two prompts.

    Under a full-reference metric both runs start from the same noise, since the score would otherwise measure the
    difference of the noises. Under other metrics each run has its own noise, as in serving.
    """

    large: LiveModel
    small: LiveModel | None
    metric: Metric
    clip: ClipWeights | None
    options: Options

    def check(self) -> None:
        """Raise BackendError if a model or the metric does not support the size, or weights are missing."""
        for model in (self.large, self.small):
            if model is not None:
                model.latent_shape(*self.options.size)
        grey = np.full((1, *self.options.size[::-1], 3), 128, np.uint8)
        self.metric.score(grey, references=grey, prompts=["a cat"])
        if self.clip is not None:
            self.clip.cosines(grey, ["a cat"])

    def __call__(self, pair: Pair) -> Scores:
        """Generate and score the pair's images. Raises BackendError if the device runs out of memory."""
        try:
            # which would warn of every synthetic prompt over 77 tokens
            with quiet("transformers"):
                return self._scores(pair)
        except torch.OutOfMemoryError as full:
            raise BackendError(
                f"{'x'.join(map(str, self.options.size))} pixels do not fit into the memory of {self.large.device}; "
                "take a smaller --size, or --dtype bfloat16. Finished pairs are kept"
            ) from full

    def _scores(self, pair: Pair) -> Scores:
        size, steps, ks = self.options.size, self.options.steps, self.options.ks
        seed = self._seed(pair.query)
        own = seed if self.metric.full_reference else self._seed(pair.cached)
        noise = self.large.noise(*size, [seed], steps)
        query = self.large.encode([pair.query_prompt])
        full = self.large.decode(self.large.denoise(query, noise, steps).latents)[0]
        needs_image = self.small is not None or self.clip is not None
        noise = self.large.noise(*size, [own], steps)
        last = None if needs_image else max(ks)
        cached = self.large.denoise(self.large.encode([pair.cached_prompt]), noise, steps, last_step=last, capture=ks)
        image = self.large.decode(cached.latents)[0] if needs_image else None
        runner = self.small or self.large
        query = query if self.small is None else self.small.encode([pair.query_prompt])
        made = []
        for k in ks:
            if self.small is None:
                done = self.large.denoise(query, cached.captured[k], steps, first_step=k)
            else:
                assert image is not None
                done = self.small.refine(query, list(image), *size, [seed], k, steps)
            made.append(runner.decode(done.latents)[0])
        similarity = pair.similarity
        if self.clip is not None:
            assert image is not None
            similarity = round(float(self.clip.cosines(image, [pair.query_prompt])[0]), DECIMALS)
        # in one batch, so that the metric sees all images under the same conditions
        images = np.concatenate([full, *made])
        scores = self.metric.score(
            images, references=np.repeat(full, len(images), axis=0), prompts=[pair.query_prompt] * len(images)
        )
        by_k = dict(zip(ks, scores[1:].tolist(), strict=True))
        return Scores(similarity=similarity, full=float(scores[0]), by_k=by_k)

    def _seed(self, row: int) -> int:
        return int(np.random.SeedSequence(self.options.seed, spawn_key=(row,)).generate_state(1)[0])


def open_models(options: Options) -> PairScorer:
    """Build the models and the metric, and check that they support the options."""
    from transformers.utils import logging

    # diffusers' pipelines import image processors that report fallbacks; the first logger of transformers sets its
    # level, so it has to exist before quiet lowers that level
    logging.get_logger()
    with quiet("transformers"):
        clip = None
        if options.needs_clip:
            given = {} if options.clip is None else {"weights": options.clip}
            clip = ClipWeights(device=options.device, allow_hub=options.allow_hub, **given)
        large = build(options.large, options.device)
        small = None if options.small is None else build(options.small, options.device)
        compared = clip if options.similarity == "image" else None
        live = PairScorer(large, small, metric(options, clip), compared, options)
        live.check()
        return live


def metric(options: Options, clip: ClipWeights | None) -> Metric:
    """Return the metric that ``options`` names; ``clip`` is for CLIPScore."""
    if clip is not None and options.metric == "clipscore":
        return ClipScore(clip)
    if options.metric == "pickscore":
        from_hub = options.pickscore is None  # where the tokenizer lies in another repository
        weights, tokenizer = options.pickscore or PICKSCORE, PICKSCORE_TOKENIZER if from_hub else None
        return PickScore(ClipWeights(weights, tokenizer, options.device, options.allow_hub))
    if options.metric == "psnr":
        return Psnr()
    return MsSsim(options.device) if options.metric == "ms-ssim" else Ssim(options.device)
