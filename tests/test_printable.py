"""Text from outside, as it is shown."""

from hypothesis import given
from hypothesis import strategies as st

from conf.printable import printable


@given(st.text(st.characters()))
def test_what_is_shown_can_be_printed_and_stays_what_it_was_where_it_could(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert printable(shown) == shown


def test_lines_and_tabs_are_blanks_and_the_rest_is_escaped() -> None:
    assert printable("two\nlines\tand\x1b[31m\u202e\udce9") == r"two lines and\x1b[31m\u202e\udce9"
