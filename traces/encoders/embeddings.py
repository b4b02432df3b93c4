"""Embeddings of prompts, cached on disk by content. No encoder sends text anywhere."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tqdm import tqdm

from mezzotint.traces.encoders.disk_cache import compute_once
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.trace import Trace

VERSION = 1
BLOCK = 2048
"""Requests embedded at a time by `embed`."""

MAX_LENGTH = 1.01
"""Longest vector of an encoder, whose dot products are similarities of at most 1; rounded ones are a little longer."""

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Encoder(Protocol):
    """Encoder of text into vectors whose dot product is a similarity in [-1, 1]."""

    @property
    def name(self) -> str:
        """Name of everything that changes the vectors; letters, digits, dots and dashes."""

    @property
    def dim(self) -> int:
        """Length of a vector."""

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        """Encode `prompts`, (n,), as (n, dim) float32 rows of length 1; an empty prompt is all zeros.

        `progress` shows a bar.
        """


def embed(trace: Trace, encoder: Encoder, *, progress: bool | None = None) -> Vectors:
    """Return the embeddings of a trace's prompts, from the disk cache if they were made before.

    Args:
        trace: n requests. A null prompt counts as empty.
        encoder: encodes the prompts; equal prompts are encoded once.
        progress: show a progress bar; None shows it on a terminal only.

    Returns (n, dim) float32, read-only and memory-mapped, a row per request in the trace's order.

    Raises TraceError if the encoder's packages are missing, or its vectors are not (n, dim) finite float32.
    """
    dim = encoder.dim
    facts = {"version": VERSION, "trace": trace.digest, "encoder": identity(encoder), "dim": dim}
    quiet = None if progress is None else not progress  # tqdm's own None: quiet unless standard error is a terminal
    return compute_once(
        "embeddings", facts, len(trace), {"vectors": (np.float32, (dim,))},
        lambda done: _encoded(trace.prompts(), encoder, quiet, done["vectors"]),
    )["vectors"]  # fmt: skip


def identity(encoder: Encoder) -> str:
    """Return the name of an encoder; that of a class of others comes with the class and its module's content.

    What is kept on disk for one encoder is never taken for that of another which chose the same name.
    """
    made = type(encoder)
    if made.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return encoder.name
    file = getattr(sys.modules.get(made.__module__), "__file__", None)
    content = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    return f"{encoder.name} {made.__module__}.{made.__qualname__} {content}".rstrip()


def _encoded(prompts: pa.ChunkedArray, encoder: Encoder, quiet: bool | None, done: Vectors) -> Iterator[tuple[Vectors]]:
    """Yield the vectors of the prompts after the ``done`` ones, by blocks; each distinct prompt is encoded once."""
    coded = prompts.fill_null("").dictionary_encode().unify_dictionaries()
    texts = coded.chunk(0).dictionary
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    last = np.empty(len(texts), np.int64)
    last[codes] = np.arange(len(codes))
    # a vector is kept until its prompt's last repeat; repeats are close in time, so few are kept at once
    seen, at = np.unique(codes[: len(done)], return_index=True)
    recurs = last[seen] >= len(done)
    kept = {code: done[row].copy() for code, row in zip(seen[recurs].tolist(), at[recurs].tolist(), strict=True)}
    with tqdm(
        total=len(codes), initial=len(done), desc=f"embed with {encoder.name}", unit="prompt", disable=quiet
    ) as bar:
        for start in range(len(done), len(codes), BLOCK):
            stop = min(start + BLOCK, len(codes))
            distinct, place = np.unique(codes[start:stop], return_inverse=True)
            known = np.array([code in kept for code in distinct.tolist()])
            vectors = np.empty((len(distinct), encoder.dim), np.float32)
            if known.any():
                vectors[known] = [kept[code] for code in distinct[known].tolist()]
            if not known.all():
                given = encoder.encode(texts.take(pa.array(distinct[~known])).to_pylist(), False)
                expected = (int((~known).sum()), encoder.dim)
                is_array = isinstance(given, np.ndarray)
                if not is_array or given.dtype != np.float32 or given.shape != expected:
                    found = f"{given.dtype} {given.shape}" if is_array else type(given).__name__
                    found = f"encoder {encoder.name}: gave {found}"
                    raise TraceError(f"{found}, expected float32 {expected}; correct the encoder")
                if not np.isfinite(given).all():
                    raise TraceError(f"encoder {encoder.name}: gave a vector that is not finite; correct the encoder")
                lengths = np.linalg.norm(given, axis=1)
                if (lengths > MAX_LENGTH).any():
                    who = f"encoder {encoder.name} ({type(encoder).__module__}.{type(encoder).__qualname__})"
                    found = f"gave a vector of length {lengths.max():.6g}"
                    raise TraceError(f"{who}: {found}, expected 1; scale what it returns")
                vectors[~known] = given
            yield (vectors[place],)
            bar.update(stop - start)
            for code, vector in zip(distinct.tolist(), vectors, strict=True):
                if last[code] >= stop:
                    kept[code] = vector.copy()
                else:
                    kept.pop(code, None)
