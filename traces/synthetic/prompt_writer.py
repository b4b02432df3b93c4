"""What prompts say: words copied, cut and extended from earlier prompts, or new."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from traces.synthetic.ancestry import Ancestry, Order
from traces.synthetic.distributions import Flags, Floats, Indices
from traces.synthetic.words import Words, vocabulary, word_draws

LONGEST = 64
"""Words of a prompt; 1 % of the log's have more."""

PIECES = 8
"""What is written at once is made of so many pieces at most."""

BLOCK = 512
"""Prompts written at a time: they copy from those before the block, and go on from any before them."""

SPELLED = 65_536
"""Prompts spelled out at a time: bounds the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWriter:
    """The law of prompts and edits.

    What is written, a prompt's beginning or the words of an edit, is pieces: each a stretch of an earlier prompt, or
    new words. A prompt about another subject is something written and then the end of another prompt; an edit puts
    something written in the place of a stretch of the prompt that it goes on from.

    Args:
        ancestry: where words come from.
        length_words, length_shape: scale and shape of the Weibull law of a prompt's words.
        comma_share: share of words that end a phrase.
        word_skew, word_shift: exponent and shift of the Zipf-Mandelbrot law of new words.
        piece_mass: a piece is a share 1 - U ** (1 / piece_mass) of what is still to be written (the Poisson-Dirichlet
            law's parameter): the lower, the longer the stretches that are copied.
        new_mean, new_spread: share of pieces, and of prompts' ends, that a user does not copy: a beta law over users of
            this mean; its two exponents sum to the spread.
        change_power: of a prompt that ends as another the share that does not come from it is U ** change_power.
        edit_power: an edit changes a share of U ** edit_power of the prompt, and at least a word. It does so where the
            last edit of the same subject did.
    """

    ancestry: Ancestry
    length_words: float
    length_shape: float
    comma_share: float
    word_skew: float
    word_shift: float
    piece_mass: float
    new_mean: float
    new_spread: float
    change_power: float
    edit_power: float

    def compose(
        self, user: Indices, time_s: Floats, own: Order, near: Order, rng: np.random.Generator
    ) -> "PromptWords":
        """The prompts of n requests, given users and times, (n,) each, and the orders by user and by channel."""
        count = len(user)
        writes_new = self._writes_new(int(user.max()) + 1, rng)
        parent, repeats = self.ancestry.parents(own, time_s, rng)
        made = PromptWords(np.zeros((count, LONGEST), np.uint16), np.zeros(count, np.int64))
        place = np.zeros(count)
        fresh = word_draws(self.word_skew, self.word_shift)
        start = 0
        with tqdm(total=count, desc="make prompts up", unit="req", disable=None, delay=2, leave=False) as bar:
            while start < count:
                # nothing is there to be copied at first, so blocks begin small
                rows = np.arange(start, min(start + min(BLOCK, max(16, start)), count))
                task = self._task(rows, parent, repeats, writes_new[user[rows]], near, place, rng)
                written = self._written(rows, task, writes_new[user[rows]], made, fresh, near, rng)
                _splice(rows, task, written, made, place)
                start = int(rows[-1]) + 1
                bar.update(len(rows))
        return made

    def _writes_new(self, users: int, rng: np.random.Generator) -> Floats:
        if not 0.0 < self.new_mean < 1.0:
            return np.full(users, self.new_mean)
        return rng.beta(self.new_mean * self.new_spread, (1.0 - self.new_mean) * self.new_spread, users)

    def _task(
        self, rows: Indices, parent: Indices, repeats: Flags, writes_new: Floats, near: Order, place: Floats,
        rng: np.random.Generator,
    ) -> "_Task":  # fmt: skip
        """How long each prompt is to be, and what of its parent it keeps."""
        begins = parent[rows] < 0
        length = np.rint(self.length_words * rng.weibull(self.length_shape, len(rows)))
        length = np.clip(length, 1, LONGEST).astype(np.int64)
        luck = rng.random(len(rows))
        change = luck ** np.where(begins, self.change_power, self.edit_power)
        change[begins & (rng.random(len(rows)) < writes_new)] = 1.0
        change[repeats[rows]] = 0.0
        place[rows] = np.where(begins, 0.0, rng.random(len(rows)))
        source = parent[rows]
        if rows[0]:
            source = np.where(begins, self.ancestry.donors(rows, 1, near, rng)[:, 0], source)
        else:
            change[begins] = 1.0
        return _Task(begins, source, length, change, np.ceil(change * length).astype(np.int64))

    def _written(
        self, rows: Indices, task: "_Task", writes_new: Floats, made: "PromptWords", fresh: Words, near: Order,
        rng: np.random.Generator,
    ) -> Words:  # fmt: skip
        """What is written for each row, (b, LONGEST); of it the first `task.write` words count."""
        count = len(rows)
        left = np.cumprod(rng.random((count, PIECES - 1)) ** (1.0 / self.piece_mass), axis=1)
        ends = np.rint(task.write[:, None] * (1.0 - left)).astype(np.int64)
        begins = np.concatenate((np.zeros((count, 1), np.int64), ends), axis=1)
        size = np.concatenate((ends, task.write[:, None]), axis=1) - begins
        piece = (np.arange(LONGEST) >= ends[:, :, None]).sum(1)
        words_: Words = fresh[rng.integers(0, len(fresh), (count, LONGEST))]
        if not rows[0]:
            return words_
        donor = self.ancestry.donors(rows, PIECES, near, rng)
        room = np.maximum(made.length[donor] - size, 0)
        first = np.floor(rng.random(donor.shape) * (room + 1)).astype(np.int64) - begins
        copied = rng.random(donor.shape) >= writes_new[:, None]
        donor, first, copied = (np.take_along_axis(each, piece, 1) for each in (donor, first, copied))
        at = first + np.arange(LONGEST)
        copied &= at < made.length[donor]
        words_[copied] = made.words[donor[copied], at[copied]]
        return words_


@dataclass(frozen=True, slots=True)
class PromptWords:
    """Prompts as words: (n, LONGEST) numbers of which the first `length`, (n,), count."""

    words: Words
    length: Indices

    def texts(self, rows: Indices, comma_share: float) -> pa.ChunkedArray:
        """The texts of these rows."""
        texts, spelled = vocabulary(comma_share), []
        for some in np.split(rows, range(SPELLED, len(rows), SPELLED)):
            length = self.length[some]
            flat = self.words[some][np.arange(LONGEST) < length[:, None]]
            ends = np.concatenate(([0], np.cumsum(length)))
            lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts.take(pa.array(flat)))
            spelled.append(pc.utf8_rtrim(pc.binary_join(lists, " "), ","))
        return pa.chunked_array(spelled, pa.string())


@dataclass(frozen=True, slots=True)
class _Task:
    """What to do about b rows: whether they begin a subject, the row they go on from or -1, the words wanted, the share
    that changes, the words to write."""

    begins: Flags
    source: Indices
    length: Indices
    change: Floats
    write: Indices


def _splice(rows: Indices, task: _Task, written: Words, made: PromptWords, place: Floats) -> None:
    """Put what was written into what each row goes on from; those whose source is in the block wait for it."""
    first = int(rows[0])
    column = np.arange(LONGEST)
    waiting = np.ones(len(rows), np.bool_)
    while waiting.any():
        inside = task.source - first
        ready = np.flatnonzero(waiting & ((inside < 0) | ~waiting[np.maximum(inside, 0)]))
        at, source = rows[ready], task.source[ready]
        begins, write = task.begins[ready], task.write[ready]
        old = np.where(source >= 0, made.length[source], 0)
        # a subject's beginning takes the end of its source, as much as there is room for
        cut = np.where(begins, np.maximum(old - (task.length[ready] - write), 0), np.ceil(task.change[ready] * old))
        cut = cut.astype(np.int64)
        write = np.minimum(write, LONGEST - (old - cut))
        edited = ~begins & (place[np.maximum(source, 0)] > 0)
        place[at] = np.where(edited, place[source], place[at])
        put = np.floor(place[at] * (old - cut + 1)).astype(np.int64)[:, None]
        end = put + write[:, None]
        kept = np.where(column < put, column, column + (cut - write)[:, None])
        text = made.words[source[:, None], np.clip(kept, 0, LONGEST - 1)]
        new = np.take_along_axis(written[ready], np.clip(column - put, 0, LONGEST - 1), 1)
        made.words[at] = np.where((column >= put) & (column < end), new, text)
        made.length[at] = old - cut + write
        waiting[ready] = False
