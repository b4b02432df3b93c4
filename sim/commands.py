"""The commands that have options of their own: each is a function with typed parameters, which Typer calls."""

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer
from pydantic import ValidationError
from typer.exceptions import TyperException

from sim.errors import ConfigError

COMMANDS: dict[str, str] = {
    **dict.fromkeys(
        ("calibrate sd15", "calibrate sdxl", "calibrate sd3", "calibrate flux", "calibrate sana"),
        "backends.cli:calibrate",
    ),
    "calibrate likeness": "backends.cli:calibrate_likeness",
    "calibrate sglang": "backends.cli:calibrate_sglang",
    "calibrate log": "sim.study.generation.command:log",
    "calibrate scale": "sim.study.scale.command:scale",
    "calibrate selector": "sim.study.selector.command:selector",
    "plan placement": "sim.study.placement.command:placement",
    "plan rate": "sim.study.rate.command:Asked",
}
"""The module and function of each command, by the words that call it. A module is imported when it is called."""


def command_of(given: Sequence[str]) -> str | None:
    """Return the longest command that ``given`` begins with, such as ``trace import``; None where there is none."""
    found = [words for words in COMMANDS if words.split() == list(given[: len(words.split())])]
    return max(found, key=len, default=None)


def run_command(words: str, options: Sequence[str]) -> int:
    """Call the function of command ``words`` with ``options``. Returns its exit status; None counts as 0.

    Raises:
        ConfigError: as ``called``.
    """
    return called(words, options) or 0


def called(words: str, options: Sequence[str], **settings: Any) -> Any:
    """Call the function of command ``words`` with ``options``, and return what it returns; 0 where help was asked for.

    Args:
        settings: of the parser, such as ``ignore_unknown_options``.

    Raises:
        ConfigError: an option is unknown, lacks its value, or is out of its range.
    """
    function = function_of(words)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings["help_option_names"] = ["-h", "--help"]
    app.command(help=_description(function), context_settings=settings)(function)
    command = typer.main.get_command(app)
    try:
        # not command.main, which would end on an interruption and on a closed pipe in its own way
        with command.make_context(f"mezzotint {words}", list(options)) as context:
            return command.invoke(context)
    except typer.Exit as stop:  # of --help
        return stop.exit_code
    except TyperException as error:
        said = error.format_message().replace("Value error, ", "")
        if isinstance(error.__cause__, ValidationError):  # which says what was expected alone
            said += f", found {error.__cause__.errors()[0]['input']!r}."
        raise ConfigError(f"{words}: {said} `mezzotint {words} --help` lists its options") from None


def function_of(words: str) -> Callable[..., Any]:
    """Import the function of command ``words``."""
    module, _, name = COMMANDS[words].partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _description(function: Callable[..., Any]) -> str:
    """Return the docstring before its sections (Args, Returns, Raises)."""
    text = inspect.getdoc(function) or ""
    return min((text.partition(f"\n\n{section}:")[0] for section in ("Args", "Returns", "Raises", "Source")), key=len)
