"""Which earlier prompt a request goes on from: one of the user's own, or somebody else's."""

from dataclasses import dataclass

import numpy as np

from traces.synthetic.laws import Flags, Indices


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

    def back(self, rows: Indices, lag: Indices) -> Indices:
        """The rows that came `lag` before these among those of the same."""
        found: Indices = self.ordered[self.rank[rows] - lag]
        return found


def by(of: Indices) -> Order:
    """The order of n rows by `of`, (n,) numbers."""
    ordered = np.argsort(of, kind="stable")
    rank = np.empty(len(of), np.int64)
    rank[ordered] = np.arange(len(of))
    return Order(ordered, rank, rank - np.searchsorted(of[ordered], of))


def lags(most: Indices, exponent: float, rng: np.random.Generator) -> Indices:
    """How far back to go, 1 to `most` (any shape; at least 1): P(lag >= k) falls as k ** -exponent, cut at `most`."""
    end = (most + 1.0) ** -exponent
    drawn = (end + rng.random(most.shape) * (1.0 - end)) ** (-1.0 / exponent)
    whole: Indices = np.minimum(np.floor(drawn), most).astype(np.int64)
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """The law of what prompts come from. It has no scale of its own: any earlier prompt can be gone back to.

    Args:
        repeat_share: share of the prompts that go on from one of the user's own that leave it as it is.
        subject_share: chance that a user who has prompts begins another subject.
        return_lag: exponent of the law of how far back among his own a user goes, in prompts: P(at least k) is
            k ** -return_lag. The same law takes prompts from those that a channel has shown.
        own_share, near_share: where words that are copied come from: the user's own earlier prompts,
            or those that the channel has shown. The rest comes from anybody's, of any age: the i-th prompt that the
            service ever had with a weight of 1 / i (Zipf's law over prompts), so that some are classics.
    """

    repeat_share: float
    subject_share: float
    return_lag: float
    own_share: float
    near_share: float

    def parents(self, own: Order, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """The user's own prompt that each of n rows goes on from, (n,), -1 for another subject; and who repeats it."""
        count = len(own.rank)
        rows = np.arange(count)
        goes_on = (own.before > 0) & (rng.random(count) >= self.subject_share)
        lag = np.where(goes_on, lags(np.maximum(own.before, 1), self.return_lag, rng), 0)
        parent = np.where(goes_on, own.back(rows, lag), -1)
        return parent, goes_on & (rng.random(count) < self.repeat_share)

    def donors(self, rows: Indices, many: int, own: Order, near: Order, rng: np.random.Generator) -> Indices:
        """Rows before the first of these that words are copied from, `many` for each: (b, many)."""
        most = int(rows[0])
        shape = (len(rows), many)
        kind = rng.random(shape)
        donor = np.floor((most + 1.0) ** rng.random(shape)).astype(np.int64) - 1
        donor = np.minimum(donor, most - 1)
        mine = kind < self.own_share
        for order, chosen in ((own, mine), (near, ~mine & (kind < self.own_share + self.near_share))):
            row, column = np.nonzero(chosen & (order.before[rows] > 0)[:, None])
            at = rows[row]
            found = order.back(at, lags(order.before[at], self.return_lag, rng))
            # what is younger than the block is not written yet
            known = found < most
            donor[row[known], column[known]] = found[known]
        return donor
