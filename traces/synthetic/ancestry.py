"""Which earlier prompt a request goes on from: one of the user's own, or somebody else's."""

from dataclasses import dataclass

import numpy as np

from traces.synthetic.distributions import Flags, Floats, Indices


@dataclass(frozen=True, slots=True)
class Order:
    """n rows by what they belong to, and in time within it.

    Attributes:
        ordered: (n,) the rows, those of one user (or channel) side by side.
        rank: (n,) each row's place in `ordered`.
        before: (n,) how many rows of the same came before it.
    """

    ordered: Indices
    rank: Indices
    before: Indices

    def earlier(self, rows: Indices, lag: Indices) -> Indices:
        """The rows that came `lag` before these among those of the same."""
        found: Indices = self.ordered[self.rank[rows] - lag]
        return found


def order_by(of: Indices) -> Order:
    """The order of n rows by `of`, (n,) numbers."""
    ordered = np.argsort(of, kind="stable")
    rank = np.empty(len(of), np.int64)
    rank[ordered] = np.arange(len(of))
    return Order(ordered, rank, rank - np.searchsorted(of[ordered], of))


NEAR_LAG = 1.0
"""Exponent of how far back in a channel words are copied from: assumed, Zipf's law of what is on a page."""


def draw_lags(most: Indices, exponent: float, rng: np.random.Generator) -> Indices:
    """How far back to go, 1 to `most` (any shape; at least 1): P(lag >= k) falls as k ** -exponent, cut at `most`.

    With an exponent of 0 it is log-uniform, a weight of 1 / lag.
    """
    if exponent:
        end = (most + 1.0) ** -exponent
        drawn = (end + rng.random(most.shape) * (1.0 - end)) ** (-1.0 / exponent)
    else:
        drawn = (most + 1.0) ** rng.random(most.shape)
    whole: Indices = np.minimum(np.floor(drawn), most).astype(np.int64)
    return whole


def _since(stays: Flags, own: Order) -> Indices:
    """How many of a user's prompts in a row, before each of n rows, are about what he was at then, (n,)."""
    place = np.arange(len(own.rank))
    begun = np.maximum.accumulate(np.where(stays[own.ordered], 0, place))
    return (place - begun)[own.rank]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestry:
    """The law of what prompts come from. It has no scale of its own: any earlier prompt can be gone back to.

    A user stays with what he is at, or after a pause turns to something else: back to any of his earlier prompts, or to
    another subject. In both cases how far back he goes is log-uniform: a step between 1 and 2 prompts is as likely as
    one between 10 and 20.

    Args:
        repeat_share: share of the prompts that go on from one of the user's own that leave it as it is.
        stay_s: a user stays with a chance of 1 / (1 + pause / stay_s), the pause being that since his prompt before.
        subject_mass: a user who sent n prompts and turns to something else begins another subject with a chance of
            subject_mass / (subject_mass + n) (the Chinese restaurant process): the more he has done, the likelier he
            goes back to some of it.
        near_share: where words that are copied come from: prompts that the channel has shown. The rest comes from
            anybody's, of any age: the i-th prompt that the service ever had with a weight of 1 / i (Zipf's law over
            prompts), so that some are classics.
    """

    repeat_share: float
    stay_s: float
    subject_mass: float
    near_share: float

    def parents(self, own: Order, time_s: Floats, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """The user's own prompt that each of n rows goes on from, (n,), -1 for another subject; and who repeats it."""
        count = len(own.rank)
        rows = np.arange(count)
        pause_s = time_s - time_s[own.earlier(rows, np.minimum(own.before, 1))]
        stays = (own.before > 0) & (rng.random(count) * (1.0 + pause_s / self.stay_s) < 1.0)
        most = np.where(stays, _since(stays, own), own.before)
        anew = ~stays & (rng.random(count) * (self.subject_mass + own.before) < self.subject_mass)
        lag = np.where(anew, 0, draw_lags(np.maximum(most, 1), 0.0, rng))
        parent = np.where(anew, -1, own.earlier(rows, lag))
        return parent, ~anew & (rng.random(count) < self.repeat_share)

    def donors(self, rows: Indices, many: int, near: Order, rng: np.random.Generator) -> Indices:
        """Rows before the first of these that words are copied from, `many` for each: (b, many)."""
        most = int(rows[0])
        donor = draw_lags(np.full((len(rows), many), most), 0.0, rng) - 1
        seen = (rng.random(donor.shape) < self.near_share) & (near.before[rows] > 0)[:, None]
        row, column = np.nonzero(seen)
        found = near.earlier(rows[row], draw_lags(near.before[rows[row]], NEAR_LAG, rng))
        known = found < most  # what is younger than the block is not written yet
        donor[row[known], column[known]] = found[known]
        return donor
