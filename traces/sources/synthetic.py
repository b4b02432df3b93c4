"""Made-up traffic in the image of DiffusionDB: users, sessions, and prompts that edit earlier ones."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.describe import SESSION_GAP_S
from traces.error import TraceError
from traces.schema import Trace, make
from traces.sources import vocabulary
from traces.validation import check_count, check_number

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WARM_UP_S = 4 * 3600.0
"""Sessions are started this long before the trace, so that it opens in mid-traffic."""

SIZES: tuple[tuple[int, int, float], ...] = (
    (512, 512, 635), (512, 768, 60), (512, 640, 37), (768, 512, 37), (704, 512, 33), (512, 704, 29),
    (576, 1024, 26), (1024, 512, 22), (384, 512, 18), (1600, 512, 15), (896, 512, 11), (640, 512, 7),
    (768, 640, 7), (384, 576, 6), (1216, 512, 6), (832, 512, 5), (1088, 704, 5), (512, 832, 4),
    (1024, 768, 4), (1024, 1024, 4), (512, 1024, 3), (768, 1088, 3), (960, 512, 3), (512, 576, 2),
    (768, 1024, 2), (256, 192, 1), (256, 1024, 1), (384, 704, 1), (512, 320, 1), (576, 320, 1),
    (576, 704, 1), (640, 704, 1), (640, 768, 1), (704, 704, 1), (768, 320, 1), (832, 448, 1),
    (896, 1024, 1), (1024, 384, 1), (1024, 576, 1), (1024, 704, 1), (1408, 512, 1),
)  # fmt: skip
"""Width, height (pixels) and weight: the counts in a sample of 1,000 requests of DiffusionDB 2M."""

STEPS: tuple[tuple[int, float], ...] = (
    (50, 671), (150, 262), (100, 47), (130, 3), (105, 3), (99, 3), (120, 2), (70, 2), (20, 1), (51, 1),
    (30, 1), (3, 1), (74, 1), (88, 1), (121, 1),
)  # fmt: skip
"""Denoising steps and weight, from the same sample."""

# slot -> its words and the share of prompts without it; modifiers are dealt into four slots that
# have no word in common, so that no prompt says the same thing twice
SLOTS: tuple[tuple[tuple[str, ...], float], ...] = (
    (vocabulary.MEDIUMS, 0.0),
    (vocabulary.QUALITIES, 0.25),
    (vocabulary.SUBJECTS, 0.0),
    (vocabulary.PLACES, 0.3),
    (vocabulary.STYLES, 0.2),
    (vocabulary.LIGHTS, 0.4),
    *((vocabulary.MODIFIERS[first::4], 0.25) for first in range(4)),
)
WORD_SKEW = 0.3
"""Exponent of the Zipf law by which words of a slot are drawn; an assumption."""


@dataclass(slots=True, kw_only=True)
class Synthetic:
    """The built-in trace: needs no file and no network.

    Arrivals are a Poisson process. Each request belongs to a session of a user; in a session a prompt
    repeats an earlier one, edits it (other words in a few of its slots), or starts a new theme. The
    defaults are measured on a sample of 1,000 consecutive requests of DiffusionDB 2M (6.7 hours;
    173 users of whom the ten most active make 38 %; 216 sessions of 4.6 requests in the mean) unless
    the list says otherwise. Images per request are 1; base model, ControlNets and LoRAs are null.

    Args:
        requests: number of rows.
        rate_rpm: arrivals, requests per minute; an assumption, about what 16 MI210 can serve.
        users: people who might send a request; fitted, with `user_skew`, to the sample's 173 users.
        user_skew: exponent of the Zipf law by which sessions fall to users; fitted.
        session_mean: requests per session, in the mean.
        session_sigma: width of the log-normal law of requests per session; fitted to the quantiles.
        gap_median_s, gap_sigma: the log-normal law of the seconds between requests of a session.
        repeat_share: share of all requests whose prompt repeats an earlier one of the session.
        edit_share: share of all requests whose prompt edits an earlier one of the session; with the
            repeats, the 57 % that share half their words with an earlier prompt of the same user.
        edit_slots: slots of the prompt that an edit changes, in the mean, at least 1; an assumption.
        return_share: share of repeats and edits that go back beyond the latest prompt; the sample's
            repeats (7 of 83).
        settings_change: chance that a request of a running session draws its size, and its steps,
            afresh; fitted (9 % of the sample's sizes and 5 % of its steps change).
        sizes: [width, height, weight] rows; `SIZES` if None.
        steps: [steps, weight] rows; `STEPS` if None.
        name: what reports call the trace.

    Raises:
        TraceError: an argument is out of its range.
    """

    requests: int = 10_000
    rate_rpm: float = 10.0
    users: int = 3_000
    user_skew: float = 0.8
    session_mean: float = 4.6
    session_sigma: float = 1.4
    gap_median_s: float = 120.0
    gap_sigma: float = 1.0
    repeat_share: float = 0.083
    edit_share: float = 0.49
    edit_slots: float = 2.0
    return_share: float = 0.08
    settings_change: float = 0.13
    sizes: Sequence[Sequence[float]] | None = None
    steps: Sequence[Sequence[float]] | None = None
    name: str = "synthetic"

    def __post_init__(self) -> None:
        where = "synthetic trace"
        for count in ("requests", "users"):
            check_count(where, count, getattr(self, count))
        for positive in ("rate_rpm", "gap_median_s"):
            check_number(where, positive, getattr(self, positive), above=0.0)
        for least in ("user_skew", "session_sigma", "gap_sigma"):
            check_number(where, least, getattr(self, least), least=0.0, most=10.0)
        for least in ("session_mean", "edit_slots"):
            check_number(where, least, getattr(self, least), least=1.0)
        for share in ("repeat_share", "edit_share", "return_share", "settings_change"):
            check_number(where, share, getattr(self, share), least=0.0, most=1.0)
        check_number(where, "repeat_share + edit_share", self.repeat_share + self.edit_share, most=1.0)
        _weighted(self.sizes if self.sizes is not None else SIZES, "sizes", 2)
        _weighted(self.steps if self.steps is not None else STEPS, "steps", 1)

    def load(self, rng: np.random.Generator) -> Trace:
        """Make the trace up; the same arguments and stream give the same digest."""
        count = self.requests
        arrival_s = np.cumsum(rng.exponential(60.0 / self.rate_rpm, count))
        session = self._sessions(rng)
        owners = _zipf(self.users, self.user_skew, int(session.max()) + 1, rng)
        previous, position, members = _threads(session)
        sizes = self._settings(self.sizes if self.sizes is not None else SIZES, "sizes", 2, previous, rng)
        steps = self._settings(self.steps if self.steps is not None else STEPS, "steps", 1, previous, rng)
        return make(
            {
                "request_id": _numbered("r", np.arange(count), count),
                "arrival_s": arrival_s,
                "user_id": _numbered("u", owners[session], self.users),
                "prompt": self._prompts(previous, position, members, rng),
                "width": sizes[:, 0],
                "height": sizes[:, 1],
                "steps": steps[:, 0],
                "images": np.ones(count, np.int32),
                "seed": rng.integers(0, 2**32, count, dtype=np.int64),
            },
            name=self.name,
            source="synthetic: made up by mezzotint, shaped after a sample of DiffusionDB 2M",
            notes={"synthetic": True, "generator": 1, "parameters": self._parameters()},
            where="synthetic trace",
        )

    def _parameters(self) -> dict[str, Any]:
        # configuration hands over sequences of its own that JSON does not know
        rows = {
            name: [[float(number) for number in row] for row in given]
            for name, given in (("sizes", self.sizes), ("steps", self.steps))
            if given is not None
        }
        return {**asdict(self), **rows}

    def _sessions(self, rng: np.random.Generator) -> Indices:
        """The session of each request, (requests,), numbered from 0.

        Sessions begin as a Poisson process and their requests follow at log-normal gaps. Only the
        order of the requests so made is kept: laid on the arrivals, it makes those exactly Poisson.
        """
        warm_up = min(self.requests, int(self.rate_rpm / 60.0 * WARM_UP_S))
        sessions = int(1.2 * (self.requests + warm_up) / self.session_mean) + 50
        while True:
            start_s = np.cumsum(rng.exponential(60.0 * self.session_mean / self.rate_rpm, sessions))
            # rounding up adds half a request to the mean
            log_mean = np.log(self.session_mean - 0.5) - self.session_sigma**2 / 2
            lengths = np.ceil(rng.lognormal(log_mean, self.session_sigma, sessions)).astype(np.int64)
            session = np.repeat(np.arange(sessions), lengths)
            since_s = np.cumsum(
                np.minimum(rng.lognormal(np.log(self.gap_median_s), self.gap_sigma, len(session)), SESSION_GAP_S)
            )
            first = np.cumsum(lengths) - lengths
            time_s = start_s[session] + since_s - since_s[first][session]
            order = np.argsort(time_s, kind="stable")
            # past the last start the traffic thins out
            order = order[time_s[order] <= start_s[-1]][warm_up : warm_up + self.requests]
            if len(order) == self.requests:
                _, numbered = np.unique(session[order], return_inverse=True)
                return numbered.astype(np.int64)
            sessions *= 2

    def _settings(
        self,
        rows: Sequence[Sequence[float]],
        what: str,
        width: int,
        previous: Indices,
        rng: np.random.Generator,
    ) -> Indices:
        values, weights = _weighted(rows, what, width)
        count = len(previous)
        drawn = rng.choice(len(values), count, p=weights)
        afresh = (previous < 0) | (rng.random(count) < self.settings_change)
        shown: Indices = values[drawn[_inherited_from(afresh, previous)]]
        return shown

    def _prompts(self, previous: Indices, position: Indices, members: Indices, rng: np.random.Generator) -> pa.Array:
        count = len(previous)
        follows = previous >= 0
        draw = rng.random(count)
        share = max(float(follows.mean()), 1e-9)  # shares are of all requests, draws only of those that follow
        repeats = follows & (draw < self.repeat_share / share)
        edits = follows & ~repeats & (draw < (self.repeat_share + self.edit_share) / share)
        back = (position >= 2) & (rng.random(count) < self.return_share)
        older = members - 2 - np.floor(rng.random(count) * np.maximum(position - 1, 1)).astype(np.int64)
        parent = np.where(back, _by_rank(members)[np.where(back, older, 0)], previous)
        # one slot of an edit surely gets a word, from a long list, so that hardly an edit is a repeat
        sure = np.where(edits, rng.integers(0, len(SLOTS) - 4, count), -1)
        chance = (self.edit_slots - 1.0) / (len(SLOTS) - 1)
        columns = []
        for slot, (words, absent) in enumerate(SLOTS):
            drawn = _zipf(len(words), WORD_SKEW, count, rng)
            missing = (rng.random(count) < absent) & (sure != slot)
            changed = edits & ((sure == slot) | (rng.random(count) < chance))
            source = _inherited_from(~(repeats | edits) | changed, parent)
            columns.append(pa.array(words).take(pa.array(drawn[source], mask=missing[source])))
        medium, quality, subject, place, *rest = columns
        of = pa.scalar("of")
        head = pc.binary_join_element_wise(medium, of, quality, subject, place, " ", null_handling="skip")
        return pc.binary_join_element_wise(head, *rest, ", ", null_handling="skip")


def _threads(session: Indices) -> tuple[Indices, Indices, Indices]:
    """For each row: the session's row before it (-1 if none), its place in the session, its rank when
    rows are ordered by session and then time; (n,) each."""
    count = len(session)
    order = np.argsort(session, kind="stable")
    opens = np.ones(count, np.bool_)
    opens[1:] = session[order[1:]] != session[order[:-1]]
    ranks = np.arange(count)
    start = np.maximum.accumulate(np.where(opens, ranks, 0))
    previous = np.full(count, -1)
    previous[order[1:]] = np.where(opens[1:], -1, order[:-1])
    position, members = np.empty(count, np.int64), np.empty(count, np.int64)
    position[order], members[order] = ranks - start, ranks
    return previous, position, members


def _by_rank(members: Indices) -> Indices:
    rows = np.empty_like(members)
    rows[members] = np.arange(len(members))
    return rows


def _inherited_from(afresh: Flags, parent: Indices) -> Indices:
    """The row whose draw each row shows, (n,): itself if afresh, else whatever its parent shows.

    Each round halves what is left of the longest chain of parents, so there are few.
    """
    source = np.where(afresh, np.arange(len(parent)), parent)
    while True:
        further = source[source]
        if np.array_equal(further, source):
            return source
        source = further


def _zipf(size: int, skew: float, count: int, rng: np.random.Generator) -> Indices:
    """`count` draws from 0..size-1 with weights (1 + rank) ** -skew."""
    heights = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -skew)
    drawn: Indices = np.searchsorted(heights, rng.random(count) * heights[-1], side="right").astype(np.int64)
    return np.minimum(drawn, size - 1)


def _numbered(prefix: str, numbers: Indices, size: int) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), len(str(size - 1)), "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "")


def _weighted(rows: Sequence[Sequence[float]], what: str, width: int) -> tuple[Indices, npt.NDArray[np.float64]]:
    expected = f"expected rows of {width} positive whole numbers and a positive weight"
    try:
        table = np.array([list(row) for row in rows], np.float64)
    except (TypeError, ValueError) as error:
        raise TraceError(f"synthetic trace: {what}={rows!r}, {expected}") from error
    if table.shape[1:] != (width + 1,) or not (np.isfinite(table) & (table > 0)).all():
        raise TraceError(f"synthetic trace: {what}={rows!r}, {expected}")
    values = table[:, :-1].astype(np.int64)
    if (values != table[:, :-1]).any():
        raise TraceError(f"synthetic trace: {what}={rows!r}, {expected}")
    return values, table[:, -1] / table[:, -1].sum()
