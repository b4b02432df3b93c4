"""Pages in Markdown, from Jinja templates: numbers and tables look the same on all of them."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

DASH = "–"
"""Shown for a value that is absent."""


def render(package: str, template: str, **values: Any) -> str:
    """Fill a template that lies beside the code of ``package``.

    Templates know the filters ``number``, ``percent`` and the function ``table``. A block tag alone on its line leaves
    no line. A value that the template names and nobody gives raises jinja2.UndefinedError.
    """
    return _environment(package).get_template(template).render(**values)


@cache
def _environment(package: str) -> "jinja2.Environment":
    import jinja2  # slow to import, and a run renders no page

    name, _, folder = package.rpartition(".")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(name or folder, folder if name else ""),
        autoescape=jinja2.select_autoescape(("html.jinja",), default=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": number, "percent": percent}
    environment.globals["table"] = table
    return environment


def number(value: float | bool | Sequence[float] | None, digits: int = 4, zeros: bool = False) -> str:
    """Format a value in ``digits`` significant digits, large ones as whole numbers; a list in a row, None as a dash.

    Args:
        zeros: True to keep the zeros at the end of a fraction, for columns of numbers: 4.90 below 5.94.
    """
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "true" if value else "false"
    return " · ".join(_plain(each, digits, zeros) for each in (value if isinstance(value, Sequence) else [value]))


def _plain(value: float, digits: int, zeros: bool) -> str:
    """Return a number without an exponent, unless it has more than six zeros before or twelve digits."""
    if 10**digits - 0.5 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    text = f"{value:{'#' if zeros else ''}.{digits}g}".removesuffix(".")
    return f"{Decimal(text):f}" if 1e-6 <= abs(value) < 1e12 else text


def percent(value: float | None, decimals: int = 1, sign: bool = False) -> str:
    """Format a share of 1 as per cent, ``+1.5 %`` with its sign; None as a dash."""
    if value is None:
        return DASH
    return f"{100 * value:+.{decimals}f} %" if sign else f"{100 * value:.{decimals}f} %"


def table(head: Sequence[object], rows: Iterable[Sequence[object]], right: bool = False) -> str:
    """Return a Markdown table; ``right``: all columns but the first are aligned to the right, as for numbers."""
    rule = ["---", *("---:" if right else "---" for _ in head[1:])]
    lines = ((str(cell).replace("|", "\\|") for cell in line) for line in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
