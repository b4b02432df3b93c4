"""Silence libraries whose warnings would repeat with every request and are of no use here."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Let only errors of ``name``, a logger of transformers or diffusers, through, and hide progress bars."""
    library = import_module(f"{name.partition('.')[0]}.utils.logging")
    library.get_verbosity()  # the first call sets the level of the library's logger
    logger = logging.getLogger(name)
    level, shows = logger.level, library.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    library.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        if shows:
            library.enable_progress_bar()
