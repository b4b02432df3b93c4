"""Silenced logging: weights are read without transformers' bars and remarks, which would show off a terminal too."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Let only errors of transformers through, and give it back the verbosity that it had. Needs transformers."""
    from transformers.utils import logging

    shows, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows:
            logging.enable_progress_bar()
