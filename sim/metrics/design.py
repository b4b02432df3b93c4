"""Compare a run with the design that a published number was measured on."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from mezzotint.settings.choice import choice
from mezzotint.sim.core.errors import ConfigError

Design = Mapping[str, str | list[str]]
"""The measured choice of each configuration group, or several that count as the same."""

QUALITY_SETTINGS: Mapping[str, Sequence[str]] = {
    "frontend": ("_target_", "hit_role", "miss_role"),
    "cache": ("_target_", "latents_at"),
    "selector": ("_target_", "thresholds", "of_steps", "strict"),
    "admission": ("_target_",),
    "match_predictor": ("_target_",),
    "similarity": ("_target_",),
    "encoder": ("_target_",),
    "similarity_map": ("_target_", "at"),
}
"""Settings of each group that an image's quality depends on: the artifact a request starts from, and its similarity.
Times, sizes and eviction change how often requests hit, not the image of a hit."""


@cache
def _encoders() -> list[str]:
    """Return the encoders that can stand in for CLIP: those with a similarity map of the same name."""
    encoders, maps = (
        {file.name for file in (files("mezzotint.conf") / group).iterdir()} for group in ("encoder", "similarity_map")
    )
    return sorted(name.removesuffix(".yaml") for name in encoders & maps)


def check_design(design: Design, key: str) -> None:
    """Raise ConfigError, naming ``key``, if ``design`` names a group outside QUALITY_SETTINGS or an unknown choice."""
    for group, names in design.items():
        if group not in QUALITY_SETTINGS:
            raise ConfigError(f"{key}.{group}: expected one of {', '.join(QUALITY_SETTINGS)}")
        if not names:
            raise ConfigError(f"{key}.{group}: found none, expected a choice or several; name one or remove the key")
        for name in _names(names):
            try:
                choice(group, name)
            except FileNotFoundError:
                raise ConfigError(f"{key}.{group}: found {name!r}, expected a file of conf/{group}") from None


def departure(config: Mapping[str, Any], design: Design) -> str | None:
    """Return the first setting in which the run of ``config`` departs from ``design``; None if there is none.

    If ``design`` names no similarity map, its thresholds are on CLIP's scale, and the run must use the map that was
    fitted for its encoder.
    """
    for group, names in design.items():
        if difference := _difference(config, group, _names(names)):
            return difference
    if "similarity_map" in design or not config.get("similarity"):
        return None
    fitting = [name for name in _encoders() if not _difference(config, "encoder", [name])]
    if not fitting:
        return "encoder has no similarity map that was fitted for it"
    return _difference(config, "similarity_map", fitting)


def _difference(config: Mapping[str, Any], group: str, names: Sequence[str]) -> str | None:
    """Return the first setting of ``group`` that differs from the first of ``names``; None if one of them fits."""
    differences = [next(_differences(config.get(group) or {}, choice(group, name), group), None) for name in names]
    return None if None in differences else differences[0]


def _differences(node: Mapping[str, Any], published: Mapping[str, Any], group: str) -> Iterator[str]:
    for key in QUALITY_SETTINGS[group]:
        found, expected = (each.get(key) for each in (node, published))
        if found != expected:
            found, expected = ("not set" if each is None else each for each in (found, expected))
            yield f"{group}.{key} is {found} and not {expected}"


def _names(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
