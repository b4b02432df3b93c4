"""Requests of a few shapes, drawn by weight: the standard mixes of the engines' benchmarks."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from mezzotint.settings.ranges import Seed
from mezzotint.traces.error import TraceError
from mezzotint.traces.synthetic.distributions import split_weights
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace, make

WHERE = "mix"


@dataclass(slots=True, kw_only=True)
class Mix:
    """Requests without prompts, of sizes and steps drawn independently; an order and no times.

    The draws are those of Python's `random.Random(seed).choices`, as in the clients of vLLM-Omni's and llm-d's
    benchmarks, so that the same seed gives the requests that were really sent.

    Args:
        shapes: [width, height, steps, weight] rows, sizes in pixels; of videos [width, height, frames, steps, weight].
        requests: number of rows.
        drawn: ``weight``, or ``turn``: the shapes in turn, whatever their weights.
        seed: seed of Python's `random`.
        name: name of the trace in reports.

    Raises TraceError if `shapes` have another form, or a size is above 65,536 pixels.
    """

    shapes: Sequence[Sequence[float]]
    requests: Annotated[int, Ge(1), Le(10**7)] = 1000
    drawn: Literal["weight", "turn"] = "weight"
    seed: Seed = 42
    name: str = "mix"

    def __post_init__(self) -> None:
        if (split_weights(self.shapes, "shapes", (3, 4), WHERE)[0] > 65_536).any():
            raise TraceError(f"{WHERE}: shapes={self.shapes!r}, expected sizes of at most 65,536 pixels")

    def load(self, rng: np.random.Generator) -> Trace:
        """Draw the requests; nothing is drawn from `rng`."""
        weights = [float(row[-1]) for row in self.shapes]
        if self.drawn == "turn":
            which, order = [row % len(weights) for row in range(self.requests)], "one after another"
        else:
            which = random.Random(self.seed).choices(range(len(weights)), weights, k=self.requests)
            order = f"drawn by weight from Python's random, seed {self.seed}"
        drawn = split_weights(self.shapes, "shapes", (3, 4), WHERE)[0][which]
        return make(
            {
                "request_id": [f"r{row}" for row in range(self.requests)],
                "arrival_s": np.arange(self.requests, dtype=np.float64),
                "width": drawn[:, 0],
                "height": drawn[:, 1],
                "frames": drawn[:, 2] if drawn.shape[1] == 4 else None,
                "steps": drawn[:, -1],
                "images": np.ones(self.requests, np.int64),
                "seed": np.arange(self.requests),
            },
            name=self.name,
            source=f"a mix of {len(weights)} shapes, {order}",
            notes={"synthetic": True, "arrival_s": ORDER_ONLY},
            where=WHERE,
        )
