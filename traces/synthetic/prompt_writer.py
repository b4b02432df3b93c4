"""Text of prompts: words copied, cut and extended from earlier prompts, or new."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from mezzotint.traces.synthetic.ancestry import Ancestry, Order
from mezzotint.traces.synthetic.distributions import Flags, Floats, Indices
from mezzotint.traces.synthetic.words import Words, vocabulary, word_draws

LONGEST = 64
"""Words of a prompt, at most; 1 % of the log's prompts have more."""

PIECES = 8
"""Pieces of a new text, at most."""

BLOCK = 512
"""Prompts written at a time: they copy from prompts before the block, and continue any earlier prompt."""

TEXTS = 65_536
"""Prompts turned into text at a time, to bound the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWriter:
    """Model of the text of prompts and edits.

    New text, the beginning of a prompt or the words of an edit, consists of pieces. A piece is a stretch of an earlier
    prompt, or new words. A prompt on a new subject is new text followed by the end of another prompt. An edit
    replaces a stretch of the parent prompt by new text.

    Args:
        ancestry: model of the prompts that words come from.
        length_words, length_shape: scale and shape of the Weibull distribution of a prompt's words.
        comma_share: share of words that end a phrase.
        word_skew, word_shift: exponent and shift of the Zipf-Mandelbrot distribution of new words.
        piece_mass: a piece is a share 1 - U ** (1 / piece_mass) of the text left to write (the parameter of the
            Poisson-Dirichlet distribution): the lower, the longer the copied stretches.
        new_mean, new_spread: share of pieces, and of prompts' ends, that a user does not copy: a beta distribution over
            users with this mean, whose two exponents sum to the spread.
        change_power: a prompt that ends like another differs from it in a share U ** change_power.
        edit_power: an edit changes a share of U ** edit_power of the prompt, and at least a word, at the place of the
            last edit of the same subject.
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
        """Write the prompts of n requests from users and times, (n,) each, and the orders by user and by channel."""
        count = len(user)
        writes_new = self._writes_new(int(user.max()) + 1, rng)
        parent, repeats = self.ancestry.parents(own, time_s, rng)
        made = PromptWords(np.zeros((count, LONGEST), np.uint16), np.zeros(count, np.int64))
        place = np.zeros(count)
        fresh = word_draws(self.word_skew, self.word_shift)
        start = 0
        with tqdm(total=count, desc="make prompts up", unit="req", disable=None, delay=2, leave=False) as bar:
            while start < count:
                # the first blocks are small, since there is little to copy from
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
        """Draw the length of each prompt, and the share of its parent that it keeps."""
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
        """Draw the new text of each row, (b, LONGEST), of which the first `task.write` words count."""
        count = len(rows)
        left = np.cumprod(rng.random((count, PIECES - 1)) ** (1.0 / self.piece_mass), axis=1)
        ends = np.rint(task.write[:, None] * (1.0 - left)).astype(np.int64)
        begins = np.concatenate((np.zeros((count, 1), np.int64), ends), axis=1)
        size = np.concatenate((ends, task.write[:, None]), axis=1) - begins
        piece = (np.arange(LONGEST) >= ends[:, :, None]).sum(1)
        text: Words = fresh[rng.integers(0, len(fresh), (count, LONGEST))]
        if not rows[0]:
            return text
        donor = self.ancestry.donors(rows, PIECES, near, rng)
        max_first = np.maximum(made.length[donor] - size, 0)
        first = np.floor(rng.random(donor.shape) * (max_first + 1)).astype(np.int64) - begins
        copied = rng.random(donor.shape) >= writes_new[:, None]
        donor, first, copied = (np.take_along_axis(each, piece, 1) for each in (donor, first, copied))
        at = first + np.arange(LONGEST)
        copied &= at < made.length[donor]
        text[copied] = made.words[donor[copied], at[copied]]
        return text


@dataclass(frozen=True, slots=True)
class PromptWords:
    """Prompts as numbers of words, (n, LONGEST), of which the first `length`, (n,), count."""

    words: Words
    length: Indices

    def texts(self, rows: Indices, comma_share: float) -> pa.ChunkedArray:
        """Return the texts of these rows."""
        names, texts = vocabulary(comma_share), []
        for some in np.split(rows, range(TEXTS, len(rows), TEXTS)):
            length = self.length[some]
            flat = self.words[some][np.arange(LONGEST) < length[:, None]]
            ends = np.concatenate(([0], np.cumsum(length)))
            lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names.take(pa.array(flat)))
            texts.append(pc.utf8_rtrim(pc.binary_join(lists, " "), ","))
        return pa.chunked_array(texts, pa.string())


@dataclass(frozen=True, slots=True)
class _Task:
    """Plan of b prompts.

    Attributes:
        begins: (b,) True for a new subject.
        source: (b,) the row continued, or -1.
        length: (b,) words of the prompt.
        change: (b,) share of the source that changes.
        write: (b,) words of new text.
    """

    begins: Flags
    source: Indices
    length: Indices
    change: Floats
    write: Indices


def _splice(rows: Indices, task: _Task, written: Words, made: PromptWords, place: Floats) -> None:
    """Insert the new text of each row into its source; rows whose source is in the block wait for it."""
    first = int(rows[0])
    column = np.arange(LONGEST)
    waiting = np.ones(len(rows), np.bool_)
    while waiting.any():
        inside = task.source - first
        ready = np.flatnonzero(waiting & ((inside < 0) | ~waiting[np.maximum(inside, 0)]))
        at, source = rows[ready], task.source[ready]
        begins, write = task.begins[ready], task.write[ready]
        old = np.where(source >= 0, made.length[source], 0)
        # a new subject takes as much of its source's end as fits
        cut = np.where(begins, np.maximum(old - (task.length[ready] - write), 0), np.ceil(task.change[ready] * old))
        cut = cut.astype(np.int64)
        write = np.minimum(write, LONGEST - (old - cut))
        edited = ~begins & (place[np.maximum(source, 0)] > 0)
        place[at] = np.where(edited, place[source], place[at])
        put = np.floor(place[at] * (old - cut + 1)).astype(np.int64)[:, None]
        end = put + write[:, None]
        place_in_source = np.where(column < put, column, column + (cut - write)[:, None])
        text = made.words[source[:, None], np.clip(place_in_source, 0, LONGEST - 1)]
        new = np.take_along_axis(written[ready], np.clip(column - put, 0, LONGEST - 1), 1)
        made.words[at] = np.where((column >= put) & (column < end), new, text)
        made.length[at] = old - cut + write
        waiting[ready] = False
