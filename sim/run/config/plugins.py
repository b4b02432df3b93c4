"""The modules whose classes a configuration may name: ours, and plug-ins.

A plug-in is a module that the user names (``--plugin``, or the environment variable MEZZOTINT_PLUGINS), or that an
installed package offers as an entry point of the group ``mezzotint.plugins``. A configuration cannot add one.
"""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType

from mezzotint.sim.core.culprit import is_ours
from mezzotint.sim.core.errors import ConfigError

TARGET = "_target_"
VARIABLE = "MEZZOTINT_PLUGINS"
"""Plug-ins, separated by colons; an environment variable reaches the worker processes of a sweep."""


@contextmanager
def allow_plugins(plugins: Iterable[str]) -> Iterator[None]:
    """Allow classes of ``plugins``, modules on the path or in the working directory, within the block.

    Raises:
        ConfigError: a plug-in cannot be imported.
    """
    from hydra.core.utils import env_override  # slow to import, and reports need it not

    with env_override({VARIABLE: ":".join(dict.fromkeys([*_modules_of_variable(), *plugins]))}):
        for name in plugins:
            import_part(name, "--plugin")
        yield


def import_part(module: str, key: str) -> ModuleType:
    """Import a module of ours or of a plug-in.

    Raises:
        ConfigError: it is neither, or it cannot be imported; the message names ``key``.
    """
    if not is_ours(module):
        plugins = *_modules_of_variable(), *_modules_of_entry_points()
        if not any(module == name or module.startswith(f"{name}.") for name in plugins):
            raise ConfigError(
                f"{key}: found {module}, expected a module of mezzotint or of a plug-in; name yours with "
                f"--plugin {module.partition('.')[0]}"
            )
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # last, so that no file there hides a library
    try:
        return importlib.import_module(module)
    except Exception as error:  # the user's module may raise anything
        raise ConfigError(
            f"{key}: {module} cannot be imported ({type(error).__name__}: {error}); correct it, or put it into the "
            "working directory or on PYTHONPATH"
        ) from error


def _modules_of_variable() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(":") if name]


def _modules_of_entry_points() -> list[str]:
    return [point.module for point in importlib.metadata.entry_points(group="mezzotint.plugins")]
