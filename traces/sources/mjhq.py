"""MJHQ-30K: 30,000 prompts of Midjourney in ten categories."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from mezzotint.settings.ranges import Count
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed, make_reading, untimed_batch, with_row_numbers
from mezzotint.traces.sources.formats.jsontext import members
from mezzotint.traces.sources.formats.records import check_records
from mezzotint.traces.table.ingest import ORDER_ONLY, Batch, Reading
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin

CATEGORIES = 10
"""Categories of the published file, 3,000 prompts each."""

Row = tuple[int, str, str]
"""The number of a row, its name and its prompt."""


class Image(TypedDict):
    """Fields of an image in the file."""

    category: str
    prompt: str


IMAGES = TypeAdapter(list[Image])


@dataclass(slots=True, kw_only=True)
class Mjhq(Streamed):
    """MJHQ-30K's meta_data.json: an object from the name of an image to its category and prompt.

    Requests have the names of the images, in the order of the file, a second apart: an order and no times. The notes
    count them by category.

    Source: Li et al. 2024, "Playground v2.5"; the choice of `requests` is that of MoDM's artifact.

    Args:
        path: the file; a leading ~ is the home folder.
        requests: keep only the last requests / 10 prompts of each category, in the order of the file, as MoDM's
            experiments do; None keeps all.

    Raises TraceError if `requests` is not a multiple of 10.
    """

    path: str | Path
    requests: Count | None = None
    name: str = "mjhq"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.requests is not None and self.requests % CATEGORIES:
            raise TraceError(f"mjhq: requests={self.requests}, expected a multiple of {CATEGORIES}, the categories")

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes: dict[str, Any] = {"file": path.name, "arrival_s": ORDER_ONLY, "requests": self.requests}
        return make_reading(self, "MJHQ-30K (Li et al. 2024), meta_data.json", self._batches(path, notes), notes)

    def _batches(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        where = str(path)
        categories: Counter[str] = Counter()
        last: dict[str, deque[Row]] = {}
        each = None if self.requests is None else self.requests // CATEGORIES
        first = 0
        for numbers, group in with_row_numbers(members(path, self.limits)):
            check_records([value for _, value in group], IMAGES, Origin(where, rows=numbers))
            rows: list[Row] = []
            for row, (name, value) in enumerate(group, first):
                categories[value["category"]] += 1
                rows.append((row, name, value["prompt"]))
                if each is not None:
                    last.setdefault(value["category"], deque(maxlen=each)).append(rows[-1])
            if each is None:
                yield _batch(rows, where, first)
            first += len(rows)
        notes["categories"] = dict(sorted(categories.items()))
        if each is not None and first:
            if len(last) != CATEGORIES or min(map(len, last.values())) < each:
                raise TraceError(
                    f"{where}: found {first:,} prompts in {len(last)} categories, expected {each:,} or more in each of"
                    f" {CATEGORIES}; ask for fewer with --requests, or name the whole file"
                )
            chosen = sorted(row for rows in last.values() for row in rows)
            notes["skipped"] = {"before the last of their category": first - len(chosen)}
            yield _batch(chosen, where, 0)


def _batch(rows: list[Row], where: str, first: int) -> Batch:
    numbers, names, prompts = zip(*rows, strict=True)
    return untimed_batch({"request_id": names, "prompt": prompts}, Origin(where, rows=np.array(numbers)), first)
