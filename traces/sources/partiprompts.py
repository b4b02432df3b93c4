"""PartiPrompts: 1,632 prompts by category and challenge."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mezzotint.traces.sources import Streamed, make_reading, untimed_batch, with_row_numbers
from mezzotint.traces.sources.formats.delimited import read_delimited, read_header, require_column
from mezzotint.traces.table.ingest import ORDER_ONLY, Batch, Reading
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin


@dataclass(slots=True, kw_only=True)
class PartiPrompts(Streamed):
    """PartiPrompts.tsv as published: tabs between cells, quotes are plain characters.

    The prompts are in the file's order, a second apart: an order and no times. The notes count them by category.
    Challenge and note are dropped.

    Source: Yu et al. 2022, "Scaling Autoregressive Models for Content-Rich Text-to-Image Generation";
    Apache-2.0.

    Args:
        path: the file; a leading ~ is the home folder.
    """

    path: str | Path
    name: str = "partiprompts"
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        header = read_header(path, self.limits, delimiter="\t", quote=None)
        for column in ("Prompt", "Category"):
            require_column(header, column, str(path))
        notes: dict[str, Any] = {"licence": "Apache-2.0", "file": path.name, "arrival_s": ORDER_ONLY}
        tables = read_delimited(path, self.limits, header, delimiter="\t", quote=None)
        return make_reading(self, "PartiPrompts (Yu et al. 2022)", _batches(tables, str(path), notes), notes)


def _batches(tables: Iterator[pa.Table], where: str, notes: dict[str, Any]) -> Iterator[Batch]:
    categories: Counter[str] = Counter()
    for rows, table in with_row_numbers(tables):
        categories.update(category or "none" for category in table.column("Category").to_pylist())
        yield untimed_batch({"prompt": table.column("Prompt")}, Origin(where, {"prompt": "Prompt"}, rows), int(rows[0]))
    notes["categories"] = dict(sorted(categories.items()))
