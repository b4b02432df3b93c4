"""Hashed character n-grams: an encoder without a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray
from tqdm import tqdm

from mezzotint.traces.encoders.embeddings import BLOCK, Vectors

MAX_WORDS = 1 << 18
"""Words whose n-grams are remembered; with one more, all are forgotten. They take 100 MB."""


@dataclass(frozen=True, slots=True)
class HashedNgrams:
    """Signed counts of hashed character 3- to 5-grams inside words, as a vector of length 1.

    It needs no model and encodes about 25,000 prompts a second. It sees shared spelling, not shared meaning.
    Source: feature hashing, Weinberger et al. 2009, as scikit-learn's HashingVectorizer does it.

    Args:
        dim: number of buckets.
    """

    dim: Annotated[int, Ge(1), Le(65_536)] = 512
    _words: dict[str, tuple[NDArray[np.int32], Vectors]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Buckets and signed counts of each word seen."""

    @property
    def name(self) -> str:
        return f"ngram-{self.dim}-v1"

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        from scipy.sparse import csr_array  # slow imports, not always needed
        from sklearn.preprocessing import normalize

        vectors = np.zeros((len(prompts), self.dim), np.float32)
        for start in tqdm(range(0, len(prompts), BLOCK), "encode", disable=not progress, unit="block"):
            # No n-gram spans two words, so a prompt is the sum of its words. The sum is of whole numbers: its order
            # changes no bit (test_ngram_vectors_are_those_of_scikit_learn).
            number: dict[str, int] = {}
            words = [prompt.lower().split() for prompt in prompts[start : start + BLOCK]]
            which = [number.setdefault(word, len(number)) for each in words for word in each]
            if which:
                self._learn([word for word in number if word not in self._words])
                buckets, counts = zip(*map(self._words.__getitem__, number), strict=True)
                hashed = csr_array(
                    (np.concatenate(counts), np.concatenate(buckets), _ends(buckets)), (len(number), self.dim)
                )
                said = csr_array((np.ones(len(which), np.float32), which, _ends(words)), (len(words), len(number)))
                vectors[start : start + BLOCK] = normalize(said @ hashed, copy=False).toarray()
            if len(self._words) > MAX_WORDS:
                self._words.clear()
        return vectors

    def _learn(self, words: Sequence[str]) -> None:
        """Hash the n-grams of ``words``."""
        from sklearn.feature_extraction.text import HashingVectorizer

        vectorizer = HashingVectorizer(
            analyzer="char_wb", ngram_range=(3, 5), lowercase=False, n_features=self.dim, norm=None, dtype=np.float32
        )
        if words:
            hashed = vectorizer.transform(words)
            ends = hashed.indptr.tolist()
            for word, begin, end in zip(words, ends, ends[1:], strict=False):
                self._words[word] = hashed.indices[begin:end], hashed.data[begin:end]


def _ends(parts: Sequence[Sequence[object] | NDArray[np.int32]]) -> NDArray[np.int64]:
    """Return where each of ``parts`` ends, end to end, after a 0."""
    return np.cumsum([0, *map(len, parts)])
