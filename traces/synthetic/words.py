"""The words of made-up prompts, the most frequent first, and the law that says how frequent."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import count, islice, product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conf.choice import choice

WORDS = 2**16
"""A word is a number of 16 bits; the log's sample of 80,000 prompts has 62,621 different ones."""

CELLS = 2**20
FAMILIES = 120

COMMA = (5**0.5 - 1) / 2
"""Every word whose rank times this leaves a rest below the share of commas ends a phrase: evenly spread over ranks."""

PHRASES = (
    "mediums", "qualities", "subjects", "places", "actions", "garments", "styles", "lights", "colours", "modifiers",
)  # fmt: skip
"""The lists of the vocabulary that phrases are taken from."""

Words = npt.NDArray[np.uint16]


@cache
def vocabulary(comma_share: float) -> pa.Array:
    """The words in the order of their frequency, (WORDS,), `comma_share` of them with a comma.

    The first are those of conf/data/vocabulary.yaml, by the number of its entries that they stand in, which puts
    the small words of the language first; then names; then coined words.
    """
    usual = Counter(word for name in PHRASES for entry in _listed(name) for word in entry.split())
    texts = dict.fromkeys([word for word, _ in usual.most_common()])
    texts.update(dict.fromkeys(_names()))
    # twice what is needed: a coined word that is there already changes nothing
    texts.update(dict.fromkeys(islice(_coined(), WORDS + len(texts))))
    ends = (np.arange(WORDS) * COMMA) % 1 < comma_share
    return pa.array([text + "," * end for text, end in zip(texts, ends.tolist(), strict=False)])


@cache
def word_draws(skew: float, shift: float) -> Words:
    """`CELLS` words, so many of each as the Zipf-Mandelbrot law (rank + shift) ** -skew asks: any of them is a draw."""
    heights = np.cumsum((np.arange(1, WORDS + 1) + shift) ** -skew)
    found: Words = np.searchsorted(heights, (np.arange(CELLS) + 0.5) / CELLS * heights[-1]).astype(np.uint16)
    return found


def _listed(name: str) -> list[str]:
    entries: list[str] = choice("data", "vocabulary")[name].split(", ")
    return entries


def _names() -> Iterator[str]:
    yield from _listed("given_names")
    families = ["".join(parts) for parts in product(_listed("family_starts"), _listed("family_ends"))]
    # steps that have no factor in common with the number of families take each of them once
    yield from (families[index * 77 % len(families)] for index in range(FAMILIES))


def _coined() -> Iterator[str]:
    """Words of two syllables that mean nothing, no two alike."""
    syllables = ["".join(parts) for parts in product(_listed("onsets"), _listed("vowels"), ("", *_listed("codas")))]
    size = len(syllables)
    # steps that have no factor in common with the number of syllables take each of them once
    for index in count():
        yield syllables[index * 2311 % size] + syllables[(index * 5003 + index // size * 1009) % size]
