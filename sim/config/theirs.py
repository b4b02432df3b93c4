"""Modules of the user's own: where the classes that a ``_target_`` names may come from.

A configuration may have been written by somebody else, so it names classes and brings no code: a ``_target_`` is
imported only from our packages or from a module that the user has put at hand.

- The working directory. It is never on the path as a whole, where a ``faiss.py`` of some other purpose would be taken
  for the library; it answers for the modules that the configuration names alone, and for what their source imports.
- A folder that the user put on Python's path, such as one in ``PYTHONPATH``.
- An installed distribution that says of itself that it needs mezzotint.

Python's own modules and all other installed packages are refused before they are imported.
"""

import ast
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from sim.errors import ConfigError

OURS = ("backends", "conf", "sim", "traces")
TARGET = "_target_"
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def refuse_foreign(module: str, key: str) -> None:
    """Refuse a module that is neither ours nor the user's, without importing it.

    Raises ConfigError, which names ``key``, for Python's own, for an installed package, and for one that is nowhere.
    """
    top = module.partition(".")[0]
    if top in OURS or top == "__main__":
        return
    if top in sys.stdlib_module_names:
        raise ConfigError(f"{key}: {top} is Python's own, expected a class of ours or of a module of yours")
    try:
        spec = importlib.util.find_spec(top) if top else None
    except ImportError as error:
        raise ConfigError(f"{key}: {module} cannot be imported ({error})") from None
    except ValueError:
        spec = None
    if spec is None:
        raise ConfigError(
            f"{key}: {module} cannot be imported (found no module {top}); put its file in the working directory, which "
            "is not the folder of --config-path, or its folder in PYTHONPATH"
        )
    if _is_installed(spec) and not _needs_us(top):
        raise ConfigError(
            f"{key}: {top} is an installed package, expected a class of ours or of a module of yours; one that is "
            "installed names mezzotint among its dependencies"
        )


def _is_installed(spec: ModuleSpec) -> bool:
    if spec.origin in ("built-in", "frozen"):
        return True
    library = Path(ast.__file__).parent
    places = _places(spec)
    return not places or any(
        not _INSTALLED.isdisjoint(Path(place).parts) or Path(place).resolve().is_relative_to(library)
        for place in places
    )


def _places(spec: ModuleSpec) -> list[str]:
    return [*([spec.origin] if spec.origin else []), *(spec.submodule_search_locations or ())]


def _needs_us(top: str) -> bool:
    distributions = importlib.metadata.packages_distributions().get(top, ())
    needs = [need for name in distributions for need in importlib.metadata.requires(name) or ()]
    return any(need.lower().startswith("mezzotint") for need in needs)


@contextmanager
def at_hand(folder: Path, config: Any, data: Path | None = None) -> Iterator[None]:
    """While it lasts, ``folder`` answers for the modules that a ``_target_`` of ``config`` names.

    A module that they import, at their head or inside a function, is found there too, where nowhere else. What was
    loaded goes when it ends: two runs in one process meet fresh modules, as in two. Nothing is imported from ``data``,
    the folder that the configuration itself lies in, if it is a run's.
    """
    closed = [] if data is None else [_Closed(data.resolve())]
    finder = _Folder(folder, {target.partition(".")[0] for target in _targets(config)} - set(OURS), closed)
    before = list(sys.meta_path)
    sys.meta_path[:] = [*closed, *before, finder]
    try:
        yield
    finally:
        sys.meta_path[:] = before
        for name in [name for name in sys.modules if name.partition(".")[0] in finder.found]:
            del sys.modules[name]


@dataclass(frozen=True, slots=True)
class _Closed:
    """A finder (importlib's protocol) that no module in one folder gets past."""

    folder: Path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        self.refuse(PathFinder.find_spec(name, path))
        return None

    def refuse(self, spec: ModuleSpec | None) -> None:
        """Raise ImportError for a module in the folder."""
        if spec is not None and any(Path(place).resolve().is_relative_to(self.folder) for place in _places(spec)):
            raise ImportError(f"{self.folder} holds the configuration of a run, which is data")


class _Folder:
    """A finder (importlib's protocol) of some top-level modules of one folder, asked after all others."""

    def __init__(self, folder: Path, names: Iterable[str], closed: Iterable[_Closed]) -> None:
        self._folder = str(folder)
        self._names = set(names)
        self._closed = tuple(closed)
        self.found: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name not in self._names:
            return None
        spec = PathFinder.find_spec(name, [self._folder])
        for each in self._closed:
            each.refuse(spec)
        if spec is not None:
            self.found.add(name)
            self._names |= _imported(spec)
        return spec


def _imported(spec: ModuleSpec) -> set[str]:
    """The top-level modules that the source of ``spec`` imports, anywhere in it."""
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    if not folders and spec.origin is not None and spec.origin.endswith(".py"):
        files = [Path(spec.origin)]
    names: set[str] = set()
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # importing it says what is wrong
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


def _targets(config: Any) -> Iterator[str]:
    if isinstance(config, Mapping):
        if isinstance(config.get(TARGET), str):
            yield config[TARGET]
        for value in config.values():
            yield from _targets(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _targets(value)
