"""SSIM, MS-SSIM and PSNR obey the laws of a similarity and agree with their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from mezzotint.backends.quality import Metric, MsSsim, Psnr, Ssim
from mezzotint.backends.quality.reference import MIN_SIDE as SIDE
from mezzotint.backends.quality.reference import PSNR_CAP_DB
from tests.backends.quality.lab import noisy, pictures

ALL: list[Metric] = [Ssim(), MsSsim(), Psnr()]


def ssim(images: Any, references: Any) -> Any:
    return Ssim().score(images, references=references)


def psnr(images: Any, references: Any) -> Any:
    return Psnr().score(images, references=references)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_metric_is_symmetric_maximal_at_identity_and_falls_with_noise(metric: Metric) -> None:
    """Identical images score highest, exchanging the images changes nothing, and more noise scores less."""
    image = pictures(2, SIDE)
    best = metric.score(image, references=image)
    np.testing.assert_allclose(best, PSNR_CAP_DB if metric.name == "psnr" else 1.0, atol=1e-5)
    scores = [best]
    for sigma in (2.0, 8.0, 24.0, 60.0):
        other = noisy(image, sigma)
        scores.append(metric.score(other, references=image))
        np.testing.assert_allclose(scores[-1], metric.score(image, references=other), atol=1e-5)
    assert (np.diff(np.stack(scores), axis=0) < 0).all()
    assert metric.full_reference


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_image_metric_does_not_depend_on_the_batch(metric: Metric) -> None:
    image, other = pictures(2, SIDE), pictures(2, SIDE, seed=5)
    together = metric.score(image, references=other)
    assert together.shape == (2,)
    assert together.dtype == np.float64
    alone = [metric.score(image[i : i + 1], references=other[i : i + 1])[0] for i in range(2)]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_ssim_matches_wangs_formula() -> None:
    """Written out: Gaussian means, variances and covariance, averaged where the window lies inside."""
    x, y = pictures(1, 48), noisy(pictures(1, 48), 15)
    values = []
    for channel in range(3):
        a, b = x[0, ..., channel].astype(float), y[0, ..., channel].astype(float)

        def blur(field: Any) -> Any:
            return gaussian_filter(field, 1.5, truncate=3.5)

        ma, mb = blur(a), blur(b)
        va, vb, cov = blur(a * a) - ma**2, blur(b * b) - mb**2, blur(a * b) - ma * mb
        c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
        local = (2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
        values.append(local[5:-5, 5:-5].mean())
    np.testing.assert_allclose(ssim(x, y), np.mean(values), atol=2e-5)


def test_ssim_and_psnr_agree_with_scikit_image() -> None:
    metrics = pytest.importorskip("skimage.metrics")
    x, y = pictures(1, 64), noisy(pictures(1, 64), 15)
    theirs = metrics.structural_similarity(
        x[0], y[0], channel_axis=-1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255
    )
    np.testing.assert_allclose(ssim(x, y), theirs, atol=2e-5)
    np.testing.assert_allclose(psnr(x, y), metrics.peak_signal_noise_ratio(x[0], y[0], data_range=255))


def test_psnr_matches_known_errors() -> None:
    """A difference of d levels everywhere is 20 log10(255 / d) dB; the cap holds for less than 1e-10 of 255^2."""
    black = np.zeros((1, 8, 8, 3), np.uint8)
    for levels in (1, 5, 255):
        np.testing.assert_allclose(psnr(black + np.uint8(levels), black), 20 * np.log10(255 / levels), atol=1e-12)
    large = np.zeros((1, 512, 512, 3), np.uint8)
    dot = large.copy()
    dot[0, 0, 0, 0] = 1
    assert psnr(dot, large)[0] == psnr(large, large)[0] == PSNR_CAP_DB


def test_ms_ssim_names_the_smallest_side() -> None:
    small = pictures(1, SIDE - 1)
    with pytest.raises(match=f"175x175.*smallest side is {SIDE}"):
        MsSsim().score(small, references=small)


def test_incomparable_images_are_refused() -> None:
    image = pictures(1, 16)
    for bad in (image.astype(float), image[0], image[..., :1], image[:0]):
        with pytest.raises(match="expected uint8"):
            ssim(bad, image)
        with pytest.raises(match="references: found"):
            psnr(image, bad)
    with pytest.raises(match="one size"):
        psnr(image, pictures(1, 17))
    with pytest.raises(match="smallest side is 11"):
        ssim(image[:, :8], image[:, :8])
    with pytest.raises(match="references="):
        Ssim().score(image, prompts=["a cat"])
