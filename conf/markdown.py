"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[object], rows: Iterable[Sequence[object]], right: bool = False) -> str:
    """A table whose cells may hold any text of one line.

    Args:
        right: all but the first column to the right, as numbers are read.
    """
    rule = ["---", *("---:" if right else "---" for _ in head[1:])]
    lines = ((str(cell).replace("|", "\\|") for cell in line) for line in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
