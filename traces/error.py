"""The error that all of `traces` raises."""


class TraceError(ValueError):
    """A trace, its embeddings or its arrival process cannot be used as given.

    The message is one line: the file, the row and column (rows count from 0, a header is not a row),
    what was found, what was expected, and what to do about it.
    """
