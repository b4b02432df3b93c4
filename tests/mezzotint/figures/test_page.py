"""Numbers have no exponent where people read them, and Markdown tables keep the text of their cells."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.figures.page import number, table

CELL = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], exclude_characters="\\"))


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(CELL, min_size=n, max_size=n), min_size=1)), st.booleans())
def test_markdown_cells_round_trip(lines: list[list[str]], right: bool) -> None:
    cells = [re.split(r" (?<!\\)\| ", f" {line} ")[1:-1] for line in table(lines[0], lines[1:], right).split("\n")]
    head, rule, *rows = [[cell.replace("\\|", "|") for cell in line] for line in cells]
    assert [head, *rows] == lines
    assert rule == ["---", *["---:" if right else "---"] * (len(head) - 1)]


@given(st.floats(1e-6, 1e11), st.integers(1, 6), st.booleans())
def test_number_is_within_half_a_unit_of_its_last_digit_and_has_no_exponent(
    value: float, digits: int, zeros: bool
) -> None:
    text = number(value, digits, zeros)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
    assert not zeros or value >= 10**digits - 0.5 or len(text.replace(".", "").lstrip("0")) == digits
