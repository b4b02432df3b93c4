"""Every colour can be seen on a light and on a dark page."""

import pytest

from mezzotint.figures.palette import COLOURS, DARK, EDGE, GREY, INK, LIGHT, MIN_CONTRAST, contrast, on_dark


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#0072B2", "#0072B2") == 1


@pytest.mark.parametrize("colour", [*COLOURS, INK, EDGE, GREY])
def test_every_colour_has_contrast_on_both_pages(colour: str) -> None:
    assert contrast(colour, LIGHT) >= MIN_CONTRAST
    assert contrast(on_dark(colour), DARK) >= MIN_CONTRAST


def test_colours_differ_on_a_dark_page_too() -> None:
    assert len({on_dark(colour) for colour in (*COLOURS, INK, EDGE, GREY)}) == len(COLOURS) + 3
