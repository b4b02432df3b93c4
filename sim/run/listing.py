"""`mezzotint list`: the groups of a run, and their choices."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.completion import complete_group
from mezzotint.sim.run.config.choices import choices, dependents, groups

PROFILES, MATRIX = "profiles", "matrix"
"""Listed besides the groups."""


def list_choices(
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="GROUP",
            help="such as eviction, profiles or matrix (default: all groups)",
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
        Path | None, typer.Option(metavar="DIR", help="profiles, matrix: a folder of your own profiles beside ours")
    ] = None,
) -> None:
    """Print the groups that a run is composed of, or the choices of one.

    Raises:
        ConfigError: there is no such group or folder.
    """
    if folder is not None and group not in (PROFILES, MATRIX):
        raise ConfigError(f"--folder: applies only to `mezzotint list {PROFILES}` and {MATRIX}; leave it out")
    if group is None:
        rows = [
            (
                f"{name}=",
                entry.line + "".join(f" (with {other}={', '.join(names)})" for other, names in entry.needs.items()),
            )
            for name, entry in groups().items()
        ]
        print(columns(rows))
        print("\n`mezzotint list GROUP` prints the choices of a group; `mezzotint run GROUP=CHOICE` takes one.")
        print(
            "`mezzotint list profiles` prints what was measured on which GPU, and by whom, and `mezzotint list matrix`"
        )
        print("which models are known on which GPUs in which engine.")
    elif group in (PROFILES, MATRIX):
        from mezzotint.sim.run.profiles import matrix, profiles  # slow to import

        if config_dir is not None:
            raise ConfigError(f"list {group}: takes no --config-dir; name the folder of your profiles with --folder")
        if group == PROFILES:
            print(columns(profiles(folder)))
            return
        print(columns(_by_basis(*matrix(folder))))
        print(
            "\nA kind that is unknown can be scaled from another, with a mark: assume=KIND=KIND, or --assume of plan."
        )
    else:
        name = group.removesuffix("=")
        listed = choices(name, config_dir)
        rows = []
        for choice in listed:
            with_it = ", ".join(f"{dependent}=" for dependent in dependents(name, choice.name))
            rows.append((f"{choice.name}{' *' if choice.is_users else ''}", choice.line))
            rows += [("", f"with it: {with_it}")] if with_it else []
        print(columns(rows))
        if any(choice.is_users for choice in listed):
            print(f"\n* from {config_dir}")


def _by_basis(head: Sequence[str], *rows: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the matrix with a row per model, engine and basis, and one per model for the kinds where it is unknown."""
    listed = [(*head[:2], "known as", "on")]
    for model, of_model in groupby(rows, key=lambda row: row[0]):
        engines = list(of_model)
        for row in engines:
            known = zip(head[2:-1], row[2:-1], strict=True)
            listed += [(model, row[1], basis, kinds) for basis, kinds in known if kinds != "-"]
        listed.append((model, "any", head[-1], engines[0][-1]))
    return listed


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of equally many cells as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
