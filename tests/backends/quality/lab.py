"""Images that degrade in a known order, and a CLIP model of a few thousand weights."""

import numpy as np


def pictures(count: int, side: int, seed: int = 0) -> np.ndarray:
    """Smooth colour fields with some grain: (count, side, side, 3)."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 2 * np.pi, side)
    waves = rng.uniform(0.5, 3, (count, 3, 2))
    field = np.sin(x[None, :, None, None] * waves[:, None, None, :, 0]) * np.cos(
        x[None, None, :, None] * waves[:, None, None, :, 1]
    )
    grain = rng.normal(0, 8, (count, side, side, 3))
    return np.clip(127.5 + 90 * field + grain, 0, 255).astype(np.uint8)


def noisy(images: np.ndarray, sigma: float, seed: int = 1) -> np.ndarray:
    """``images`` with Gaussian noise of ``sigma`` levels; the same draw at every sigma."""
    noise = np.random.default_rng(seed).normal(0, 1, images.shape)
    return np.clip(images + sigma * noise, 0, 255).round().astype(np.uint8)
