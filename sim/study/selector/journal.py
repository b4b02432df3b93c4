"""Long measurements kept pair by pair: a line of JSON for each finished pair, on disk before the next begins."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from tqdm import tqdm

from sim.errors import ConfigError
from sim.study.selector.pairs import Pair

Conditions = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a pair scored, in the metric's own units.

    ``full`` is the image of the full run, ``by_k`` each image that skipped K steps, ``similarity`` what a selector
    would be asked with for this pair.
    """

    similarity: float
    full: float
    by_k: dict[int, float]


class Line(BaseModel):
    """One line of the journal: the pair (rows of the trace), under which conditions, and its scores."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    conditions: dict[str, Any]
    query: int
    cached: int
    similarity: float
    full: float
    by_k: dict[int, float]


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal at ``path`` for measurements under ``conditions``; lines under others are passed over.

    Raises (in use):
        ConfigError: the file cannot be read or written, or a line that is not the last is not one of ours.
    """

    path: Path
    conditions: Conditions

    def read(self) -> dict[tuple[int, int], Scores]:
        """Finished pairs, (query, cached) -> scores. A last line that was half written is taken off the file."""
        if not self.path.exists():
            return {}
        try:
            content = self.path.read_bytes()
            whole, newline, half = content.rpartition(b"\n")
            if half:
                os.truncate(self.path, len(whole) + len(newline))
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read ({error.strerror}); name another folder with -o") from error
        # as JSON has it: keys are strings, tuples are lists
        ours = json.loads(json.dumps(self.conditions))
        done = {}
        for number, text in enumerate(whole.split(b"\n") if newline else [], start=1):
            try:
                line = Line.model_validate_json(text)
            except ValidationError as error:
                raise ConfigError(
                    f"{self.path}: line {number} is not a measured pair ({error.errors()[0]['msg']}); take the line "
                    "out, or name another folder with -o"
                ) from None
            if line.conditions == ours:
                done[line.query, line.cached] = Scores(line.similarity, line.full, line.by_k)
        return done

    def add(self, pair: Pair, scores: Scores) -> None:
        """Append a finished pair; when this returns it is on the disk."""
        line = Line(
            conditions=dict(self.conditions),
            query=pair.query,
            cached=pair.cached,
            similarity=scores.similarity,
            full=scores.full,
            by_k=scores.by_k,
        )
        try:
            with self.path.open("ab", buffering=0) as file:
                # NaN is no JSON, but Python and pydantic read what Python writes
                file.write(json.dumps(line.model_dump()).encode() + b"\n")
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be written ({error.strerror}); free the disk or name another folder with -o"
            ) from error


def measure(pairs: Sequence[Pair], journal: Journal, begin: Callable[[], Callable[[Pair], Scores]]) -> list[Scores]:
    """The scores of all ``pairs``, in order: those in the journal as they are, the others measured now.

    Args:
        begin: makes what measures a pair (builds the models); called only if there is a pair to measure.
    """
    done = journal.read()
    waiting = [pair for pair in pairs if (pair.query, pair.cached) not in done]
    if waiting:
        with tqdm(total=len(pairs), initial=len(pairs) - len(waiting), unit="pair", disable=None) as bar:
            score = begin()
            for pair in waiting:
                scores = score(pair)
                journal.add(pair, scores)
                done[pair.query, pair.cached] = scores
                bar.update()
    return [done[pair.query, pair.cached] for pair in pairs]
