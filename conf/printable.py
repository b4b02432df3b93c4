"""Text of users, escaped for a terminal, a page or a figure."""


def printable(text: str) -> str:
    """Escape unprintable characters: control characters would act on a terminal.

    Line ends and tabs become blanks.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode() for c in text)
