"""Words of synthetic prompts, the most frequent first, and their frequency distribution."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import count, islice, product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.settings.choice import choice

WORDS = 2**16
"""Number of words, each of 16 bits; the log's sample of 80,000 prompts has 62,621 different ones."""

CELLS = 2**20
FAMILIES = 120

COMMA = (5**0.5 - 1) / 2
"""A word ends a phrase if its rank times this, modulo 1, is below the share of commas: even over ranks."""

PHRASES = (
    "mediums", "qualities", "subjects", "places", "actions", "garments", "styles", "lights", "colours", "modifiers",
)  # fmt: skip
"""Lists of the vocabulary that words are taken from."""

Words = npt.NDArray[np.uint16]


@cache
def vocabulary(comma_share: float) -> pa.Array:
    """Return the words by falling frequency, (WORDS,), `comma_share` of them with a comma.

    The first are those of conf/data/vocabulary.yaml, by the number of its entries with the word, which puts function
    words first. Then follow names and coined words.
    """
    usual = Counter(word for name in PHRASES for entry in _listed(name) for word in entry.split())
    texts = dict.fromkeys([word for word, _ in usual.most_common()])
    texts.update(dict.fromkeys(_names()))
    # more than needed, since a coined word may be there already
    texts.update(dict.fromkeys(islice(_coined(), WORDS + len(texts))))
    ends = (np.arange(WORDS) * COMMA) % 1 < comma_share
    return pa.array([text + "," * end for text, end in zip(texts, ends.tolist(), strict=False)])


@cache
def word_draws(skew: float, shift: float) -> Words:
    """Return `CELLS` words in the proportions of the Zipf-Mandelbrot law (rank + shift) ** -skew, to draw from."""
    heights = np.cumsum((np.arange(1, WORDS + 1) + shift) ** -skew)
    found: Words = np.searchsorted(heights, (np.arange(CELLS) + 0.5) / CELLS * heights[-1]).astype(np.uint16)
    return found


@cache
def words_digest() -> str:
    """Return the SHA-256 of the vocabulary that the words are taken from; comments do not count."""
    return hashlib.sha256(json.dumps(choice("data", "vocabulary"), sort_keys=True).encode()).hexdigest()


def _listed(name: str) -> list[str]:
    entries: list[str] = choice("data", "vocabulary")[name].split(", ")
    return entries


def _names() -> Iterator[str]:
    yield from _listed("given_names")
    families = ["".join(parts) for parts in product(_listed("family_starts"), _listed("family_ends"))]
    # a step without a common factor with the number of families takes each of them once
    yield from (families[index * 77 % len(families)] for index in range(FAMILIES))


def _coined() -> Iterator[str]:
    """Yield distinct words of two syllables without meaning."""
    syllables = ["".join(parts) for parts in product(_listed("onsets"), _listed("vowels"), ("", *_listed("codas")))]
    size = len(syllables)
    # steps without a common factor with the number of syllables take each pair once
    for index in count():
        yield syllables[index * 2311 % size] + syllables[(index * 5003 + index // size * 1009) % size]
