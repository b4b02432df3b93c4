"""Users and their sessions, which are requests at short gaps."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from mezzotint.traces.synthetic.ancestry import Order
from mezzotint.traces.synthetic.distributions import Floats, Indices, choices, inherited_from, lognormal
from mezzotint.traces.synthetic.session_rate import SessionRate
from mezzotint.traces.table.sessions import SESSION_GAP_S

WARM_UP_S = 4 * 3600.0
"""Time before the trace from which sessions are drawn, so that the trace starts in steady traffic."""

ROUNDS = 20
"""Overlapping sessions that can wait one after another, at most."""

MAX_DELAY_S = 2 * 3600.0
"""Longest wait of a session for the same user's session before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSessions:
    """Model of users and their sessions.

    Sessions begin by `clock`, and users have a log-normal activity that does not depend on their number. So twice the
    rate with twice the users means twice as many active users, none of them more active. A user's session waits for the
    one before it to end, so that sessions of heavy users do not merge. They do merge if there are too few users for the
    rate.

    Args:
        clock: model of the starts of sessions.
        users: number of possible users.
        user_sigma: width of the log-normal distribution of sessions over users.
        session_mean, session_sigma, session_most: requests per session: mean, log-normal width, maximum.
        gap_least_s, gap_median_s, gap_sigma: seconds between requests of a session: a minimum (an image has to be made
            and looked at) plus a log-normal time; the median is that of the sum.
    """

    clock: SessionRate
    users: int
    user_sigma: float
    session_mean: float
    session_sigma: float
    session_most: int
    gap_least_s: float
    gap_median_s: float
    gap_sigma: float

    def draw(
        self, requests: int, history: int, rate_rpm: float, rng: np.random.Generator
    ) -> tuple[Floats, Indices, Indices]:
        """Draw arrivals in seconds, sorted, users, and the planned session of each request; (n,) each.

        `requests` of them come at 0 or later, and about `history` before.
        """
        rate_hz = rate_rpm / 60.0 / self.session_mean
        before_s = -history * 60.0 / rate_rpm
        warm_up_s = min(WARM_UP_S, max(10 * requests, 10_000) * 60.0 / rate_rpm) - before_s
        span_s = 1.2 * requests * 60.0 / rate_rpm + 3600.0
        while True:
            begin_s = self.clock.starts(rate_hz, -warm_up_s, span_s, rng)
            owner = choices(self._activity(), len(begin_s), rng)
            length = self._lengths(len(begin_s), rng)
            session = np.repeat(np.arange(len(begin_s)), length)
            first = np.cumsum(length) - length
            since_s = np.cumsum(self._gaps(len(session), rng))
            since_s -= np.repeat(since_s[first], length)
            lasts_s = since_s[first + length - 1] if len(first) else since_s
            time_s = _delayed(begin_s, lasts_s, owner, rng)[session] + since_s
            rows = np.flatnonzero((time_s >= before_s) & (time_s <= span_s))
            rows = rows[np.argsort(time_s[rows], kind="stable")]
            past = int(np.searchsorted(time_s[rows], 0.0))
            if len(rows) - past >= requests:
                rows = rows[: past + requests]
                return time_s[rows], owner[session[rows]], session[rows]
            span_s *= 1.5

    def _activity(self) -> Floats:
        normal = NormalDist()
        quantiles = np.array([normal.inv_cdf((user + 0.5) / self.users) for user in range(self.users)])
        activity: Floats = np.exp(self.user_sigma * quantiles[::-1])
        return activity

    def _lengths(self, count: int, rng: np.random.Generator) -> Indices:
        length = np.ceil(np.exp(self._log_median() + self.session_sigma * rng.standard_normal(count)))
        return np.clip(length, 1, self.session_most).astype(np.int64)

    def _log_median(self) -> float:
        """Return the logarithm of the median for which the mean, rounded up and cut, is `session_mean`."""
        ends = np.log(np.arange(1, self.session_most))
        low, high = -50.0, 50.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            # the mean is the sum over k of the chance of more than k
            with np.errstate(over="ignore"):  # an overflow means a chance of 0 or 1
                longer = _share_below((middle - ends) / self.session_sigma) if self.session_sigma else middle > ends
            low, high = (middle, high) if 1 + longer.sum() < self.session_mean else (low, middle)
        return high

    def _gaps(self, count: int, rng: np.random.Generator) -> Floats:
        varies = lognormal(self.gap_median_s - self.gap_least_s, self.gap_sigma, count, rng)
        return np.minimum(self.gap_least_s + varies, SESSION_GAP_S)


def _share_below(values: Floats) -> Floats:
    """Return the standard normal distribution function; scipy.special takes a fifth of a short run to import."""
    return np.array([0.5 * math.erfc(-each / math.sqrt(2.0)) for each in values.tolist()])


def channels(own: Order, count: int, stay: float, rng: np.random.Generator) -> Indices:
    """Draw the channel of each of n rows, (n,), 0 to `count` - 1: with chance `stay` that of the user's row before."""
    drawn = rng.integers(0, count, len(own.rank))
    moves = (own.before == 0) | (rng.random(len(own.rank)) >= stay)
    return drawn[inherited_from(moves, own.earlier(np.arange(len(own.rank)), np.minimum(own.before, 1)))]


def _delayed(begin_s: Floats, lasts_s: Floats, owner: Indices, rng: np.random.Generator) -> Floats:
    """Return starts of sessions, (n,) seconds, delayed so that none overlaps the same user's session before it."""
    order = np.lexsort((begin_s, owner))
    planned_s = begin_s[order]
    busy_s = lasts_s[order] + SESSION_GAP_S + rng.exponential(SESSION_GAP_S, len(order))
    follows = np.flatnonzero(owner[order[1:]] == owner[order[:-1]]) + 1
    moved_s = planned_s.copy()
    for _ in range(ROUNDS):
        free_s = np.minimum(moved_s[follows - 1] + busy_s[follows - 1], planned_s[follows] + MAX_DELAY_S)
        late = free_s > moved_s[follows]
        if not late.any():
            break
        moved_s[follows[late]] = free_s[late]
    result = np.empty_like(moved_s)
    result[order] = moved_s
    return result
