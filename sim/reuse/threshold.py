"""Where a match predictor draws its line: by what errors cost on prompts whose matches are known."""

import numpy as np
from numpy.typing import NDArray


def cheapest(scores: NDArray[np.float64], forgone: NDArray[np.float64]) -> float:
    """The threshold whose errors add the least latency; of equal ones the lowest.

    NIRVANA chooses precision and recall by the latency overhead that they leave (7.7, Figure 18): a search in vain
    costs its own time, a match that is not searched for the steps that it would have spared.

    Args:
        scores: of the decision function, (n,); what scores more than the threshold is searched for.
        forgone: what not to search for each costs, in searches, (n,); 0 where a search finds nothing.
    """
    order = np.argsort(-scores, kind="stable")
    lost = forgone[order]
    cost = np.cumsum(lost == 0) + (lost.sum() - np.cumsum(lost))
    ordered = scores[order]
    # a line can be drawn only where scores differ, and below all of them
    below = np.append(ordered[1:], ordered[-1] - 1.0)
    cost[ordered == below] = np.inf
    at = len(cost) - 1 - int(np.argmin(cost[::-1]))
    return float((ordered[at] + below[at]) / 2)
