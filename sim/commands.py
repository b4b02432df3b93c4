"""The commands that have options of their own: each is a function with typed parameters, which Typer calls."""

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.exceptions import TyperException

from sim.errors import ConfigError

COMMANDS: dict[str, str] = {
    "report": "sim.study.report:report",
}
"""The module and function of each command, by the words that call it. A module is imported when it is called."""


def command_of(given: Sequence[str]) -> str | None:
    """Return the longest command that ``given`` begins with, such as ``trace import``; None where there is none."""
    found = [words for words in COMMANDS if words.split() == list(given[: len(words.split())])]
    return max(found, key=len, default=None)


def run_command(words: str, options: Sequence[str]) -> int:
    """Call the function of command ``words`` with ``options``. Returns its exit status; None counts as 0.

    Raises:
        ConfigError: an option is unknown, lacks its value, or is out of its range.
    """
    function = function_of(words)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(help=_description(function))(function)
    try:
        status = typer.main.get_command(app).main(
            args=list(options), prog_name=f"mezzotint {words}", standalone_mode=False
        )
    except TyperException as error:
        raise ConfigError(f"{words}: {error.format_message()} `mezzotint {words} --help` lists its options") from None
    return status or 0


def function_of(words: str) -> Callable[..., Any]:
    """Import the function of command ``words``."""
    module, _, name = COMMANDS[words].partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _description(function: Callable[..., Any]) -> str:
    """Return the docstring before its sections (Args, Returns, Raises)."""
    text = inspect.getdoc(function) or ""
    return min((text.partition(f"\n\n{section}:")[0] for section in ("Args", "Returns", "Raises", "Source")), key=len)
