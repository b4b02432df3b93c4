"""What makes two runs the same system, the same load, or only another seed of the same thing.

A sweep may vary anything. Runs whose configurations differ in the seed alone are replicas and may be
averaged; runs that differ in the arrival rate are points of one curve; whatever else differs must show in
the name of the curve, or a figure would average a small cache with a large one and not say so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Scalar = str | int | float | bool | None
FlatConfig = Mapping[str, Scalar]

_NOT_THE_SYSTEM = frozenset({"run", "hydra", "slo", "timeline", "sample_s"})
# Where runs differ in one of these, every label says so: systems on different clusters are no fair race.
_SAME_FOR_ALL = (
    "cluster.gpu.name",
    "cluster.count",
    "trace._target_",
    "trace.path",
    "trace.requests",
    "arrivals._target_",
    "shapes",
)
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


def flatten(tree: object, prefix: str = "") -> dict[str, Scalar]:
    """Nested configuration -> {dotted key: scalar}; list elements get their index as key."""
    flat: dict[str, Scalar] = {}
    if isinstance(tree, Mapping):
        branches = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list | tuple):
        branches = [(str(index), value) for index, value in enumerate(tree)]
    else:
        flat[prefix] = tree if isinstance(tree, str | int | float | bool) or tree is None else str(tree)
        return flat
    for key, value in branches:
        flat |= flatten(value, f"{prefix}.{key}" if prefix else key)
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


def series_labels(systems: Sequence[str], configs: Sequence[FlatConfig]) -> list[str]:
    """One label a run: the system's name, with the settings that tell apart runs of the same system.

    Cluster, trace and clock are added to every label as soon as two runs differ in them; other settings only
    where runs of one system differ. A setting that follows from those already named is left out, and so is
    what the run's load says.
    """
    labels = [""] * len(systems)
    for has_rate in (True, False):
        everyone = [index for index, config in enumerate(configs) if (load_of(config).rate_rpm is not None) == has_rate]
        said_by_load = _RATE if has_rate else "arrivals."
        shared = _telling(everyone, configs, [key for key in _SAME_FOR_ALL if not key.startswith(said_by_load)], [])
        for system in sorted({systems[index] for index in everyone}):
            members = [index for index in everyone if systems[index] == system]
            candidates = sorted({key for index in members for key in configs[index]}, key=_key_order)
            candidates = [key for key in candidates if not _ignored(key) and not key.startswith(said_by_load)]
            keys = _telling(members, configs, candidates, shared)
            for index in members:
                facts = [f"{_short_key(key)}={short_value(configs[index].get(key))}" for key in keys]
                labels[index] = f"{system} ({', '.join(facts)})" if facts else system
    return labels


def short_value(value: Scalar) -> str:
    """A setting as a label shows it: of a path the file name, of a class its name."""
    text = "none" if value is None else str(value)
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


def _short_key(key: str) -> str:
    return ".".join(key.removesuffix(".name").removesuffix("._target_").split(".")[-2:])
