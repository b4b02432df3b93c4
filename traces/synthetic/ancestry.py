"""Ancestry of prompts: the earlier prompt that a request continues, the user's own or another user's."""

from dataclasses import dataclass

import numpy as np

from mezzotint.traces.synthetic.distributions import Flags, Floats, Indices


@dataclass(frozen=True, slots=True)
class Order:
    """Order of n rows by group (user or channel), and in time within it.

    Attributes:
        ordered: (n,) the rows, group by group.
        rank: (n,) each row's place in `ordered`.
        before: (n,) number of earlier rows of the same group.
    """

    ordered: Indices
    rank: Indices
    before: Indices

    def earlier(self, rows: Indices, lag: Indices) -> Indices:
        """Return the rows `lag` places before these in their groups."""
        found: Indices = self.ordered[self.rank[rows] - lag]
        return found


def order_by(group: Indices) -> Order:
    """Return the order of n rows by `group`, (n,) numbers."""
    ordered = np.argsort(group, kind="stable")
    rank = np.empty(len(group), np.int64)
    rank[ordered] = np.arange(len(group))
    return Order(ordered, rank, rank - np.searchsorted(group[ordered], group))


NEAR_LAG = 1.0
"""Exponent of the lag of copied words in a channel: assumed, Zipf's law."""


def draw_lags(max_lag: Indices, exponent: float, rng: np.random.Generator) -> Indices:
    """Draw lags from 1 to `max_lag` (any shape; at least 1): P(lag >= k) falls as k ** -exponent.

    With an exponent of 0 the lag is log-uniform, of weight 1 / lag.
    """
    if exponent:
        end = (max_lag + 1.0) ** -exponent
        drawn = (end + rng.random(max_lag.shape) * (1.0 - end)) ** (-1.0 / exponent)
    else:
        drawn = (max_lag + 1.0) ** rng.random(max_lag.shape)
    lag: Indices = np.minimum(np.floor(drawn), max_lag).astype(np.int64)
    return lag


def _subject_length(stays: Flags, own: Order) -> Indices:
    """Return the number of a user's prompts in a row on the same subject before each of n rows, (n,)."""
    place = np.arange(len(own.rank))
    begun = np.maximum.accumulate(np.where(stays[own.ordered], 0, place))
    return (place - begun)[own.rank]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestry:
    """Model of the prompts that a prompt derives from; any earlier prompt can be its parent.

    A user stays on the current subject, or after a pause leaves it, for any of the earlier prompts or a new subject.
    The lag to the parent is log-uniform: 1 to 2 prompts are as likely as 10 to 20.

    Args:
        repeat_share: share of the prompts with a parent that repeat it unchanged.
        stay_s: a user stays with a chance of 1 / (1 + pause / stay_s), where pause is the time since the last prompt.
        subject_mass: a user with n prompts who leaves a subject begins a new one with a chance of
            subject_mass / (subject_mass + n) (the Chinese restaurant process).
        near_share: share of copied words from prompts shown in the channel. The rest comes from any user's prompts of
            any age: the i-th prompt of the service has a weight of 1 / i (Zipf's law over prompts).
    """

    repeat_share: float
    stay_s: float
    subject_mass: float
    near_share: float

    def parents(self, own: Order, time_s: Floats, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """Draw the user's own prompt that each of n rows continues, (n,), -1 for a new subject; and who repeats it."""
        count = len(own.rank)
        rows = np.arange(count)
        pause_s = time_s - time_s[own.earlier(rows, np.minimum(own.before, 1))]
        stays = (own.before > 0) & (rng.random(count) * (1.0 + pause_s / self.stay_s) < 1.0)
        max_lag = np.where(stays, _subject_length(stays, own), own.before)
        is_new = ~stays & (rng.random(count) * (self.subject_mass + own.before) < self.subject_mass)
        lag = np.where(is_new, 0, draw_lags(np.maximum(max_lag, 1), 0.0, rng))
        parent = np.where(is_new, -1, own.earlier(rows, lag))
        return parent, ~is_new & (rng.random(count) < self.repeat_share)

    def donors(self, rows: Indices, count: int, near: Order, rng: np.random.Generator) -> Indices:
        """Draw rows before the first of `rows` to copy words from, `count` for each: (b, count)."""
        begin = int(rows[0])
        donor = draw_lags(np.full((len(rows), count), begin), 0.0, rng) - 1
        is_near = (rng.random(donor.shape) < self.near_share) & (near.before[rows] > 0)[:, None]
        row, column = np.nonzero(is_near)
        found = near.earlier(rows[row], draw_lags(near.before[rows[row]], NEAR_LAG, rng))
        known = found < begin  # prompts of the block are not written yet
        donor[row[known], column[known]] = found[known]
        return donor
