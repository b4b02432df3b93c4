"""What makes two runs the same system, the same load, or only another seed of the same thing.

Runs that differ in the seed alone are replicas and may be averaged; runs that differ in the arrival rate are points of
one curve; whatever else differs must show in the name of the curve.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conf.printable import printable

Scalar = str | int | float | bool | None
FlatConfig = Mapping[str, Scalar]

_NOT_THE_SYSTEM = frozenset({"run", "hydra", "slo", "timeline", "sample_s"})
_SAME_FOR_ALL = ("cluster", "trace", "arrivals", "shapes")
"""Where runs differ in a setting of these, every label says so: systems on different clusters are no fair race."""

_RATE = "arrivals.rate_rpm"


@dataclass(frozen=True, slots=True)
class Load:
    """The traffic offered to a run: its rate in requests per minute where it has one, and how to print it."""

    rate_rpm: float | None
    label: str

    @property
    def order(self) -> tuple[bool, float, str]:
        """Sort key: known rates first, ascending."""
        return (self.rate_rpm is None, self.rate_rpm or 0.0, self.label)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a run stands on the axis that the runs vary: a numeric key of the configuration, and its value here."""

    key: str
    value: float


def flatten(tree: object, prefix: str = "") -> dict[str, Scalar]:
    """Nested configuration -> {dotted key: scalar}; list elements get their index as key."""
    if isinstance(tree, list | tuple):
        tree = dict(enumerate(tree))
    if not isinstance(tree, Mapping):
        return {prefix: tree if isinstance(tree, Scalar) else str(tree)}
    flat: dict[str, Scalar] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def load_of(config: FlatConfig) -> Load:
    """The offered load: `arrivals.rate_rpm` if it is a number, else whatever describes the arrivals."""
    rate = config.get(_RATE)
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        return Load(float(rate), f"{rate:g} rpm")
    facts = {
        key.removeprefix("arrivals."): value
        for key, value in config.items()
        if key.startswith("arrivals.") and value is not None and not _is_seed(key)
    }
    kind = re.sub("(?<=[a-z])(?=[A-Z])", " ", short_value(facts.pop("_target_", "unrecorded"))).lower()
    detail = ", ".join(f"{key}={value}" for key, value in sorted(facts.items()))
    return Load(None, f"{kind} arrivals" + (f" ({detail})" if detail else ""))


def labels(systems: Sequence[str], configs: Sequence[FlatConfig]) -> list[tuple[str, str, Setting | None]]:
    """For each run: its label, its label without the one number that the runs vary, and that number.

    A label is the system's name with the settings that tell apart runs of the same system, and those of the cluster,
    trace and clock as soon as two runs differ in them. What follows from them, or from the run's load, is left out.
    The number is the numeric setting that takes the most values in the labels of one system, three or more.
    """
    told = _telling_keys(systems, configs)
    values: dict[tuple[str, str], set[Scalar]] = {}
    for system, config, keys in zip(systems, configs, told, strict=True):
        for key in keys:
            values.setdefault((key, system), set()).add(config.get(key))
    counts: dict[str, int] = {}
    for (key, _), found in values.items():
        if len(found) >= 3 and all(_is_number(value) for value in found):
            counts[key] = max(counts.get(key, 0), len(found))
    axis = max(counts, key=lambda key: counts[key], default="")
    placed: list[tuple[str, str, Setting | None]] = []
    for system, config, keys in zip(systems, configs, told, strict=True):
        value = config.get(axis)
        setting = Setting(axis, float(value)) if isinstance(value, int | float) and _is_number(value) else None
        rest = [key for key in keys if not setting or key != axis]
        placed.append((_label(system, config, keys), _label(system, config, rest), setting))
    return placed


def natural(label: str) -> tuple[tuple[str, float], ...]:
    """Sort key of a label in which numbers count as numbers: a size of 200 before one of 1000."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", label)
    return tuple((text, float(number)) for text, number in zip(parts[::2], [*parts[1::2], "-1"], strict=True))


def _telling_keys(systems: Sequence[str], configs: Sequence[FlatConfig]) -> list[list[str]]:
    """For each run the keys that its label names."""
    told: list[list[str]] = [[] for _ in systems]
    for has_rate in (True, False):
        everyone = [index for index, config in enumerate(configs) if (load_of(config).rate_rpm is not None) == has_rate]
        said_by_load = _RATE if has_rate else "arrivals."

        def candidates(members: Sequence[int], said_by_load: str = said_by_load) -> list[str]:
            keys = {key for index in members for key in configs[index] if not key.startswith(said_by_load)}
            return sorted((key for key in keys if not _ignored(key)), key=_key_order)

        shared = [key for key in candidates(everyone) if key.split(".", 1)[0] in _SAME_FOR_ALL]
        shared = _telling(everyone, configs, shared, [])
        for system in sorted({systems[index] for index in everyone}):
            members = [index for index in everyone if systems[index] == system]
            keys = _telling(members, configs, candidates(members), shared)
            for index in members:
                told[index] = keys
    return told


def _label(system: str, config: FlatConfig, keys: Sequence[str]) -> str:
    facts = [f"{short_key(key)}={short_value(config.get(key))}" for key in keys]
    return f"{system} ({', '.join(facts)})" if facts else system


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def seeds_of(config: FlatConfig, seed: int | None) -> tuple[Scalar, ...]:
    """What tells replicas apart: every seed of the configuration, and the summary's. Equal ones are one run, rerun."""
    return (seed, *(value for key, value in sorted(config.items()) if _is_seed(key)))


def short_value(value: Scalar) -> str:
    """A setting as a label shows it: of a path the file name, of a class its name."""
    text = "none" if value is None else printable(str(value))
    if "/" in text:
        return text.rstrip("/").rsplit("/", 1)[-1]
    dotted = text.split(".")
    return dotted[-1] if len(dotted) > 1 and all(part.isidentifier() for part in dotted) else text


def _telling(
    members: Sequence[int], configs: Sequence[FlatConfig], candidates: Sequence[str], chosen: Sequence[str]
) -> list[str]:
    """`chosen` and those of `candidates`, in their order, that each split the members further."""
    keys = list(chosen)

    def parts(of: Sequence[str]) -> int:
        return len({tuple(repr(configs[index].get(key)) for key in of) for index in members})

    count = parts(keys)
    for key in candidates:
        finer = parts([*keys, key])
        if finer > count:
            keys.append(key)
            count = finer
    return keys


def _is_seed(key: str) -> bool:
    return key.rsplit(".", 1)[-1].endswith("seed")


def _ignored(key: str) -> bool:
    return _is_seed(key) or key.split(".", 1)[0] in _NOT_THE_SYSTEM


def _key_order(key: str) -> tuple[bool, int, str]:
    return (not key.endswith((".name", "._target_")), key.count("."), key)


def short_key(key: str) -> str:
    """A configuration key as a label shows it: its last two parts, a class or a name by what has it."""
    return ".".join(printable(key).removesuffix(".name").removesuffix("._target_").split(".")[-2:])
