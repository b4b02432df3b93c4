"""Text from outside as it is printed."""

from hypothesis import given
from hypothesis import strategies as st

from conf.printable import printable


@given(st.text(st.characters()))
def test_printable_text_is_unchanged_and_the_rest_is_escaped(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert printable(shown) == shown


def test_line_breaks_and_tabs_become_blanks() -> None:
    assert printable("two\nlines\tand\x1b[31m\u202e\udce9") == r"two lines and\x1b[31m\u202e\udce9"
