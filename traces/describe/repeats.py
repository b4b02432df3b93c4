"""Prompts that were sent before, word for word."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Repeats:
    """The repeats among n requests with a prompt.

    Attributes:
        times: (distinct,) how often each prompt was sent, the most frequent first.
        age_s: (r,) seconds since the same prompt was last sent, for each request that repeats one.
        same_user_share: share of the repeats whose prompt the same user had sent before; None without any.
        requests: n.
    """

    times: Indices
    age_s: Floats
    same_user_share: float | None
    requests: int

    def facts(self) -> dict[str, Any]:
        """The numbers, JSON-able."""
        return {
            "distinct": len(self.times),
            "repeat_share": len(self.age_s) / self.requests,
            "repeat_same_user_share": self.same_user_share,
        }


def repeats(prompt: Indices, user: Indices, arrival_s: Floats) -> Repeats | None:
    """Count repeats; None if no request has a prompt.

    Args:
        prompt, user: (n,) numbers of the prompt and of the user, -1 for none.
        arrival_s: (n,) seconds, never falling.
    """
    rows = np.flatnonzero(prompt >= 0)
    if not rows.size:
        return None
    order = rows[np.argsort(prompt[rows], kind="stable")]
    again = np.concatenate(([False], prompt[order[1:]] == prompt[order[:-1]]))
    age_s = arrival_s[order[again]] - arrival_s[order[np.flatnonzero(again) - 1]]
    same = None
    if again.any() and (user[rows] >= 0).any():
        # a repeat is by the same user if this pair of user and prompt came before
        pair = prompt[order] * (user.max() + 2) + user[order] + 1
        first_of_pair = np.zeros(len(order), np.bool_)
        first_of_pair[np.unique(pair, return_index=True)[1]] = True
        same = float((again & ~first_of_pair & (user[order] >= 0)).sum() / again.sum())
    times = np.bincount(prompt[rows])
    return Repeats(times=np.sort(times[times > 0])[::-1], age_s=age_s, same_user_share=same, requests=int(rows.size))
