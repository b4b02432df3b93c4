"""Hashed character n-grams: an encoder without a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from tqdm import tqdm

from mezzotint.traces.encoders.embeddings import BLOCK, Vectors


@dataclass(frozen=True, slots=True)
class HashedNgrams:
    """Signed counts of hashed character 3- to 5-grams inside words, as a vector of length 1.

    It needs no model and encodes about 15,000 prompts a second. It sees shared spelling, not shared meaning.
    Source: feature hashing, Weinberger et al. 2009, as scikit-learn's HashingVectorizer does it.

    Args:
        dim: number of buckets.
    """

    dim: Annotated[int, Ge(1), Le(65_536)] = 512

    @property
    def name(self) -> str:
        return f"ngram-{self.dim}-v1"

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        from sklearn.feature_extraction.text import HashingVectorizer  # a slow import, not always needed

        vectorizer = HashingVectorizer(
            analyzer="char_wb", ngram_range=(3, 5), lowercase=True, n_features=self.dim, dtype=np.float32
        )
        vectors = np.zeros((len(prompts), self.dim), np.float32)
        for start in tqdm(range(0, len(prompts), BLOCK), "encode", disable=not progress, unit="block"):
            block = slice(start, start + BLOCK)
            vectors[block] = vectorizer.transform(prompts[block]).toarray()
        return vectors
