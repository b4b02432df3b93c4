"""Small calibrations: of real tiny models, and with a stub in place of the measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from mezzotint.backends.calibrate import Cell, Plan, grid  # noqa: E402
from mezzotint.backends.calibrate.journal import CellMeasurement  # noqa: E402
from mezzotint.backends.diffusers_ import ModelSpec  # noqa: E402

FAMILIES = ("sd15", "sdxl", "sd3", "flux", "sana")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plan() -> Callable[..., Plan]:
    """A plan of a tiny family, two sizes by two batches, with the given changes."""

    def made(family: str = "sdxl", dtype: Any = "float32", **changes: Any) -> Plan:
        settings: dict[str, Any] = {
            "gpu": "cpu",
            "model": f"{family}-tiny",
            "shapes": grid([(64, 64), (192, 192)], [1, 4]),
            "warmup": 1,
            "repeats": 2,
            "steps_timed": 2,
        }
        return Plan(ModelSpec(family, scale="tiny", dtype=dtype), **(settings | changes))

    return made


class Stub:
    """Measures cells in no time: seconds that follow from the cell alone, counted, with errors on demand.

    ``stop_after`` interrupts the call after so many; ``broken`` gives the error for a cell, or None.
    """

    def __init__(
        self, stop_after: int | None = None, broken: Callable[[Cell], BaseException | None] = lambda cell: None
    ) -> None:
        self.calls: Counter[Cell] = Counter()
        self.stop_after = stop_after
        self.broken = broken

    def __call__(self, cell: Cell) -> CellMeasurement:
        if self.stop_after is not None and self.calls.total() >= self.stop_after:
            raise KeyboardInterrupt
        error = self.broken(cell)
        if error is not None:
            raise error
        self.calls[cell] += 1
        seconds = (1 + cell.nets) * (0.01 + 1e-6 * cell.width * cell.height * cell.batch)
        if cell.operation == "lora":
            times = {name: [seconds] for name in ("read", "attach", "fuse", "unfuse", "patch")}
            return CellMeasurement(seconds=times, facts={"bytes": 1000, "rank": cell.rank})
        if cell.operation == "controlnet":
            return CellMeasurement(seconds={"load": [seconds]}, facts={"bytes": 1000})
        facts = {"bytes": 1000} if cell.operation in ("draw", "load") else {}
        values = {"seconds": [seconds, 1.1 * seconds, 1.5 * seconds], "without": [0.01]}
        return CellMeasurement(seconds=values, facts=facts)


@pytest.fixture
def stub() -> type[Stub]:
    return Stub


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of each file in ``folder``, by name."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}
