"""A data set of Hugging Face as a table of requests: by its id on the hub, or a local folder of one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from mezzotint.extras import remedy
from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.clock import ClockName
from mezzotint.traces.formats.columnar import plain_text
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.table import Table
from mezzotint.traces.table.ingest import Reading
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import excerpt


@dataclass(slots=True, kw_only=True)
class HuggingFace(Streamed):
    """A data set of Hugging Face: its id on the hub, such as nateraw/parti-prompts, or a local folder.

    A folder is one that `Dataset.save_to_disk` wrote, or one of Parquet, CSV or JSON files. Columns go by their usual
    names, as in any table; columns of images, audio and nested values are left out. Needs `datasets` (the `hub` extra),
    which runs no code of a data set.

    Args:
        path: the id or the folder.
        config: name of the subset, where the data set has several.
        split: the split to take; needed where there are several and none is called train.
        columns: a column of a trace (or size, fps, video_s) = the data set's name of that column, or nothing for none;
            may be repeated.
        leave_out: a column that is not wanted, so that it is not asked about; may be repeated.
        units: the unit of a column of times: ns, us, ms, s, min, h or d; may be repeated.
        arrival: how arrivals are written, as for `table`.

    Raises TraceError if `datasets` is missing or cannot load the data set.
    """

    path: str | Path
    config: str | None = None
    split: str | None = None
    columns: Annotated[dict[str, str], typer.Option("--map", metavar="MEANING=COLUMN")] = field(default_factory=dict)
    leave_out: Annotated[list[str], typer.Option("--leave-out", metavar="COLUMN")] = field(default_factory=list)
    units: Annotated[dict[str, str], typer.Option("--unit", metavar="COLUMN=UNIT")] = field(default_factory=dict)
    arrival: ClockName = "auto"
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        where = str(Path(self.path).expanduser())
        split, data = self._loaded(where)
        plain = [name for name, feature in data.features.items() if _is_plain(feature)]
        others = [name for name in data.column_names if name not in plain]
        if not plain:
            raise TraceError(f"{where}: found the columns {excerpt(', '.join(others))}, none of single values")
        table = plain_text(data.select_columns(plain).with_format("arrow")[:])
        self.limits.check(table.nbytes, table.nbytes, where)
        source = Table(
            path=where, columns=self.columns, leave_out=self.leave_out, units=self.units, arrival=self.arrival,
            name=self.name, limits=self.limits,
        )  # fmt: skip
        reading = source.reading(table, f"data set of Hugging Face, split {split}")
        reading.source = f"Hugging Face, {Path(where).name}"
        if others:
            reading.notes[SAID].append(f"left out, holding no single values: {', '.join(others)}")
        return reading

    def _loaded(self, where: str) -> tuple[str, Any]:
        """Return the name of the split and the data set."""
        try:
            import datasets
        except ImportError:
            raise TraceError(f"{where}: reading it needs datasets; {remedy('hub')}") from None
        is_saved = any((Path(where) / name).exists() for name in ("dataset_dict.json", "state.json"))
        try:
            loaded = datasets.load_from_disk(where) if is_saved else datasets.load_dataset(where, self.config)
        except Exception as error:  # network layers raise many types; the remedy is the same
            raise TraceError(
                f"{where}: cannot be loaded as a data set ({type(error).__name__}: {excerpt(str(error))}); where the"
                " network can be reached, download it, and name the folder"
            ) from error
        if isinstance(loaded, datasets.Dataset):
            return self.split or str(loaded.split or "of the folder"), loaded
        split = self.split or next(
            iter(loaded) if len(loaded) == 1 else (name for name in loaded if name == "train"), ""
        )
        if split not in loaded:
            raise TraceError(f"{where}: found the splits {', '.join(loaded)}; choose one with --split")
        return split, loaded[split]


def _is_plain(feature: Any) -> bool:
    """Return True for a column of single values, or of lists of them."""
    inner = getattr(feature, "feature", feature)
    return hasattr(inner, "dtype") and type(inner).__name__ in ("Value", "ClassLabel")
