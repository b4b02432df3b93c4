"""The groups that a run is composed of, and their choices.

conf/groups.yaml lists the groups. A choice is a file of its group's folder, or a kind of GPUs in conf/data/gpus.yaml.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from sim.core.errors import ConfigError

CONF = resources.files("conf")
_ENDING = ".yaml"


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    Attributes:
        line: what is chosen in it.
        part: ``needed`` or ``optional``, if its choices may need those of other groups; None if not.
        needs: the choices of another group beside which alone it applies.
    """

    line: str
    part: str | None = None
    needs: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a group: its name, what it is for, and whether it is a file of the user's."""

    name: str
    line: str
    own: bool = False


@cache
def groups() -> dict[str, Group]:
    """Return every group by name, in the order of conf/groups.yaml."""
    return {
        name: Group(said["line"], said.get("part"), said.get("with", {})) for name, said in _read("groups.yaml").items()
    }


@cache
def gpus() -> dict[str, dict[str, Any]]:
    """Return the settings of `cluster=NAME` for every kind of GPU in conf/data/gpus.yaml, as a file would have them."""
    return {
        name: {
            "defaults": [{"override /models": row["models"]}],
            "cluster": {
                "count": row["count"],
                "gpu": {"_target_": "sim.core.gpu.Gpu", "name": name, "usd_per_gpu_h": None, **row["gpu"]},
            },
        }
        for name, row in _read("data/gpus.yaml").items()
    }


def choices(group: str, folder: Path | None = None) -> list[Choice]:
    """Return the choices of ``group`` by name.

    Args:
        folder: a folder of the user's, with groups; of two files of one name ours is taken, as in a run.

    Raises:
        ConfigError: there is no such group, or no such folder.
    """
    if group not in groups():
        raise ConfigError(f"list: there is no group {group!r}; the groups are {', '.join(groups())}")
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--config-dir: {folder} is no folder; name the one that holds your groups")
    found = {} if folder is None else {name: Choice(name, line, own=True) for name, line in _lines(folder / group)}
    found |= {name: Choice(name, line) for name, line in _lines(CONF / group)}
    if group == "cluster":
        found |= {name: Choice(name, row["line"]) for name, row in _read("data/gpus.yaml").items()}
    return [found[name] for name in sorted(found)]


def check_groups(chosen: Any) -> None:
    """Refuse a group that only applies beside another choice.

    What a choice of the user's goes with is not known, so it is not refused.

    Args:
        chosen: the choice of each group; None where nothing is chosen.

    Raises:
        ConfigError: names the group, what is chosen, and the choices that it needs.
    """
    for name, group in groups().items():
        for other, allowed in group.needs.items():
            mine, theirs = chosen.get(name), chosen.get(other)
            if mine in (None, "none") or theirs in allowed or theirs not in {None, *(c.name for c in choices(other))}:
                continue
            beside = " or ".join(f"{other}={each}" for each in allowed)
            raise ConfigError(
                f"{name}={mine}: applies only with {beside}, found {other}={theirs or 'null'}; choose one, or leave "
                f"{name} out (~{name} where the system brings it)"
            )


def dependents(group: str, choice: str) -> Iterator[str]:
    """Yield the groups that apply beside ``choice`` of ``group``."""
    return (name for name, each in groups().items() if choice in each.needs.get(group, ()))


@cache
def _read(name: str) -> dict[str, dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, dict[str, Any]] = yaml.load((CONF / name).read_text(encoding="utf-8"), loader)
    return found


def _lines(folder: Traversable) -> list[tuple[str, str]]:
    if not folder.is_dir():
        return []
    files = [file for file in folder.iterdir() if file.name.endswith(_ENDING)]
    return [(file.name.removesuffix(_ENDING), _first_comment(file)) for file in files]


def _first_comment(file: Traversable) -> str:
    for line in file.read_bytes().decode("utf-8", "replace").splitlines():
        if not line.startswith("# @package"):
            return line.removeprefix("#").strip() if line.startswith("#") else ""
    return ""
