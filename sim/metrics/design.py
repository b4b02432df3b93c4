"""Whether a run is of the design that a published number was measured on."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from conf.choice import choice
from sim.core.errors import ConfigError

Design = Mapping[str, str | list[str]]
"""Group -> the choice that was measured, or any of several."""

DECIDES: Mapping[str, Sequence[str]] = {
    "frontend": ("_target_", "hit_role", "miss_role"),
    "cache": ("_target_", "latents_at"),
    "selector": ("_target_", "thresholds", "of_steps", "strict"),
    "admission": ("_target_",),
    "match_predictor": ("_target_",),
    "similarity": ("_target_",),
    "encoder": ("_target_",),
    "similarity_map": ("_target_", "at"),
}
"""What of each group an image's quality depends on: from what a request starts, and how alike that is. Times, sizes
and the order of eviction change how often, and leave what an image starts from as it is."""


@cache
def _encoders() -> list[str]:
    """The choices of encoder that have a similarity map of their own name, so that they stand in for CLIP."""
    encoders, scales = (
        {file.name for file in (files("conf") / group).iterdir()} for group in ("encoder", "similarity_map")
    )
    return sorted(name.removesuffix(".yaml") for name in encoders & scales)


def checked(design: Design, key: str) -> None:
    """Raise ConfigError, naming ``key``, where ``design`` names a group that decides nothing, or no choice of one."""
    for group, names in design.items():
        if group not in DECIDES:
            raise ConfigError(f"{key}.{group}: expected one of {', '.join(DECIDES)}")
        if not names:
            raise ConfigError(f"{key}.{group}: found none, expected a choice or several; name one or remove the key")
        for name in _names(names):
            try:
                choice(group, name)
            except FileNotFoundError:
                raise ConfigError(f"{key}.{group}: found {name!r}, which is no file of conf/{group}") from None


def departure(config: Mapping[str, Any], design: Design) -> str | None:
    """The first thing in which the run of ``config`` is not of ``design``; None where it is.

    Where ``design`` names no similarity map, its thresholds are on CLIP's: the encoder's has to be the one fitted for it.
    """
    for group, names in design.items():
        if found := _unlike(config, group, _names(names)):
            return found
    if "similarity_map" in design or not config.get("similarity"):
        return None
    fitting = [name for name in _encoders() if not _unlike(config, "encoder", [name])]
    return (
        _unlike(config, "similarity_map", fitting)
        if fitting
        else "encoder is one to whose similarity no thresholds were carried to"
    )


def _unlike(config: Mapping[str, Any], group: str, names: Sequence[str]) -> str | None:
    """How ``config`` differs from each of ``names`` in ``group``: the first setting of the first of them."""
    differences = [next(_differences(config.get(group) or {}, choice(group, name), group), None) for name in names]
    return None if None in differences else differences[0]


def _differences(node: Mapping[str, Any], published: Mapping[str, Any], group: str) -> Iterator[str]:
    for key in DECIDES[group]:
        found, expected = (each.get(key) for each in (node, published))
        if found != expected:
            found, expected = ("not set" if each is None else each for each in (found, expected))
            yield f"{group}.{key} is {found} and not {expected}"


def _names(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
