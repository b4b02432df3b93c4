"""`mezzotint list`: the groups of a run, and their choices."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.completion import complete_group
from mezzotint.sim.run.config.choices import choices, dependents, groups

PROFILES = "profiles"
"""Listed besides the groups."""


def list_choices(
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="GROUP",
            help="such as eviction, or profiles (default: all groups)",
            autocompletion=complete_group,
        ),
    ] = None,
    config_dir: Annotated[
        Path | None,
        typer.Option(
            "--config-dir", "-cd", metavar="DIR", help="a folder with groups of your own, marked * in the list"
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="profiles: a folder of your own profiles beside the shipped ones")
    ] = None,
) -> None:
    """Print the groups that a run is composed of, or the choices of one.

    Raises:
        ConfigError: there is no such group or folder.
    """
    if folder is not None and group != PROFILES:
        raise ConfigError(f"--folder: applies only to `mezzotint list {PROFILES}`; leave it out")
    if group is None:
        rows = [
            (
                f"{name}=",
                each.line + "".join(f" (with {other}={', '.join(they)})" for other, they in each.needs.items()),
            )
            for name, each in groups().items()
        ]
        print(columns(rows))
        print("\n`mezzotint list GROUP` prints the choices of a group; `mezzotint run GROUP=CHOICE` takes one.")
        print("`mezzotint list profiles` prints what was measured on which GPU, and by whom.")
    elif group == PROFILES:
        from mezzotint.sim.run.profiles import profiles  # slow to import

        if config_dir is not None:
            raise ConfigError("list profiles: takes no --config-dir; name the folder of your profiles with --folder")
        print(columns(profiles(folder)))
    else:
        name = group.removesuffix("=")
        found = choices(name, config_dir)
        rows = []
        for choice in found:
            with_it = ", ".join(f"{each}=" for each in dependents(name, choice.name))
            rows.append((f"{choice.name}{' *' if choice.own else ''}", choice.line))
            rows += [("", f"with it: {with_it}")] if with_it else []
        print(columns(rows))
        if any(choice.own for choice in found):
            print(f"\n* from {config_dir}")


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of equally many cells as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
