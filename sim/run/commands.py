"""The commands: each is a function with typed parameters, called by Typer."""

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from typer.exceptions import TyperException

from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError

COMMANDS: dict[str, str] = {
    "report": "mezzotint.sim.report.report:report",
    "run": "mezzotint.sim.verbs:run",
    "list": "mezzotint.sim.run.listing:list_choices",
    "merge": "mezzotint.sim.metrics.merge:merge",
    "validate": "mezzotint.sim.verbs:validate",
    "trace compare": "mezzotint.traces.cli:compare",
    "trace describe": "mezzotint.traces.cli:describe",
    "trace export": "mezzotint.traces.cli:export",
    "trace import": "mezzotint.traces.sources.command:import_from",
    "trace pair": "mezzotint.traces.cli:pair",
    "trace synth": "mezzotint.traces.cli:synth",
    **dict.fromkeys(
        ("calibrate sd15", "calibrate sdxl", "calibrate sd3", "calibrate flux", "calibrate sana"),
        "mezzotint.backends.cli:calibrate",
    ),
    "calibrate sglang": "mezzotint.backends.cli:calibrate_sglang",
    "calibrate log": "mezzotint.sim.fit.profile.command:log",
    "calibrate table": "mezzotint.sim.fit.profile.table:table",
    "calibrate selector": "mezzotint.sim.fit.selector.command:selector",
    "calibrate similarity-map": "mezzotint.sim.fit.similarity_map.command:similarity_map",
    "plan": "mezzotint.sim.plan.command:plan",
    "plan capacity": "mezzotint.sim.plan.capacity_command:capacity",
    "plan placement": "mezzotint.sim.plan.placement_command:placement",
    "reproduce": "mezzotint.sim.papers.scorecard.command:compare",
    "reproduce addons": "mezzotint.sim.papers.addons:compare",
    "reproduce disaggregated": "mezzotint.sim.papers.disaggregated:compare",
    "reproduce autoscaling": "mezzotint.sim.papers.autoscaling.study:compare",
    "reproduce cascade": "mezzotint.sim.papers.cascade:compare",
    "reproduce fleets": "mezzotint.sim.papers.fleets:compare",
    "reproduce compositions": "mezzotint.sim.papers.compositions:compare",
    "reproduce elastic": "mezzotint.sim.papers.elastic.study:compare",
    "reproduce engines": "mezzotint.sim.papers.engines:compare",
    "reproduce hardware": "mezzotint.sim.papers.hardware.study:compare",
    "reproduce scaling": "mezzotint.sim.papers.scaling:compare",
    "reproduce stages": "mezzotint.sim.papers.stages:compare",
    "reproduce video": "mezzotint.sim.papers.video.study:replay",
}
"""The words of each command -> its module and function; a module is imported when its command is called."""

BY_NEXT_WORD = frozenset({"trace import"})
"""Commands whose options depend on the next word: their function takes that word and returns the function to call."""


def overview(first: str = "") -> str:
    """Return the list of commands, or of those that begin with the word ``first``."""
    chosen = [words for words in COMMANDS if not first or words.split()[0] == first]
    lines = [f"  {words:<28} {summary(COMMANDS[words])}" for words in chosen]
    about = "Replay text-to-image traffic through published serving designs."
    return "\n".join([f"Usage: mezzotint {first or 'COMMAND'} [OPTIONS]", "", about, "", *lines])


def refuse_words(given: Sequence[str]) -> NoReturn:
    """Raise ConfigError for words that are no command."""
    if after := words_after(given[0]):
        second = given[1] if len(given) > 1 else "nothing"
        raise ConfigError(f"{given[0]}: found {second}, {suggest(second, after)}")
    known = dict.fromkeys(words.split()[0] for words in COMMANDS)
    raise ConfigError(f"{given[0]}: is no command; {suggest(given[0], known, 'mezzotint --help')}")


def words_after(first: str) -> list[str]:
    """Return the second words of the commands that begin with the word ``first``."""
    return [words.split()[1] for words in COMMANDS if words.startswith(f"{first} ")]


def command_of(given: Sequence[str]) -> str | None:
    """Return the longest command that ``given`` begins with, such as ``trace import``; None where there is none."""
    return max(
        (words for words in COMMANDS if words.split() == list(given[: len(words.split())])), key=len, default=None
    )


def run_command(words: str, options: Sequence[str]) -> int:
    """Call the function of command ``words`` with ``options``. Returns its exit status; None counts as 0.

    Raises:
        ConfigError: an option is unknown, lacks its value, or is out of its range.
    """
    try:
        # not command.main, which handles interruptions and closed pipes itself
        with parse_options(words, options) as context:
            status: int | None = context.command.invoke(context)
    except typer.Exit as end:  # of --help
        return end.exit_code
    except TyperException as error:
        message = error.format_message().replace("Value error, ", "")
        if isinstance(error.__cause__, ValidationError):  # its message lacks the value
            message += f", found {error.__cause__.errors()[0]['input']!r}."
        raise ConfigError(f"{words}: {message} `mezzotint {words} --help` lists its options") from None
    return status or 0


def parse_options(words: str, options: Sequence[str]) -> Any:
    """Parse the ``options`` of command ``words`` into a Typer context. Raises TyperException for a wrong one."""
    function = function_of(words)
    if words in BY_NEXT_WORD:
        word = options[0] if options and not options[0].startswith("-") else None
        function = function(word)
        words, options = (words, options) if word is None else (f"{words} {word}", options[1:])
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(help=_description(function), context_settings={"help_option_names": ["-h", "--help"]})(function)
    return typer.main.get_command(app).make_context(f"mezzotint {words}", list(options))


def function_of(words: str) -> Callable[..., Any]:
    """Import the function of command ``words``."""
    module, _, name = COMMANDS[words].partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def summary(path: str) -> str:
    """Return the first sentence of a command's docstring, from its source: importing all commands takes seconds."""
    module, _, name = path.partition(":")
    spec = find_spec(module)
    assert spec is not None
    functions = [
        node for node in ast.parse(Path(str(spec.origin)).read_bytes()).body if isinstance(node, ast.FunctionDef)
    ]
    text = next(ast.get_docstring(function) or "" for function in functions if function.name == name)
    return re.split(r"[.:;](?:\s|$)", " ".join(text.split()), maxsplit=1)[0]


def _description(function: Callable[..., Any]) -> str:
    """Return the docstring before its sections (Args, Returns, Raises)."""
    text = inspect.getdoc(function) or ""
    return min((text.partition(f"\n\n{section}:")[0] for section in ("Args", "Returns", "Raises", "Source")), key=len)
