"""The modules that a configuration may name classes of: ours, and plug-ins.

A plug-in is a module that the user named (``--plugin``, or the environment variable MEZZOTINT_PLUGINS), or that an
installed package offers as an entry point of the group ``mezzotint.plugins``. A configuration can name none.
"""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType

from sim.core.culprit import OURS
from sim.core.errors import ConfigError

TARGET = "_target_"
VARIABLE = "MEZZOTINT_PLUGINS"
"""Names of plug-ins with colons between them; an environment variable reaches the worker processes of a sweep."""


@contextmanager
def named(plugins: Iterable[str]) -> Iterator[None]:
    """Let configurations name classes of ``plugins``, modules on the path or in the working directory, in the block.

    Raises:
        ConfigError: a plug-in cannot be imported.
    """
    from hydra.core.utils import env_override  # takes a while, and reports name no plug-in

    with env_override({VARIABLE: ":".join(dict.fromkeys([*_named(), *plugins]))}):
        for name in plugins:
            imported(name, "--plugin")
        yield


def imported(module: str, key: str) -> ModuleType:
    """Import a module of ours or of a plug-in.

    Raises:
        ConfigError: it is neither, or it cannot be imported; ``key`` is where its name stands.
    """
    top = module.partition(".")[0]
    if top not in OURS:
        if not any(module == name or module.startswith(f"{name}.") for name in (*_named(), *_installed())):
            raise ConfigError(
                f"{key}: found {module}, expected a module of mezzotint or of a plug-in; name yours with --plugin {top}"
            )
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # last, so that no file there passes for a library
    try:
        return importlib.import_module(module)
    except Exception as error:  # a module of the user's may fail in any way
        raise ConfigError(
            f"{key}: {module} cannot be imported ({type(error).__name__}: {error}); correct it, or put it into the "
            "working directory or on PYTHONPATH"
        ) from error


def _named() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(":") if name]


def _installed() -> list[str]:
    return [point.module for point in importlib.metadata.entry_points(group="mezzotint.plugins")]
