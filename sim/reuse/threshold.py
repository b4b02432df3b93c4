"""Where a match predictor draws its line: by what errors cost on prompts whose matches are known."""

import numpy as np
from numpy.typing import NDArray


def cheapest(scores: NDArray[np.float64], matched: NDArray[np.bool_], forgone: float) -> float:
    """The threshold whose errors add the least latency; of equal ones the lowest.

    NIRVANA chooses precision and recall by the latency overhead that they leave (7.7, Figure 18): a search in vain
    costs its own time, a match that is not searched for the steps that it would have spared.

    Args:
        scores: of the decision function, (n,); what scores more than the threshold is searched for.
        matched: whether a search finds something, (n,).
        forgone: what a match that is not searched for costs, in searches in vain.
    """
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(matched[order])
    cost = np.arange(1, len(scores) + 1) - found + forgone * (found[-1] - found)
    ordered = scores[order]
    # a line can be drawn only where scores differ, and below all of them
    below = np.append(ordered[1:], ordered[-1] - 1.0)
    cost[ordered == below] = np.inf
    at = len(cost) - 1 - int(np.argmin(cost[::-1]))
    return float((ordered[at] + below[at]) / 2)
