"""All statistics of a trace: measured once, then printed as JSON or text, or drawn as figures."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from mezzotint.traces.describe.addons import addons
from mezzotint.traces.describe.arrivals import ArrivalStatistics, arrival_statistics
from mezzotint.traces.describe.mix import Mix, Popularity, deadlines, mix, popularity
from mezzotint.traces.describe.prompts.coverage import Coverage, coverage
from mezzotint.traces.describe.prompts.nearest import Nearest, nearest
from mezzotint.traces.describe.prompts.prompt_similarity import PromptSimilarity, prompt_similarity
from mezzotint.traces.describe.prompts.repeats import Repeats, repeats
from mezzotint.traces.describe.prompts.survival import Survival, survival
from mezzotint.traces.describe.users import UserStatistics, user_statistics
from mezzotint.traces.encoders.embeddings import Encoder
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace

MAX_LISTED = 6
"""Sizes, steps and numbers of images listed, the most frequent ones."""


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Statistics of a trace; None for a part whose columns or times the source lacks.

    Attributes:
        timed: True if arrivals are times; False if they are an order only, so that all time statistics are None.
        addons: see `mezzotint.traces.describe.addons.addons`.
    """

    trace: Trace
    timed: bool
    arrivals: ArrivalStatistics | None
    users: UserStatistics | None
    repeats: Repeats | None
    nearest: Nearest | None
    coverage: Coverage | None
    prompt_similarity: PromptSimilarity | None
    survival: Survival | None
    mix: Mix
    popularity: dict[str, Popularity | None]
    addons: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Return all statistics with the trace's name, digest, span, rate and notes, JSON-able."""
        trace, count = self.trace, len(self.trace)
        span_s = trace.span_s if self.timed else 0.0
        measured = {
            "prompts": self.repeats, "nearest": self.nearest, "coverage": self.coverage,
            "likeness": self.prompt_similarity, "survival": self.survival,
        }  # fmt: skip
        return {
            "name": trace.name,
            "source": trace.source,
            "digest": trace.digest,
            "requests": count,
            "span_s": span_s if self.timed else None,
            "rate_rpm": (count - 1) / span_s * 60.0 if span_s > 0 else None,
            "arrivals": self.arrivals.to_dict() if self.arrivals else None,
            "users": self.users.to_dict() if self.users else None,
            "inequality": self.users.inequality() if self.users else None,
            "sessions": self.users.sessions() if self.users and self.timed else None,
            **{name: part.to_dict() if part else None for name, part in measured.items()},
            **{name: {"distinct": len(found), "most": dict(found[:MAX_LISTED])} for name, found in self.mix.items()},
            **{name: use.to_dict() if use else None for name, use in self.popularity.items()},
            "deadlines": deadlines(trace),
            "addons": self.addons,
            "null_columns": [name for name in SCHEMA.names if trace.table.column(name).null_count == count],
            "notes": trace.notes,
        }


def describe_trace(trace: Trace, encoder: Encoder | None = None, *, progress: bool | None = None) -> TraceStatistics:
    """Measure everything about a trace.

    Args:
        encoder: encodes the prompts; None is `HashedNgrams()`.
        progress: show a bar while prompts are encoded and compared; None shows it on a terminal only.

    Raises TraceError if the encoder's packages are missing.
    """
    encoder = encoder or HashedNgrams()
    bar = sys.stderr.isatty() if progress is None else progress
    timed = trace.notes.get("arrival_s") != ORDER_ONLY
    arrival_s = trace.arrival_s
    user, _ = _codes(trace.table.column("user_id"))
    prompt, texts = _codes(trace.prompts())
    found = nearest(trace, user, encoder, timed=timed, progress=bar) if texts else None
    looked = slice(found.first if found else 0, None)
    return TraceStatistics(
        trace=trace,
        timed=timed,
        arrivals=arrival_statistics(arrival_s) if timed else None,
        users=user_statistics(user, arrival_s, prompt, texts),
        repeats=repeats(prompt, user, arrival_s),
        nearest=found,
        coverage=coverage(found.vectors, user[looked]) if found else None,
        prompt_similarity=prompt_similarity(found.vectors, user[looked], arrival_s[looked] if timed else None)
        if found
        else None,
        survival=survival(trace, encoder, progress=bar) if texts and timed else None,
        mix=mix(trace),
        popularity=popularity(trace),
        addons=addons(trace),
    )


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return a number for each distinct text, (n,), -1 for null, and the texts."""
    codes, texts = pd.factorize(np.array(column.to_pylist(), object))
    return codes.astype(np.int64), list(texts)
