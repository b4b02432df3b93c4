"""The journal of a calibration: one line of JSON for each finished cell, on disk before the next begins."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate.plan import Cell
from mezzotint.files.validation import first_error

E = TypeVar("E", bound=BaseModel)


class CellMeasurement(BaseModel):
    """Measurement of one cell; None for a quantity that the device does not report.

    Attributes:
        seconds: quantity -> its samples, in the order taken.
        facts: quantities other than times, such as the bytes of a LoRA's file.
        energy_j: joules per denoising step.
        power_w: mean watts while it stepped.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: dict[str, list[float]]
    facts: dict[str, int] = {}
    peak_bytes: int | None = None
    energy_j: float | None = None
    power_w: float | None = None
    clock_mhz: int | None = None


class JournalEntry(BaseModel):
    """One line of the journal: the outcome of one cell under given conditions, at a time in UTC.

    The next run tries ``failed`` cells again (``reason`` says why they failed), but not those that did not fit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    conditions: dict[str, str | int]
    cell: Cell
    outcome: Literal["measured", "did not fit", "failed"]
    measured: CellMeasurement | None = None
    reason: str | None = None
    at: str


@dataclass(slots=True)
class Journal(Generic[E]):
    """A journal at ``path`` of entries of one ``kind``; ``remedy`` tells users what to do about an invalid line."""

    path: Path
    kind: type[E]
    remedy: str = "start anew with --fresh"

    def open(self, fresh: bool = False) -> tuple[list[E], str | None]:
        """Make the folder, check before long work that the journal can be written, and read it; empty it if ``fresh``.

        Returns:
            The entries in order, and a note if the last line was half written (it is taken off the file).

        Raises:
            BackendError: the file cannot be read, written or mended, or a line before the last is not an entry.
        """
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("w+b" if fresh else "a+b") as stream:
                stream.seek(0)
                whole, newline, half = stream.read().rpartition(b"\n")
                if half:
                    stream.truncate(len(whole) + len(newline))
        lines = whole.split(b"\n") if newline else []
        note = f"{self.path}: ignored a last line that was half written; it is measured again" if half else None
        return [self._entry(number, line) for number, line in enumerate(lines, start=1)], note

    def add(self, entry: E) -> None:
        """Append ``entry`` and flush it to disk. Raises BackendError."""
        with self._explained(), self.path.open("ab", buffering=0) as stream:
            stream.write(entry.model_dump_json(exclude_none=True).encode() + b"\n")
            os.fsync(stream.fileno())

    def _entry(self, number: int, line: bytes) -> E:
        try:
            return self.kind.model_validate_json(line)
        except ValidationError as error:
            said = f"{self.path}: line {number}: {first_error(error)}"
            raise BackendError(f"{said}; take the line out or {self.remedy}") from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = f"{self.path}: cannot be written ({error.strerror or error})"
            raise BackendError(f"{said}; name another folder with --output") from None
