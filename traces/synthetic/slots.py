"""The places of a prompt that words go into, and the lists that they are drawn from."""

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pyarrow as pa

from traces.synthetic import vocabulary as words

FAMILIES = 120

BY = ("by ", "", "art by ", "")
"""What comes before the name of an artist, slot by slot."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of a prompt.

    Attributes:
        texts: (k,) what may stand there.
        skew: exponent of the Zipf law by which they are drawn, in their order.
    """

    texts: pa.Array
    skew: float


@cache
def slots() -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """The slots of the sentence that a prompt begins with, in their order, and those of the list after it.

    Lists have no word in common with each
    other as far as possible, so that few prompts say the same thing twice.
    """
    things = _across("{0} {1}", words.QUALITIES, words.SUBJECTS)
    sentence = (
        Slot(pa.array(words.MEDIUMS), 0.7),
        Slot(pa.array(words.QUALITIES), 0.5),
        Slot(pa.array([*words.SUBJECTS, *_names()]), 0.5),
        Slot(_across("in a {0} {1}", words.QUALITIES, words.GARMENTS), 0.4),
        Slot(_across("{0} a {1}", words.ACTIONS, words.SUBJECTS), 0.4),
        Slot(pa.array([f"and a {thing}" for thing in things.to_pylist()]), 0.3),
        Slot(pa.array([*words.PLACES, *(f"in {name}" for name in _names()[::30])]), 0.4),
    )
    modifiers = [Slot(pa.array(words.MODIFIERS[first::12]), 0.8) for first in range(12)]
    names = _artists()
    artists = [Slot(pa.array([f"{by}{name}" for name in names[first::4]]), 0.7) for first, by in enumerate(BY)]
    looks = [
        Slot(pa.array(words.STYLES), 0.5),
        Slot(pa.array(words.LIGHTS), 0.5),
        Slot(_across("{0} and {1}", words.COLOURS, words.COLOURS), 0.3),
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

COMMON = len(words.SUBJECTS)
"""So many of its texts are common words, the others are names."""


def _across(form: str, first: tuple[str, ...], second: tuple[str, ...]) -> pa.Array:
    """Every pair put into `form`, pairs of two early words early, by the product of their ranks."""
    ranks = np.multiply.outer(np.arange(1, len(first) + 1), np.arange(1, len(second) + 1)).ravel()
    pairs = list(product(first, second))
    return pa.array([form.format(*pairs[index]) for index in np.argsort(ranks, kind="stable").tolist()])


def _artists() -> tuple[str, ...]:
    families = [start + end for start, end in product(words.FAMILY_STARTS, words.FAMILY_ENDS)]
    # steps that have no factor in common with the number of families take each of them once
    chosen = [families[index * 77 % len(families)] for index in range(FAMILIES)]
    return tuple(f"{given} {family}" for family, given in product(chosen, words.GIVEN_NAMES))


def _names() -> list[str]:
    return ["".join(parts) for parts in product(words.FAMILY_STARTS, words.FAMILY_STARTS, words.FAMILY_ENDS)]
