"""All of a trace's facts: measured once, then told as numbers, as text or as figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.describe.likeness import Likeness, likeness
from traces.describe.nearest import Nearest, nearest
from traces.describe.people import People, people
from traces.describe.popularity import Popularity, popularity
from traces.describe.rhythm import Rhythm, rhythm
from traces.describe.survival import Survival, survival
from traces.embeddings import Encoder, HashedNgrams
from traces.schema import SCHEMA, Trace

SHOWN = 6
"""How many sizes and step counts are listed."""


@dataclass(frozen=True, slots=True)
class Character:
    """What was measured of a trace; a part whose columns the source lacks is None.

    Attributes:
        trace: the trace.
        rhythm: its arrivals.
        people: its users and their sessions.
        repeats: distinct prompts, share of requests that repeat one, share of those by the same user.
        nearest: the most similar earlier prompts.
        likeness: prompts within and between sessions and users.
        survival: popular clusters over days.
        popularity: base models and add-ons, by column.
    """

    trace: Trace
    rhythm: Rhythm
    people: People | None
    repeats: dict[str, Any] | None
    nearest: Nearest | None
    likeness: Likeness | None
    survival: Survival | None
    popularity: dict[str, Popularity | None]

    def facts(self) -> dict[str, Any]:
        """The numbers, JSON-able; see `describe`."""
        trace, count = self.trace, len(self.trace)
        users, visits = self.people.facts() if self.people else (None, None)
        return {
            "name": trace.name,
            "source": trace.source,
            "digest": trace.digest,
            "requests": count,
            "span_s": trace.span_s,
            "rate_rpm": (count - 1) / trace.span_s * 60.0 if trace.span_s > 0 else None,
            "arrivals": self.rhythm.facts(),
            "users": users,
            "inequality": self.people.inequality() if self.people else None,
            "sessions": visits,
            "prompts": self.repeats,
            "nearest": self.nearest.facts() if self.nearest else None,
            "likeness": self.likeness.facts() if self.likeness else None,
            "survival": self.survival.facts() if self.survival else None,
            "sizes": _sizes(trace),
            "steps": _shares(trace.table.column("steps").drop_null().cast(pa.string()), count),
            "images": _shares(trace.table.column("images").drop_null().cast(pa.string()), count),
            **{name: use.facts() if use else None for name, use in self.popularity.items()},
            "null_columns": [name for name in SCHEMA.names if trace.table.column(name).null_count == count],
            "notes": trace.notes,
        }


def characterise(trace: Trace, encoder: Encoder | None = None, *, progress: bool | None = None) -> Character:
    """Measure everything about a trace.

    Args:
        trace: the trace.
        encoder: what makes prompts comparable; None is `HashedNgrams()`.
        progress: show a bar while prompts are encoded; None shows it on a terminal only.

    Raises:
        TraceError: the encoder's packages are missing, or embeddings on disk are damaged.
    """
    encoder = encoder or HashedNgrams()
    user, _ = _codes(trace.table.column("user_id"))
    prompt, texts = _codes(trace.prompts())
    found = nearest(trace, user, encoder, progress=progress) if texts else None
    alike = None
    if found is not None:
        alike = likeness(found.vectors, user[found.first :], trace.arrival_s[found.first :])
    return Character(
        trace=trace,
        rhythm=rhythm(trace.arrival_s),
        people=people(user, trace.arrival_s, prompt, texts),
        repeats=_repeats(prompt, user),
        nearest=found,
        likeness=alike,
        survival=survival(trace, encoder) if texts else None,
        popularity=popularity(trace),
    )


def describe(trace: Trace, encoder: Encoder | None = None, *, progress: bool | None = None) -> dict[str, Any]:
    """Facts about a trace, JSON-able; a fact whose column the source lacks is None.

    Returns:
        name, source, digest; requests; span_s; rate_rpm (requests per minute over the span); arrivals
        (`Rhythm`); users, inequality and sessions (`People`: a user's requests with pauses up to
        `SESSION_GAP_S`); prompts {distinct, repeat_share, repeat_same_user_share} (a repeat is a prompt that
        came before); nearest (`Nearest`); likeness (`Likeness`); survival (`Survival`); sizes, steps and images,
        the most frequent first, with their shares; base_model, controlnets and loras (`Popularity`);
        null_columns; notes.

    Raises:
        TraceError: as `characterise`.
    """
    return characterise(trace, encoder, progress=progress).facts()


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """A number for each distinct text, (n,), -1 for null; and the texts."""
    coded = column.dictionary_encode().unify_dictionaries()
    if not coded.num_chunks:
        return np.empty(0, np.int64), []
    codes = [chunk.indices.fill_null(-1).to_numpy() for chunk in coded.chunks]
    return np.concatenate(codes).astype(np.int64), coded.chunk(0).dictionary.to_pylist()


def _repeats(prompts: npt.NDArray[np.int64], users: npt.NDArray[np.int64]) -> dict[str, Any] | None:
    rows = np.flatnonzero(prompts >= 0)
    if not rows.size:
        return None
    distinct, first = np.unique(prompts[rows], return_index=True)
    repeats = rows.size - distinct.size
    same = None
    if repeats and (users[rows] >= 0).any():
        # a repeat is by the same user if this pair of user and prompt came before
        again = np.ones(rows.size, np.bool_)
        again[first] = False
        pairs = prompts[rows] * (users.max() + 2) + users[rows] + 1
        _, first_pair = np.unique(pairs, return_index=True)
        by_same = again & (users[rows] >= 0)
        by_same[first_pair] = False
        same = float(by_same.sum() / repeats)
    return {"distinct": int(distinct.size), "repeat_share": repeats / rows.size, "repeat_same_user_share": same}


def _sizes(trace: Trace) -> dict[str, Any]:
    width, height = trace.table.column("width"), trace.table.column("height")
    sizes = pc.binary_join_element_wise(width.cast(pa.string()), height.cast(pa.string()), "x")
    return _shares(sizes.drop_null(), len(trace))


def _shares(values: pa.ChunkedArray, count: int) -> dict[str, Any]:
    tally = sorted(
        ((entry["values"], entry["counts"]) for entry in pc.value_counts(values).to_pylist()),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return {"distinct": len(tally), "most": {value: number / count for value, number in tally[:SHOWN]}}
