"""Long measurements kept pair by pair: a line of JSON for each finished pair, on disk before the next begins."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from tqdm import tqdm

from backends.calibrate.journal import Journal
from sim.fit.selector.pairs import Pair


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a pair's full image and of each that skipped K steps, in the metric's units; its similarity."""

    similarity: float
    full: float
    by_k: dict[int, float]


class Line(BaseModel):
    """One line of the journal: the pair (rows of the trace), under which conditions, and its scores."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")

    conditions: dict[str, Any]
    query: int
    cached: int
    similarity: float
    full: float
    by_k: dict[int, float]


def measure(
    pairs: Sequence[Pair], path: Path, conditions: dict[str, Any], begin: Callable[[], Callable[[Pair], Scores]]
) -> list[Scores]:
    """The scores of all ``pairs``, in order: those in the journal at ``path`` as they are, the others measured now.

    Args:
        conditions: all that scores depend on, in JSON's types; lines under others are passed over.
        begin: builds the models and returns what measures a pair; called only if there is a pair to measure.

    Raises BackendError where the journal cannot be read or written, or a line but the last is not one of ours.
    """
    journal = Journal(path, Line, "name another folder with -o")
    lines, _ = journal.open()
    done = {
        (line.query, line.cached): Scores(line.similarity, line.full, line.by_k)
        for line in lines
        if line.conditions == conditions
    }
    waiting = [pair for pair in pairs if (pair.query, pair.cached) not in done]
    if waiting:
        with tqdm(total=len(pairs), initial=len(pairs) - len(waiting), unit="pair", disable=None) as bar:
            score = begin()
            for pair in waiting:
                scores = done[pair.query, pair.cached] = score(pair)
                journal.add(Line(conditions=conditions, query=pair.query, cached=pair.cached, **asdict(scores)))
                bar.update()
    return [done[pair.query, pair.cached] for pair in pairs]
