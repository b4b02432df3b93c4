"""A live model: prompts to conditioning, noise to latents, latents to images, each timed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from mezzotint.backends.diffusers_ import autoencoder
from mezzotint.backends.diffusers_.denoise import Place, Running, prepare_solver, run_steps
from mezzotint.backends.diffusers_.device import Stopwatch, tensor_bytes
from mezzotint.backends.diffusers_.families.base import Conditioning, Family, Predict, StepInput
from mezzotint.backends.diffusers_.networks.architectures import Architecture, ModelSpec
from mezzotint.networks.quiet import quiet


class DenoiseResult(NamedTuple):
    """Result of a run of steps.

    Attributes:
        latents: (n, c, h, w) after the last step that ran.
        captured: K -> latents after K steps of the full run.
        step_s: seconds of each step that ran, in order.
    """

    latents: torch.Tensor
    captured: dict[int, torch.Tensor]
    step_s: np.ndarray


@dataclass(slots=True)
class LiveModel:
    """A built pipeline and the operations of serving.

    Latents are tensors (n, c, h, w) on the model's device, for every family. A latent after step K is bound to the
    model that made it, a decoded image is not.

    Attributes:
        pipe: the stock diffusers pipeline with networks and tokenizers.
        load_s: seconds to build or read it.
    """

    spec: ModelSpec
    architecture: Architecture
    family: Family
    pipe: Any
    device: torch.device
    load_s: float

    @property
    def denoiser(self) -> Any:
        """The network that runs at every step."""
        return getattr(self.pipe, self.family.denoiser)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights and buffers."""
        return tensor_bytes(*(part for part in self.pipe.components.values() if isinstance(part, torch.nn.Module)))

    def encode(self, prompts: Sequence[str]) -> Conditioning:
        """Encode prompts, one row each."""
        shape, family = self.architecture, self.family
        watch = Stopwatch(self.device)
        # Tokenizers by letter often exceed 77 tokens and would warn every time.
        with torch.no_grad(), quiet("diffusers.pipelines"):
            guided = family.guided(shape.guidance)
            positive, negative = family.encode(self.pipe, list(prompts), guided, shape.text_tokens)
        return Conditioning(positive, negative, shape.guidance, watch.lap())

    def latent_shape(self, width: int, height: int) -> tuple[int, int, int]:
        """Return the shape (c, h, w) of a latent. Raises BackendError for a size that the model cannot make."""
        self.family.check_size(self.spec.family, width, height)
        factor = self.pipe.vae_scale_factor
        return self.family.latent_channels(self.pipe), height // factor, width // factor

    def noise(self, width: int, height: int, seeds: Sequence[int], steps: int) -> torch.Tensor:
        """Draw the initial latents of a full run, a row per seed; batch and device do not matter."""
        latents = self._gaussian(self.latent_shape(width, height), seeds)
        return latents * getattr(self._solver(latents, steps), "init_noise_sigma", 1.0)

    def noise_to_step(self, latents: torch.Tensor, step: int, steps: int, seeds: Sequence[int]) -> torch.Tensor:
        """Add noise to clean ``latents`` up to the level after ``step`` of ``steps``.

        This is how a cached final image enters at step K (MoDM, section 5.1). There is one seed per latent.
        """
        clean = latents.to(device=self.device, dtype=self.family.latent_dtype(self.pipe))
        noise = self._gaussian(tuple(clean.shape[1:]), seeds)
        solver = self._solver(clean, steps, step)
        level = solver.timesteps[step : step + 1]
        if hasattr(solver, "scale_noise"):
            noisy: torch.Tensor = solver.scale_noise(clean, level, noise)
        else:
            noisy = solver.add_noise(clean, noise, level)
        return noisy

    def denoise(
        self,
        conditioning: Conditioning,
        latents: torch.Tensor,
        steps: int,
        first_step: int = 0,
        last_step: int | None = None,
        capture: Iterable[int] = (),
        predict: Predict | None = None,
        on_step: Callable[[int, torch.Tensor], None] | None = None,
    ) -> DenoiseResult:
        """Run steps ``first_step`` to ``last_step`` (excluded) of a schedule of ``steps``.

        A run cut at K and resumed from its captured latent is bit-equal to one that was not cut. The model and
        its scheduler are left as they were, so runs may be interleaved.

        Args:
            conditioning: one row per latent.
            latents: (n, c, h, w), the state after ``first_step`` steps: noise for 0.
            steps: steps of a full run, T.
            first_step: steps already done, K; the run is T - K steps long.
            last_step: step to stop before; None runs to the end.
            capture: every K in ``first_step``..``last_step`` after which the latents are kept.
            predict: a step of the denoiser with ControlNets; None for a plain one.
            on_step: called after each step with (steps done so far, latents), outside the timed part. A LoRA
                patched there takes effect from the next step on.

        Raises:
            BackendError: steps out of order.
        """
        stop = steps if last_step is None else last_step
        wanted = set(capture)
        run = Running(self.family, self.pipe, conditioning, latents, [Place(steps, first_step, latents.shape[0])])
        captured = {first_step: run.state.clone()} if first_step in wanted else {}

        def after_step(ran: int) -> None:
            if first_step + ran in wanted:
                captured[first_step + ran] = run.state.clone()
            if on_step is not None:
                on_step(first_step + ran, run.state)

        seconds = run_steps([run], stop - first_step, self.predict_each(predict), after_step)
        return DenoiseResult(run.state, captured, seconds)

    def predict_each(self, predict: Predict | None) -> Callable[[Sequence[StepInput]], list[torch.Tensor]]:
        """Return ``predict``, or else a plain step of the denoiser, for the steps of several sizes in turn."""
        family, pipe = self.family, self.pipe
        return lambda steps: [predict(pipe, step) if predict else family.predict(pipe, step, None) for step in steps]

    def decode(self, latents: torch.Tensor) -> tuple[np.ndarray, float]:
        """Decode final latents; return images, uint8 (n, height, width, 3), and the seconds until the host has them."""
        watch = Stopwatch(self.device)
        with torch.no_grad():
            images = autoencoder.as_images(autoencoder.to_pixels(self.pipe.vae, latents))
        return images, watch.lap()

    def encode_images(self, images: Sequence[np.ndarray], width: int, height: int) -> tuple[torch.Tensor, float]:
        """Encode images, each uint8 (h, w, 3), resized to ``width`` x ``height`` pixels if needed.

        Returns:
            Latents (n, c, h, w) scaled for the denoiser, and the seconds of encoding.
        """
        self.latent_shape(width, height)
        watch = Stopwatch(self.device)
        pixels = autoencoder.as_pixels(images, width, height, self.device)
        with torch.no_grad():
            latents = autoencoder.to_latents(self.pipe.vae, pixels * 2 - 1)
        return latents.to(self.family.latent_dtype(self.pipe)), watch.lap()

    def refine(
        self,
        conditioning: Conditioning,
        images: Sequence[np.ndarray],
        width: int,
        height: int,
        seeds: Sequence[int],
        first_step: int,
        steps: int,
    ) -> DenoiseResult:
        """Refine finished images of any model in ``steps - first_step`` steps."""
        clean, _ = self.encode_images(images, width, height)
        return self.denoise(conditioning, self.noise_to_step(clean, first_step, steps, seeds), steps, first_step)

    def save(self, folder: Path) -> None:
        """Write the pipeline as a folder that ``weights=`` can read back."""
        self.pipe.save_pretrained(str(folder), safe_serialization=True)

    def _gaussian(self, shape: tuple[int, ...], seeds: Sequence[int]) -> torch.Tensor:
        rows = [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return torch.stack(rows).to(device=self.device, dtype=self.family.latent_dtype(self.pipe))

    def _solver(self, latents: torch.Tensor, steps: int, done: int = 0) -> Any:
        return prepare_solver(self.family, self.pipe, latents, steps, done)
