"""``mezzotint list profiles`` and ``list matrix``: which models are known on which GPUs, from whom, in which engine."""

from collections.abc import Sequence
from pathlib import Path

from mezzotint.backends.base import BackendError, size_text
from mezzotint.backends.profile import Profile, Timing, shipped, within
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.choices import gpus


def profiles(folder: Path | None = None) -> list[tuple[str, ...]]:
    """Return a row per profile: GPU, model, sizes, batches, GPUs in parallel, source.

    Args:
        folder: a folder of more profiles, which replace shipped ones of the same GPU and model.

    Raises:
        ConfigError: a profile cannot be read.
    """
    rows = (_line(profile) for profile in _read(folder))
    return [("GPU", "model", "sizes", "batches", "GPUs", "source"), *rows]


def matrix(folder: Path | None = None) -> list[tuple[str, ...]]:
    """Return a row per model and engine: the kinds of GPUs by the basis of their times, and the number without any.

    A kind has the month of its measurement, where it is known. Profiles without steps are left out.

    Args:
        folder: as in `profiles`.

    Raises:
        ConfigError: a profile cannot be read.
    """
    serving = [profile for profile in _read(folder) if profile.step]
    on = {model: {of.gpu for of in serving if of.model == model} for model in sorted({of.model for of in serving})}
    kinds = {*gpus(), *(profile.gpu for profile in serving)}
    rows = []
    for model, software in sorted({(profile.model, profile.software or "-") for profile in serving}):
        of_row = [of for of in serving if (of.model, of.software or "-") == (model, software)]
        cells = (", ".join(_gpu_and_date(of) for of in of_row if of.basis in bases) or "-" for _, bases in BASES)
        rows.append((model, software, *cells, f"{len(kinds) - len(on[model])} of {len(kinds)} kinds"))
    return [("model", "engine", *(name for name, _ in BASES), "unknown"), *rows]


BASES = (
    ("measured here", ("measured",)),
    ("published", ("published",)),
    ("scaled", ("scaled",)),
    ("assumed", ("assumed", None)),
)
"""Columns of `matrix`, and the bases of profiles in each; a profile that does not say is assumed."""


def _gpu_and_date(profile: Profile) -> str:
    return profile.gpu if profile.date is None else f"{profile.gpu} ({profile.date[:7]})"


def _read(folder: Path | None) -> list[Profile]:
    """Return the shipped profiles and those of ``folder``, which replace them, by GPU and model. Raises ConfigError."""
    try:
        every = [*within(shipped()), *([] if folder is None else within(folder))]
    except BackendError as error:
        raise ConfigError(str(error)) from None
    by_cell = {(profile.gpu, profile.model): profile for profile in every}
    return [by_cell[key] for key in sorted(by_cell)]


def _line(profile: Profile) -> tuple[str, ...]:
    measured = profile.step or profile.vae_decode or profile.vae_encode
    groups = [1, *sorted(profile.group_tables)] if profile.step else []
    source = f"{profile.source}; {profile.dtype}" if profile.dtype else profile.source
    return (
        profile.gpu,
        profile.model if profile.step else f"{profile.model} (no steps: VAE alone)",
        _sizes(sorted({(point.pixels, point.width, point.height, point.frames) for point in measured})),
        ", ".join(map(str, sorted({point.batch for point in _points_of(profile)}))),
        ", ".join(map(str, groups)) or "-",
        " ".join(source.split()),
    )


def _points_of(profile: Profile) -> Sequence[Timing]:
    return profile.step or [*profile.text_encode, *profile.vae_encode, *profile.vae_decode]


def _sizes(sizes: Sequence[tuple[int, int, int, int]]) -> str:
    names = [size_text(*size) for _, *size in sizes]
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} from {names[0]} to {names[-1]}"
