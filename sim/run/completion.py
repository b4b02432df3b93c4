"""Shell completion: Typer's, of the verbs, their options and the choices of groups.

A shell's script runs the command with the words so far in environment variables; Typer prints what may follow.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NoReturn

import typer

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.commands import COMMANDS, command_of, function_of, summary, words_after
from mezzotint.sim.run.config.choices import choices, groups


def complete(given: Sequence[str]) -> NoReturn:
    """Print what may follow the words of the shell, or obey an option, and exit."""
    os.environ["COLUMNS"] = "10000"  # or Typer wraps descriptions, and a line is a completion
    if "COMP_WORDS" in os.environ:
        words, current = os.environ["COMP_WORDS"].split(), int(os.environ["COMP_CWORD"])
        if words[current : current + 1] == ["="]:  # bash splits there, and completes the empty word after it
            current += 1
            os.environ["COMP_CWORD"] = str(current)
        typed, unfinished = words[1:current], "".join(words[current : current + 1])
    else:
        *typed, unfinished = f"{os.environ.get('_TYPER_COMPLETE_ARGS', '')}|".split()[1:] or [""]
    app(typed, unfinished)(args=list(given), prog_name="mezzotint")
    raise AssertionError("Typer exits")


def app(typed: Sequence[str], unfinished: str) -> typer.Typer:
    """Return all commands as one application; only the function of the ``typed`` one is imported, which takes longest.

    A verb that is also the first word of others, such as `plan`, is completed with their second words before anything
    else but an option.
    """
    root = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    current = command_of(typed)
    alone = current if len(typed) > 1 or unfinished.startswith("-") else None
    for verb in dict.fromkeys(words.split()[0] for words in COMMANDS):
        after = words_after(verb)
        if not after or verb == alone:
            _add(root, verb, verb, current)
            continue
        below = typer.Typer()
        for word in after:
            _add(below, word, f"{verb} {word}", current)
        root.add_typer(below, name=verb)
    return root


def _add(to: typer.Typer, name: str, words: str, current: str | None) -> None:
    to.command(name, help=summary(COMMANDS[words]))(function_of(words) if words == current else lambda: None)


def complete_override(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the groups and choices that an override may be, each with its description.

    One group is completed with its choices, since a shell ends the word after the only completion.
    """
    before = ctx.params.get("overrides") or []
    group, equals, value = incomplete.partition("=")
    start = f"{group}="
    if before[-1:] == ["="]:  # of bash
        group, equals, value, start = before[-2], "=", incomplete, ""
    if not equals:
        matching = {name: entry.line for name, entry in groups().items() if name.startswith(group)}
        if len(matching) != 1:
            yield from ((f"{name}=", line) for name, line in matching.items())
            return
        (group,) = matching
        start = f"{group}="
    start += value[: value.rfind(",") + 1]  # the choices of a sweep so far
    try:
        for choice in choices(group, ctx.params.get("config_dir")):
            yield f"{start}{choice.name}", choice.line
    except ConfigError:  # no group, no such folder
        return


def complete_group(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the groups."""
    return ((name, group.line) for name, group in groups().items() if name.startswith(incomplete))
