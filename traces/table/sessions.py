"""Sessions: the requests of a user with no long pause between them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SESSION_GAP_S = 1800.0
"""A longer pause of a user begins a new session."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Who follows whom in a trace of n requests, m of them with a known user.

    Attributes:
        session: (n,) the session of each row, numbered from 0 user by user; -1 where the user is unknown.
        previous: (n,) the same session's row before this one, -1 if there is none.
        own_previous: (n,) the same user's row before this one, whenever it was, -1 if there is none.
        position: (n,) how many rows of the session came before this one.
        rank: (n,) the row's place in `ordered`, -1 where the user is unknown.
        ordered: (m,) the rows, by user and then by time: a session's rows are neighbours.
    """

    session: Indices
    previous: Indices
    own_previous: Indices
    position: Indices
    rank: Indices
    ordered: Indices

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return int(self.session.max(initial=-1)) + 1


def sessions(user: Indices, arrival_s: npt.NDArray[np.float64], gap_s: float = SESSION_GAP_S) -> Sessions:
    """Cut the requests of each user into sessions.

    Args:
        user: (n,) number of the user of each row, -1 for unknown.
        arrival_s: (n,) seconds, never falling.
        gap_s: the longest pause inside a session, seconds.
    """
    count = len(user)
    ordered = np.argsort(user, kind="stable")
    ordered = ordered[np.searchsorted(user[ordered], 0) :]
    same_user = np.zeros(len(ordered), np.bool_)
    same_user[1:] = user[ordered[1:]] == user[ordered[:-1]]
    follows = same_user.copy()
    follows[1:] &= np.diff(arrival_s[ordered]) <= gap_s
    before = np.concatenate((ordered[:1], ordered[:-1]))
    ranks = np.arange(len(ordered))
    found = {name: np.full(count, -1) for name in ("session", "previous", "own_previous", "position", "rank")}
    found["session"][ordered] = np.cumsum(~follows) - 1
    found["previous"][ordered] = np.where(follows, before, -1)
    found["own_previous"][ordered] = np.where(same_user, before, -1)
    found["position"][ordered] = ranks - np.maximum.accumulate(np.where(follows, 0, ranks))
    found["rank"][ordered] = ranks
    return Sessions(**found, ordered=ordered)
