"""Where a match predictor draws its line: by precision and recall on prompts whose matches are known."""

import numpy as np
from numpy.typing import NDArray


def balanced(scores: NDArray[np.float64], matched: NDArray[np.bool_]) -> float:
    """The threshold whose precision and recall have the largest harmonic mean; of equal ones the lowest.

    NIRVANA (7.7, Figure 18) chooses one by both and prints no rule; the harmonic mean weighs them alike and has no
    parameter.

    Args:
        scores: of the decision function, (n,); what scores more than the threshold is searched for.
        matched: whether a search finds something, (n,); some have to.
    """
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(matched[order])
    harmonic = 2 * found / (np.arange(1, len(scores) + 1) + found[-1])
    ordered = scores[order]
    # a line can be drawn only where scores differ, and below all of them
    below = np.append(ordered[1:], ordered[-1] - 1.0)
    harmonic[ordered == below] = -1.0
    at = len(harmonic) - 1 - int(np.argmax(harmonic[::-1]))
    return float((ordered[at] + below[at]) / 2)
