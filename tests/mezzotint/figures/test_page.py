"""Markdown tables keep the text of their cells."""

import re

from hypothesis import given
from hypothesis import strategies as st

from mezzotint.figures.page import table

CELL = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], exclude_characters="\\"))


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(CELL, min_size=n, max_size=n), min_size=1)), st.booleans())
def test_markdown_cells_round_trip(lines: list[list[str]], right: bool) -> None:
    cells = [re.split(r" (?<!\\)\| ", f" {line} ")[1:-1] for line in table(lines[0], lines[1:], right).split("\n")]
    head, rule, *rows = [[cell.replace("\\|", "|") for cell in line] for line in cells]
    assert [head, *rows] == lines
    assert rule == ["---", *["---:" if right else "---"] * (len(head) - 1)]
