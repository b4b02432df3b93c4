"""Repeats: prompts that were sent before, word for word."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mezzotint.traces.describe.arrays import Floats, Indices


@dataclass(frozen=True, slots=True)
class Repeats:
    """The repeats among n requests with a prompt.

    Attributes:
        times: (distinct,) requests of each prompt, the most frequent first.
        age_s: (r,) seconds since the same prompt was last sent, of each repeat.
        same_user_share: share of the repeats whose prompt the same user had sent before; None without any.
        requests: n.
    """

    times: Indices
    age_s: Floats
    same_user_share: float | None
    requests: int

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics, JSON-able."""
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
    sent = pd.DataFrame({"prompt": prompt, "user": user, "arrival_s": arrival_s})[prompt >= 0]
    if sent.empty:
        return None
    repeated, known = sent.duplicated("prompt"), sent["user"] >= 0
    same = None
    if repeated.any() and known.any():
        same = float((sent.duplicated(["prompt", "user"]) & known).sum() / repeated.sum())
    return Repeats(
        times=np.asarray(sent["prompt"].value_counts(), np.int64),
        age_s=sent.groupby("prompt")["arrival_s"].diff()[repeated].to_numpy(),
        same_user_share=same,
        requests=len(sent),
    )
