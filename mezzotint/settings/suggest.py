"""The remedy of an error about an unknown name: the nearest known one, or where the known ones are listed."""

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 12
"""Known names that a message lists."""


def suggest(name: str, known: Iterable[str], listing: str = "") -> str:
    """Return "did you mean X?" of the known name that is most like ``name``, whatever the case of its letters.

    Without one, return the known names if they are few or nothing else lists them, else ``listing``, the command that
    does.
    """
    names = list(known)
    by_lower = {text.lower(): text for text in names}
    near = get_close_matches(name.lower(), by_lower, 1)
    if near:
        also = f" (`{listing}` prints all)" if listing else ""
        return f"did you mean {by_lower[near[0]]}?{also}"
    if listing and len(names) > _MOST:
        return f"`{listing}` prints all {len(names)}"
    return f"expected one of {', '.join(names) or 'none'}"
