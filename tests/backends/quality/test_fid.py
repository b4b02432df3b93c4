"""The Fréchet distance agrees with what is known of Gaussians, and features come out of a TorchScript file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

torch = pytest.importorskip("torch")

from backends.quality import Moments, QualityError, fid, frechet_distance, inception  # noqa: E402
from tests.backends.quality.lab import noisy, pictures  # noqa: E402


def moments(seed: int, dim: int, rank: int) -> Moments:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dim, rank))
    return Moments(rng.normal(size=dim), root @ root.T, 100)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), dim=st.integers(1, 6))
def test_closed_form_for_covariances_that_commute(seed: int, dim: int) -> None:
    """Diagonal covariances: |m1 - m2|^2 + sum (s1 - s2)^2, s the standard deviations."""
    rng = np.random.default_rng(seed)
    mean, other = rng.normal(size=(2, dim))
    deviation, spread = rng.uniform(0, 3, size=(2, dim))
    one, two = Moments(mean, np.diag(deviation**2), 9), Moments(other, np.diag(spread**2), 9)
    expected = ((mean - other) ** 2).sum() + ((deviation - spread) ** 2).sum()
    assert frechet_distance(one, two) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), dim=st.integers(2, 8))
def test_laws_of_a_distance(seed: int, dim: int) -> None:
    """Symmetric, zero to itself, its root obeys the triangle inequality, a shift adds its square."""
    a, b, c = (moments(seed + i, dim, dim) for i in range(3))
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-8, abs=1e-8)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-7)
    roots = [np.sqrt(frechet_distance(*pair)) for pair in ((a, b), (b, c), (a, c))]
    assert roots[2] <= roots[0] + roots[1] + 1e-6
    shifted = Moments(a.mean + 2.0, a.covariance, 9)
    assert frechet_distance(a, shifted) == pytest.approx(4.0 * dim, rel=1e-6)


def test_agrees_with_the_matrix_square_root() -> None:
    """pytorch-fid's form, tr sqrtm(C1 C2), where that is well conditioned."""
    a, b = moments(1, 12, 30), moments(2, 12, 30)
    cross = np.trace(sqrtm(a.covariance @ b.covariance)).real
    expected = ((a.mean - b.mean) ** 2).sum() + np.trace(a.covariance + b.covariance) - 2 * cross
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-8)


def test_covariances_without_full_rank_are_no_trouble() -> None:
    """Fewer images than features, the usual case for small sets."""
    a, b = moments(3, 40, 5), moments(4, 40, 5)
    assert np.isfinite(frechet_distance(a, b))
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-5)


def test_samples_of_two_gaussians_come_close_to_their_distance() -> None:
    rng = np.random.default_rng(0)
    one = Moments.of(rng.normal(0, 1, (40_000, 3)))
    two = Moments.of(rng.normal(1, 2, (40_000, 3)))
    assert frechet_distance(one, two) == pytest.approx(3 * (1 + 1), rel=0.05)


def test_sets_of_images_drift_apart_with_noise() -> None:
    def features(images: np.ndarray) -> np.ndarray:
        means = images.reshape(len(images), 8, images.shape[1] // 8, 8, -1, 3).mean(axis=(2, 4))
        return means.reshape(len(images), -1)

    images = pictures(60, 32)
    distances = [fid(noisy(images, sigma), images, features) for sigma in (0, 10, 40, 120)]
    assert distances[0] == pytest.approx(0, abs=1e-4)
    assert distances == sorted(distances)


class Mean(torch.nn.Module):
    """Stands for Inception: features on demand, else classes."""

    def forward(self, x: torch.Tensor, return_features: bool = False) -> torch.Tensor:
        if return_features:
            return x.float().mean(dim=[2, 3])
        return x.float().mean(dim=[1, 2, 3])[:, None]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_features_come_from_a_torchscript_file(tmp_path: Path) -> None:
    file = tmp_path / "inception-2015-12-05.pt"
    torch.jit.save(torch.jit.script(Mean()), str(file))
    images = pictures(60, 16)
    for named in (file, tmp_path):
        np.testing.assert_allclose(inception(named)(images), images.mean(axis=(1, 2)), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_weights_that_are_not_there_or_no_network_are_named(tmp_path: Path) -> None:
    with pytest.raises(QualityError, match=r"inception-2015-12-05\.pt.*StyleGAN2-ADA"):
        inception(tmp_path)
    (tmp_path / "x.pt").write_bytes(b"not a network")
    with pytest.raises(QualityError, match="not a TorchScript network"):
        inception(tmp_path / "x.pt")


def test_sets_that_have_no_moments_are_refused() -> None:
    with pytest.raises(QualityError, match="2 or more"):
        Moments.of(np.zeros((1, 4)))
    with pytest.raises(QualityError, match="finite"):
        Moments.of(np.full((3, 4), np.nan))
    with pytest.raises(QualityError, match="one network"):
        frechet_distance(moments(0, 3, 3), moments(0, 4, 4))
