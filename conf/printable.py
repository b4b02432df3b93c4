"""Text that came from outside, as a terminal, a page and a figure show it."""


def printable(text: str) -> str:
    """``text`` with what cannot be printed escaped: a control character would act on a terminal, and has no glyph.

    What ends a line or is a tab is a blank.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode() for c in text)
