"""Names of runs: series, loads and replicas.

Runs that differ in the seed alone are replicas and may be averaged. Runs that differ in the arrival rate are points of
one curve. Every other difference must show in the curve's name.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzotint.files.printable import printable
from mezzotint.sim.metrics.header import in_words

Scalar = str | int | float | bool | None
FlatConfig = Mapping[str, Scalar]

_IGNORED_GROUPS = frozenset({"run", "hydra", "slo", "timeline", "sample_s"})
_SHARED_GROUPS = ("cluster", "trace", "arrivals", "shapes")
"""Groups whose differing settings stand in every label: systems on different clusters are not comparable."""

_RATE = "arrivals.rate_rpm"


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic offered to a run: its rate in requests per minute (None if it has none) and its label."""

    rate_rpm: float | None
    label: str

    @property
    def order(self) -> tuple[bool, float, str]:
        """Sort key: known rates first, ascending."""
        return (self.rate_rpm is None, self.rate_rpm or 0.0, self.label)


@dataclass(frozen=True, slots=True)
class Setting:
    """A numeric configuration key that the runs vary, and its value in one run."""

    key: str
    value: float


def flatten(tree: object, prefix: str = "") -> dict[str, Scalar]:
    """Return a nested configuration as {dotted key: scalar}; list elements get their index as key."""
    if isinstance(tree, list | tuple):
        tree = dict(enumerate(tree))
    if not isinstance(tree, Mapping):
        return {prefix: tree if isinstance(tree, Scalar) else str(tree)}
    flat: dict[str, Scalar] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def load_of(config: FlatConfig) -> Load:
    """Return the offered load: `arrivals.rate_rpm` if it is a number, else a description of the arrivals."""
    rate = _number(config.get(_RATE))
    if rate is not None:
        return Load(rate, f"{rate:g} rpm")
    facts = {
        key.removeprefix("arrivals."): value
        for key, value in config.items()
        if key.startswith("arrivals.") and value is not None and not _is_seed(key)
    }
    kind = in_words(short_value(facts.pop("_target_", "unrecorded")))
    detail = ", ".join(f"{key}={value}" for key, value in sorted(facts.items()))
    return Load(None, f"{kind} arrivals" + (f" ({detail})" if detail else ""))


def labels(systems: Sequence[str], configs: Sequence[FlatConfig]) -> list[tuple[str, str, Setting | None]]:
    """Return for each run its label, its label without the number that the runs vary, and that number.

    A label is the system's name with the settings that distinguish runs of the same system. Settings of the cluster,
    trace and clock are included as soon as two runs differ in them; settings that follow from others or from the load
    are left out. The varied number is the numeric setting with the most values in the labels of one system, at least
    three.
    """
    runs = list(zip(systems, configs, _label_keys(systems, configs), strict=True))
    values: dict[tuple[str, str], set[Scalar]] = defaultdict(set)
    for system, config, keys in runs:
        for key in keys:
            values[key, system].add(config.get(key))
    counts: Counter[str] = Counter()
    for (key, _), settings in values.items():
        if len(settings) >= 3 and None not in map(_number, settings):
            counts[key] = max(counts[key], len(settings))
    axis = max(counts, key=lambda key: counts[key], default="")
    named = []
    for system, config, keys in runs:
        value = _number(config.get(axis))
        rest = [key for key in keys if value is None or key != axis]
        setting = None if value is None else Setting(axis, value)
        named.append((_label(system, config, keys), _label(system, config, rest), setting))
    return named


def natural(label: str) -> tuple[tuple[str, float], ...]:
    """Return a sort key in which numbers count as numbers: a size of 200 before one of 1000."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", label)
    return tuple((text, float(number)) for text, number in zip(parts[::2], [*parts[1::2], "-1"], strict=True))


def _label_keys(systems: Sequence[str], configs: Sequence[FlatConfig]) -> list[list[str]]:
    """Return for each run the keys that its label names."""
    label_keys: list[list[str]] = [[] for _ in systems]
    for has_rate, load_prefix in ((True, _RATE), (False, "arrivals.")):
        everyone = [index for index, config in enumerate(configs) if (load_of(config).rate_rpm is not None) == has_rate]
        shared = _distinguishing_keys(everyone, configs, load_prefix, [], _SHARED_GROUPS)
        for system in {systems[index] for index in everyone}:
            members = [index for index in everyone if systems[index] == system]
            for index in members:
                label_keys[index] = _distinguishing_keys(members, configs, load_prefix, shared)
    return label_keys


def _label(system: str, config: FlatConfig, keys: Sequence[str]) -> str:
    facts = [f"{short_key(key)}={short_value(config.get(key))}" for key in keys]
    return f"{system} ({', '.join(facts)})" if facts else system


def _number(value: Scalar) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]


def seeds_of(config: FlatConfig, seed: int | None) -> tuple[Scalar, ...]:
    """Return all seeds of a run, the summary's and those of its configuration; equal ones mean a rerun."""
    return (seed, *(value for key, value in sorted(config.items()) if _is_seed(key)))


def short_value(value: Scalar) -> str:
    """Return a setting's value for a label: the file name of a path, the name of a class."""
    text = "none" if value is None else printable(str(value))
    if "/" in text:
        return text.rstrip("/").rsplit("/", 1)[-1]
    dotted = text.split(".")
    return dotted[-1] if len(dotted) > 1 and all(part.isidentifier() for part in dotted) else text


def _distinguishing_keys(
    members: Sequence[int],
    configs: Sequence[FlatConfig],
    load_prefix: str,
    chosen: Sequence[str],
    groups: Sequence[str] = (),
) -> list[str]:
    """Return `chosen` and, in order, each other key that splits the members further.

    Args:
        load_prefix: start of the keys that make the load.
        groups: the only groups whose keys count; empty for all.
    """
    known = {key for index in members for key in configs[index] if not key.startswith(load_prefix)}
    candidates = [key for key in known if not _is_ignored(key) and (not groups or key.split(".", 1)[0] in groups)]
    keys = list(chosen)

    def count_groups(keys: Sequence[str]) -> int:
        return len({tuple(repr(configs[index].get(key)) for key in keys) for index in members})

    count = count_groups(keys)
    for key in sorted(candidates, key=_key_order):
        finer = count_groups([*keys, key])
        if finer > count:
            keys.append(key)
            count = finer
    return keys


def _is_seed(key: str) -> bool:
    return key.rsplit(".", 1)[-1].endswith("seed")


def _is_ignored(key: str) -> bool:
    return _is_seed(key) or key.split(".", 1)[0] in _IGNORED_GROUPS


def _key_order(key: str) -> tuple[bool, int, str]:
    return (not key.endswith((".name", "._target_")), key.count("."), key)


def short_key(key: str) -> str:
    """Return a configuration key for a label: its last two parts, without `.name` and `._target_`."""
    return ".".join(printable(key).removesuffix(".name").removesuffix("._target_").split(".")[-2:])
