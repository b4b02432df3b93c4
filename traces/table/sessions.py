"""Sessions: requests of a user with no long pause between them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SESSION_GAP_S = 1800.0
"""Pause of a user above which a new session begins."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions of n requests, and the row before each in its session.

    Attributes:
        session: (n,) the session of each row, numbered from 0 user by user; -1 where the user is unknown.
        previous: (n,) the row before in the same session, -1 if there is none.
    """

    session: Indices
    previous: Indices


def sessions(user: Indices, arrival_s: npt.NDArray[np.float64], gap_s: float = SESSION_GAP_S) -> Sessions:
    """Split the requests of each user into sessions with no pause above `gap_s`.

    Args:
        user: (n,) number of the user, -1 for unknown.
        arrival_s: (n,) seconds, never falling.
    """
    ordered = np.flatnonzero(user >= 0)
    ordered = ordered[np.argsort(user[ordered], kind="stable")]
    before = np.roll(ordered, 1)
    same_user = (user[ordered] == user[before]) & (np.arange(len(ordered)) > 0)
    follows = same_user & (arrival_s[ordered] - arrival_s[before] <= gap_s)
    session, previous = np.full((2, len(user)), -1)
    session[ordered] = np.cumsum(~follows) - 1
    previous[ordered] = np.where(follows, before, -1)
    return Sessions(session, previous)
