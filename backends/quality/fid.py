"""Fréchet Inception distance: how far two sets of images are apart.

Source: Heusel et al. 2017, section 5. MoDM compares a system's images with those of the large model alone (7.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backends.quality.errors import QualityError
from backends.quality.metric import Floats, Images, checked

Features = Callable[[Images], Floats]
"""Images (n, h, w, 3) -> features (n, d)."""

INCEPTION = "inception-2015-12-05.pt"
"""The TorchScript file of FID's own Inception-v3 (2048 features), as StyleGAN2-ADA's authors publish it."""

_BATCH = 50


@dataclass(frozen=True, slots=True)
class Moments:
    """A set of feature vectors as FID sees it.

    Attributes:
        mean: (d,).
        covariance: (d, d), the unbiased estimate.
        count: vectors that it was made of.
    """

    mean: Floats
    covariance: Floats
    count: int

    @classmethod
    def of(cls, features: Floats) -> Moments:
        """Moments of features, (n, d).

        Raises:
            QualityError: not a table of finite numbers, or fewer than two rows, which have no covariance.
        """
        rows = np.asarray(features, np.float64)
        if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
            raise QualityError(
                f"FID: found features of shape {rows.shape}, expected finite (n, d) with n of 2 or more; give each "
                "set two images at least (thousands, for a figure to quote)"
            )
        return cls(rows.mean(axis=0), np.atleast_2d(np.cov(rows, rowvar=False)), len(rows))


def frechet_distance(one: Moments, other: Moments) -> float:
    """Squared Fréchet (2-Wasserstein) distance of the Gaussians with these moments.

    |m1 - m2|^2 + tr(C1) + tr(C2) - 2 tr((C1 C2)^(1/2)). The last trace is taken as the sum of the square roots of
    the eigenvalues of C1^(1/2) C2 C1^(1/2), which is symmetric: no imaginary parts to throw away, and covariances
    without full rank (fewer images than features) need no ridge.

    Returns:
        0 or more; 0 means equal moments. Symmetric.

    Raises:
        QualityError: features of different lengths.

    Source: Dowson and Landau 1982.
    """
    if one.mean.shape != other.mean.shape:
        raise QualityError(
            f"FID: features of {len(one.mean)} against {len(other.mean)} numbers; take both from one network"
        )
    values, vectors = np.linalg.eigh(one.covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    inner = np.linalg.eigvalsh(root @ other.covariance @ root)
    shared = float(np.sqrt(np.maximum(inner, 0)).sum())
    apart = float(np.square(one.mean - other.mean).sum())
    # rounding may leave a hair below zero for equal sets
    return max(0.0, apart + float(np.trace(one.covariance)) + float(np.trace(other.covariance)) - 2 * shared)


def fid(images: Images, references: Images, features: Features) -> float:
    """Fréchet distance of the features of two sets of images.

    It is biased upwards for few images: compare only values of equal counts, and quote none below some thousands.

    Args:
        images: (n, h, w, 3).
        references: (m, h', w', 3); need not be the same prompts.
        features: what turns images into vectors; :func:`inception` for the FID of the literature.

    Returns:
        0 or more, lower is better.

    Raises:
        QualityError: not images, or fewer than two in a set.
    """
    return frechet_distance(
        Moments.of(features(checked(images))), Moments.of(features(checked(references, "references")))
    )


def inception(path: Path | str, device: str = "cpu") -> Features:
    """FID's Inception-v3, from a local file.

    Args:
        path: the TorchScript file ``inception-2015-12-05.pt``, or the folder that holds it. Any TorchScript network
            that turns uint8 (n, 3, h, w) into (n, d) will do, but only this one gives the FID of the literature.
        device: where to compute.

    Raises:
        QualityError: no such file, or not a TorchScript network; when called, features that are not (n, d).
    """
    import torch

    where = Path(path).expanduser()
    file = where / INCEPTION if where.is_dir() else where
    if not file.is_file():
        raise QualityError(
            f"{file}: FID needs the weights of Inception-v3 and there is no such file; download {INCEPTION} "
            "(published with StyleGAN2-ADA) and name it, or its folder"
        )
    try:
        network = torch.jit.load(str(file), map_location=device).eval()
    except (RuntimeError, ValueError, OSError) as broken:
        reason = " ".join(str(broken).split())[:160]
        raise QualityError(f"{file}: is not a TorchScript network ({reason}); download {INCEPTION} anew") from broken
    # the published file classifies unless told to stop at the features
    arguments = {argument.name for argument in network.forward.schema.arguments}
    options: dict[str, Any] = {"return_features": True} if "return_features" in arguments else {}

    def features(images: Images) -> Floats:
        rows = []
        with torch.no_grad():
            for start in range(0, len(images), _BATCH):
                block = np.ascontiguousarray(images[start : start + _BATCH].transpose(0, 3, 1, 2))
                given = network(torch.from_numpy(block).to(device), **options)
                if given.ndim != 2:
                    raise QualityError(f"{file}: gave {tuple(given.shape)}, expected (n, d); use {INCEPTION}")
                rows.append(given.double().cpu().numpy())
        return np.concatenate(rows)

    return features
