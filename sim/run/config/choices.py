"""The groups of a configuration, and their choices.

conf/groups.yaml lists the groups. A choice is a file of its group's folder, a kind of GPUs in conf/data/gpus.yaml, or a
model on an engine in conf/data/engine-models.yaml.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from mezzotint.backends.base import size_text
from mezzotint.files.document import parse
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError

CONF = resources.files("mezzotint.conf")
_SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of choices.

    Attributes:
        line: its description.
        part: ``needed`` or ``optional`` if its choices are parts, which may need those of other groups; else None.
        needs: another group -> its choices with which alone this group applies.
    """

    line: str
    part: str | None = None
    needs: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a group: its name, its description, and True if it is the user's own file."""

    name: str
    line: str
    is_users: bool = False


@cache
def groups() -> dict[str, Group]:
    """Return every group by name, in the order of conf/groups.yaml."""
    return {
        name: Group(row["line"], row.get("part"), row.get("with", {})) for name, row in _read("groups.yaml").items()
    }


@cache
def gpus() -> dict[str, dict[str, Any]]:
    """Return the settings of `cluster=NAME` for every kind of GPU in conf/data/gpus.yaml, as in a group's file."""
    return {
        name: {
            "defaults": [{"override /models": row["models"]}],
            "cluster": {
                "count": row["count"],
                "gpu": {"_target_": "mezzotint.sim.core.gpu.Gpu", "name": name, "usd_per_gpu_h": None, **row["gpu"]},
            },
        }
        for name, row in _read("data/gpus.yaml").items()
    }


@cache
def engine_models() -> dict[str, dict[str, Any]]:
    """Return the settings of `models=MODEL-ENGINE` for every model and engine of conf/data/engine-models.yaml."""
    return {
        f"{name}-{engine}": {
            "large": {"_target_": "mezzotint.sim.core.model.Model", "name": f"{name}-{engine}", **row["shape"]}
        }
        for name, row in _read("data/engine-models.yaml").items()
        for engine in row["engines"]
    }


def choices(group: str, folder: Path | None = None) -> list[Choice]:
    """Return the choices of ``group`` by name.

    Args:
        folder: a folder with the user's groups; of two files of one name ours is taken, as in a run.

    Raises:
        ConfigError: there is no such group, or no such folder.
    """
    if group not in groups():
        raise ConfigError(f"list: there is no group {group!r}; {suggest(group, groups(), 'mezzotint list')}")
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--config-dir: {folder} is not a folder; name the one that holds your groups")
    by_name = (
        {} if folder is None else {name: Choice(name, line, is_users=True) for name, line in _lines(folder / group)}
    )
    by_name |= {name: Choice(name, line) for name, line in _lines(CONF / group)}
    if group == "cluster":
        by_name |= {name: Choice(name, row["line"]) for name, row in _read("data/gpus.yaml").items()}
    if group == "models":
        by_name |= {name: Choice(name, _engine_line(node["large"])) for name, node in engine_models().items()}
    return [by_name[name] for name in sorted(by_name)]


def check_groups(chosen: Any) -> None:
    """Raise ConfigError for a group whose required choice of another group is not made.

    A user's own choice of that group is accepted, since its properties are not known.

    Args:
        chosen: the choice of each group; None if nothing is chosen.
    """
    for name, group in groups().items():
        for other, allowed in group.needs.items():
            choice, found = chosen.get(name), chosen.get(other)
            if choice in (None, "none") or found in allowed or found not in {None, *(c.name for c in choices(other))}:
                continue
            expected = " or ".join(f"{other}={needed}" for needed in allowed)
            raise ConfigError(
                f"{name}={choice}: applies only with {expected}, found {other}={found or 'null'}; choose one, or leave "
                f"{name} out (~{name} where the system brings it)"
            )


def dependents(group: str, choice: str) -> Iterator[str]:
    """Return the groups that apply only with ``choice`` of ``group``."""
    return (name for name, other in groups().items() if choice in other.needs.get(group, ()))


def _engine_line(model: Mapping[str, Any]) -> str:
    size = size_text(model["width"], model["height"], model.get("frames", 1))
    return f"{model['name']} at {size}, {model['steps']} steps, as an engine's benchmark serves it."


@cache
def _read(name: str) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = parse((CONF / name).read_bytes())
    return rows


def _lines(folder: Traversable) -> list[tuple[str, str]]:
    if not folder.is_dir():
        return []
    files = [file for file in folder.iterdir() if file.name.endswith(_SUFFIX)]
    return [(file.name.removesuffix(_SUFFIX), _first_comment(file)) for file in files]


def _first_comment(file: Traversable) -> str:
    for line in file.read_bytes().decode("utf-8", "replace").splitlines():
        if not line.startswith("# @package"):
            return line.removeprefix("#").strip() if line.startswith("#") else ""
    return ""
