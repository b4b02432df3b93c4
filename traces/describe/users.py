"""Users of a trace: how unequal they are, and their sessions."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mezzotint.traces.describe.arrays import Flags, Floats, Indices, mean, quantiles
from mezzotint.traces.table.sessions import SESSION_GAP_S, sessions

PAIRS = 50_000
"""Requests of sessions compared with the prompt before them, at most; a random sample of more."""

RANKS = 100
"""Most active users that the slope of log requests over log rank is fitted to, at most."""


@dataclass(frozen=True, slots=True)
class UserStatistics:
    """Users and sessions of a trace of n requests.

    Attributes:
        requests: (users,) requests of each user, the most active first.
        unknown_share: share of the requests without a user.
        length: (sessions,) requests of each session.
        gap_s: seconds between one request of a session and the next.
        same, edited: (at most `PAIRS`,) True if a session's request repeats the prompt before it, or shares at least
            half the words of both with it.
    """

    requests: Indices
    unknown_share: float
    length: Indices
    gap_s: Floats
    same: Flags
    edited: Flags

    @property
    def gini(self) -> float:
        """Gini coefficient of requests over users: 0 if all send equally many, near 1 if one sends them all."""
        rising, count = self.requests[::-1], len(self.requests)
        return float(((2 * np.arange(1, count + 1) - count - 1) * rising).sum() / (count * rising.sum()))

    def inequality(self) -> dict[str, Any]:
        """Return the inequality of users, JSON-able."""
        top, slope = self.requests[:RANKS], None
        if len(top) >= 10 and top[0] != top[-1]:
            slope = float(np.polyfit(np.log(np.arange(1, len(top) + 1)), np.log(top), 1)[0])
        return {
            "top_percent_share": float(self.requests[: max(1, len(self.requests) // 100)].sum() / self.requests.sum()),
            "gini": self.gini,
            "zipf_slope": slope,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics of users, JSON-able."""
        return {
            "count": len(self.requests),
            "requests_mean": float(self.requests.mean()),
            "requests_max": int(self.requests[0]),
            "top_ten_share": float(self.requests[:10].sum() / self.requests.sum()),
            "unknown_share": self.unknown_share,
        }

    def sessions(self) -> dict[str, Any]:
        """Return the statistics of sessions, JSON-able."""
        return {
            "count": len(self.length),
            "requests_mean": float(self.length.mean()),
            "requests_quantiles": quantiles(self.length, (50, 75, 90, 95, 99)),
            "gap_s": SESSION_GAP_S,
            "gap_mean_s": mean(self.gap_s),
            "gap_quantiles_s": quantiles(self.gap_s, (10, 25, 50, 75, 90)),
            "repeat_share": mean(self.same),
            "edit_share": mean(self.edited & ~self.same),
        }


def user_statistics(user: Indices, arrival_s: Floats, prompt: Indices, texts: list[str]) -> UserStatistics | None:
    """Measure users and sessions; None if no user is known.

    Args:
        user, prompt: (n,) numbers of the user and of the row's prompt in `texts`, -1 for none.
        arrival_s: (n,) seconds.
    """
    known = user >= 0
    if not known.any():
        return None
    visits = sessions(user, arrival_s)
    follows = np.flatnonzero(visits.previous >= 0)
    before = visits.previous[follows]
    both = (prompt[follows] >= 0) & (prompt[before] >= 0)
    pairs = np.column_stack((prompt[follows[both]], prompt[before[both]]))
    if len(pairs) > PAIRS:
        pairs = pairs[np.random.default_rng(0).choice(len(pairs), PAIRS, replace=False)]
    requests = np.bincount(user[known])
    return UserStatistics(
        requests=np.sort(requests[requests > 0])[::-1],
        unknown_share=1.0 - float(known.mean()),
        length=np.bincount(visits.session[known]),
        gap_s=arrival_s[follows] - arrival_s[before],
        same=pairs[:, 0] == pairs[:, 1],
        edited=_half_shared(pairs, texts),
    )


def _half_shared(pairs: Indices, texts: list[str]) -> Flags:
    words = {at: frozenset(texts[at].lower().replace(",", " ").split()) for at in np.unique(pairs).tolist()}
    shared = [len(words[a] & words[b]) * 2 >= max(len(words[a] | words[b]), 1) for a, b in pairs.tolist()]
    return np.array(shared, np.bool_)
