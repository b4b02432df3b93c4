"""Journal of a calibration: a line of JSON for each finished pair, on disk before the next pair begins."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from tqdm import tqdm

from mezzotint.backends.calibrate.journal import Journal
from mezzotint.sim.fit.selector.pairs import Pair


class Scores(BaseModel):
    """A pair's similarity, and the scores of its full image and of each image that skipped K steps."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")

    similarity: float
    full: float
    by_k: dict[int, float]


class JournalLine(Scores):
    """One line of the journal: a pair (rows of the trace), the conditions of the measurement, and the scores."""

    conditions: dict[str, Any]
    query: int
    cached: int


def measure(
    pairs: Sequence[Pair], path: Path, conditions: dict[str, Any], begin: Callable[[], Callable[[Pair], Scores]]
) -> list[Scores]:
    """Return the scores of all ``pairs`` in order, measuring only those that the journal at ``path`` lacks.

    Args:
        conditions: everything that scores depend on, in JSON's types. Lines with other conditions are ignored.
        begin: builds the models and returns the function that scores a pair; called only if a pair is missing.

    Raises:
        BackendError: the journal cannot be read or written, or a line other than the last is malformed.
    """
    journal = Journal(path, JournalLine, "name another folder with -o")
    lines, _ = journal.open()
    done: dict[tuple[int, int], Scores] = {
        (line.query, line.cached): line for line in lines if line.conditions == conditions
    }
    waiting = [pair for pair in pairs if (pair.query, pair.cached) not in done]
    if waiting:
        with tqdm(total=len(pairs), initial=len(pairs) - len(waiting), unit="pair", disable=None) as bar:
            score = begin()
            for pair in waiting:
                scores = score(pair).model_dump()
                line = JournalLine(conditions=conditions, query=pair.query, cached=pair.cached, **scores)
                done[pair.query, pair.cached] = line
                journal.add(line)
                bar.update()
    return [done[pair.query, pair.cached] for pair in pairs]
