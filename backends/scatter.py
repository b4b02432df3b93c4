"""Scatter of single requests about their typical seconds: measured quantiles, and draws from them."""

from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(ge=0, allow_inf_nan=False)]

BLOCK = 4096
"""Rows per block of draws."""


class Around(BaseModel):
    """Quantiles (``factors``) of requests that typically take ``seconds``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    factors: Annotated[list[Factor], Field(min_length=2)]


class Scatter(BaseModel):
    """Quantiles of a request's seconds over its typical seconds, by typical seconds.

    Factors are interpolated linearly between probabilities and between typical seconds. Outside the measured typical
    seconds the nearest factors hold.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    probabilities: list[Share]
    around: Annotated[list[Around], Field(min_length=1)]

    @model_validator(mode="after")
    def _quantiles(self) -> "Scatter":
        asked = self.probabilities
        if len(asked) < 2 or asked[0] != 0 or asked[-1] != 1 or sorted(set(asked)) != asked:
            raise ValueError("probabilities have to rise from 0 to 1")
        if any(len(one.factors) != len(asked) or sorted(one.factors) != one.factors for one in self.around):
            raise ValueError("each of `around` has as many factors as there are probabilities, and none that falls")
        known = [one.seconds for one in self.around]
        if sorted(set(known)) != known:
            raise ValueError("the seconds of `around` have to rise")
        return self

    def factors(self, typical_s: float) -> NDArray[np.float64]:
        """Return the quantiles of a request that typically takes ``typical_s``, shape (probabilities,)."""
        known = [one.seconds for one in self.around]
        at_each = np.array([one.factors for one in self.around]).T
        return np.array([np.interp(typical_s, known, measured) for measured in at_each])

    def quantile(self, typical_s: float, probability: float) -> float:
        return float(np.interp(probability, self.probabilities, self.factors(typical_s)))

    def mean(self, typical_s: float) -> float:
        return float(np.trapezoid(self.factors(typical_s), self.probabilities))


def draw_uniform(seed: int, row: int) -> float:
    """Draw a number from 0 to 1 for a row; it depends on ``seed`` and ``row`` alone."""
    which, at = divmod(row, BLOCK)
    return float(_block(seed, which)[at])


@lru_cache(maxsize=4096)
def _block(seed: int, which: int) -> NDArray[np.float64]:
    # A stream for each block, of its own key: a row's draw depends on no other row and no other use of the seed.
    return np.random.default_rng([seed, which, 0x5CA77E4]).random(BLOCK)
