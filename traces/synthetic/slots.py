"""The places of a prompt that words go into, and the lists that they are drawn from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, islice, product

import numpy as np
import pyarrow as pa

from traces.synthetic import vocabulary as words

FAMILIES = 120
RARE = 4000
"""Words of each slot that hardly two prompts share."""

BY = ("by ", "", "art by ", "")
"""What comes before the name of an artist, slot by slot."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of a prompt.

    Attributes:
        texts: (k + r,) what may stand there, the k common ones first.
        common: k.
        skew: exponent of the Zipf law by which common ones are drawn, in their order; rare ones are equally likely.
    """

    texts: pa.Array
    common: int
    skew: float


@cache
def slots() -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """The slots of the sentence that a prompt begins with, in their order, and those of the list after it.

    Lists have no word in common with each
    other as far as possible, so that few prompts say the same thing twice.
    """
    coined = _coined()
    modifiers = [_slot("{0}", words.MODIFIERS[first::12], 0.8, coined) for first in range(12)]
    names = _artists()
    artists = [_slot(by + "{0}", names[first::4], 0.7, coined) for first, by in enumerate(BY)]
    sentence = (
        _slot("{0}", words.MEDIUMS, 0.7, coined),
        _slot("{0}", words.QUALITIES, 0.5, coined),
        Slot(pa.array([*words.SUBJECTS, *_names()]), len(words.SUBJECTS), 0.5),
        _slot("in a {0}", _across("{0} {1}", words.QUALITIES, words.GARMENTS), 0.4, coined),
        _slot("{0}", _across("{0} a {1}", words.ACTIONS, words.SUBJECTS), 0.4, coined),
        _slot("and a {0}", _across("{0} {1}", words.QUALITIES, words.SUBJECTS), 0.3, coined),
        _slot("{0}", words.PLACES, 0.4, coined),
    )
    looks = [
        _slot("{0}", words.STYLES, 0.5, coined),
        _slot("{0}", words.LIGHTS, 0.5, coined),
        _slot("{0}", _across("{0} and {1}", words.COLOURS, words.COLOURS), 0.3, coined),
    ]
    listed = (
        *(slot for group in zip(modifiers[:3], looks, strict=True) for slot in group),
        *modifiers[3:7],
        *artists,
        *modifiers[7:],
    )
    return sentence, listed


SUBJECT = 2
"""Which slot of the sentence says what the picture is of; it is always filled."""


def _slot(form: str, common: Iterable[str], skew: float, coined: Iterator[str]) -> Slot:
    """A slot of these common words and the next of the coined ones, each put into `form`."""
    usual = [form.format(word) for word in common]
    return Slot(pa.array([*usual, *(form.format(word) for word in islice(coined, RARE))]), len(usual), skew)


def _across(form: str, first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    """Every pair put into `form`, pairs of two early words early, by the product of their ranks."""
    ranks = np.multiply.outer(np.arange(1, len(first) + 1), np.arange(1, len(second) + 1)).ravel()
    pairs = list(product(first, second))
    return [form.format(*pairs[index]) for index in np.argsort(ranks, kind="stable").tolist()]


def _coined() -> Iterator[str]:
    """Words of two syllables that mean nothing, no two alike."""
    syllables = ["".join(parts) for parts in product(words.ONSETS, words.VOWELS, words.CODAS)]
    size = len(syllables)
    # steps that have no factor in common with the number of syllables take each of them once
    for index in count():
        yield syllables[index * 2311 % size] + syllables[(index * 5003 + index // size * 1009) % size]


def _artists() -> tuple[str, ...]:
    families = [start + end for start, end in product(words.FAMILY_STARTS, words.FAMILY_ENDS)]
    # steps that have no factor in common with the number of families take each of them once
    chosen = [families[index * 77 % len(families)] for index in range(FAMILIES)]
    return tuple(f"{given} {family}" for family, given in product(chosen, words.GIVEN_NAMES))


def _names() -> list[str]:
    return ["".join(parts) for parts in product(words.FAMILY_STARTS, words.FAMILY_STARTS, words.FAMILY_ENDS)]
