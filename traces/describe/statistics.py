"""All statistics of a trace: measured once, then printed as JSON or text, or drawn as figures."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from mezzotint.figures.page import render as fill
from mezzotint.traces.describe.arrays import Indices
from mezzotint.traces.describe.arrivals import ArrivalStatistics, arrival_statistics
from mezzotint.traces.describe.loads import addons
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
from mezzotint.traces.table.validation import excerpt

MAX_LISTED = 6
"""Sizes, steps and numbers of images listed, the most frequent ones."""

MAX_NAME = 10_000
"""Characters of a name in the text, at most."""


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Statistics of a trace; None for a part whose columns or times the source lacks.

    Attributes:
        timed: True if arrivals are times; False if they are an order only, so that all time statistics are None.
        addons: see `mezzotint.traces.describe.loads.addons`.
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
        parts = {
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
            "arrivals": self.arrivals and self.arrivals.to_dict(),
            "users": self.users and self.users.to_dict(),
            "inequality": self.users and self.users.inequality(),
            "sessions": self.users.sessions() if self.users and self.timed else None,
            **{name: part and part.to_dict() for name, part in parts.items()},
            **{name: {"distinct": len(rows), "most": dict(rows[:MAX_LISTED])} for name, rows in self.mix.items()},
            **{name: use and use.to_dict() for name, use in self.popularity.items()},
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
    closest = nearest(trace, user, encoder, timed=timed, progress=bar) if texts else None
    covered = similar = None
    if closest:
        embedded = slice(closest.first, None)
        covered = coverage(closest.vectors, user[embedded])
        similar = prompt_similarity(closest.vectors, user[embedded], arrival_s[embedded] if timed else None)
    return TraceStatistics(
        trace=trace,
        timed=timed,
        arrivals=arrival_statistics(arrival_s) if timed else None,
        users=user_statistics(user, arrival_s, prompt, texts),
        repeats=repeats(prompt, user, arrival_s),
        nearest=closest,
        coverage=covered,
        prompt_similarity=similar,
        survival=survival(trace, encoder, progress=bar) if texts and timed else None,
        mix=mix(trace),
        popularity=popularity(trace),
        addons=addons(trace),
    )


def _codes(column: pa.ChunkedArray) -> tuple[Indices, list[str]]:
    """Return a number for each distinct text, (n,), -1 for null, and the texts."""
    codes, texts = pd.factorize(np.array(column.to_pylist(), object))
    return codes.astype(np.int64), list(texts)


def render(statistics: dict[str, Any]) -> str:
    """Return statistics (`TraceStatistics.to_dict()`) as aligned lines of text."""
    shown = {**statistics, **{name: excerpt(statistics[name], MAX_NAME) for name in ("name", "source")}}
    shown["notes"] = {key: excerpt(str(value), 200) for key, value in statistics["notes"].items()}
    if statistics["addons"]:
        together = {excerpt(names, MAX_NAME): share for names, share in statistics["addons"]["together"].items()}
        shown["addons"] = {**statistics["addons"], "together": together}
    page = fill("mezzotint.traces.describe", "statistics.jinja", **shown)
    lines = [line.split("\t", 1) for line in page.splitlines()]
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)
