"""``mezzotint list profiles``: the measured models and GPUs, with their sources."""

from collections.abc import Sequence
from pathlib import Path

from mezzotint.backends.base import BackendError, size_text
from mezzotint.backends.profile import Profile, Timing, shipped, within
from mezzotint.sim.core.errors import ConfigError


def profiles(folder: Path | None = None) -> list[tuple[str, ...]]:
    """Return a row per profile: GPU, model, sizes, batches, GPUs in parallel, source.

    Args:
        folder: a folder of more profiles, which replace shipped ones of the same GPU and model.

    Raises:
        ConfigError: a profile cannot be read.
    """
    try:
        every = [*within(shipped()), *([] if folder is None else within(folder))]
    except BackendError as error:
        raise ConfigError(str(error)) from None
    found = {(each.gpu, each.model): each for each in every}
    return [("GPU", "model", "sizes", "batches", "GPUs", "source"), *(_line(found[key]) for key in sorted(found))]


def _line(profile: Profile) -> tuple[str, ...]:
    measured = profile.step or profile.vae_decode or profile.vae_encode
    groups = [1, *sorted(profile.group_tables)] if profile.step else []
    source = f"{profile.source}; {profile.dtype}" if profile.dtype else profile.source
    return (
        profile.gpu,
        profile.model if profile.step else f"{profile.model} (no steps: VAE alone)",
        _sizes(sorted({(point.pixels, point.width, point.height, point.frames) for point in measured})),
        ", ".join(map(str, sorted({point.batch for point in _timed(profile)}))),
        ", ".join(map(str, groups)) or "-",
        " ".join(source.split()),
    )


def _timed(profile: Profile) -> Sequence[Timing]:
    return profile.step or [*profile.text_encode, *profile.vae_encode, *profile.vae_decode]


def _sizes(sizes: Sequence[tuple[int, int, int, int]]) -> str:
    names = [size_text(*size) for _, *size in sizes]
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} from {names[0]} to {names[-1]}"
