"""What prompts say: words in slots, handed down from prompt to prompt and changed on the way."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.synthetic.laws import Flags, Floats, Indices, inherited_from, lognormal
from traces.synthetic.lineage import Lineage
from traces.synthetic.slots import SUBJECT, slots
from traces.synthetic.themes import Themes

ABSENT = -1
BLOCK = 65_536
"""Prompts spelled out at a time: bounds the memory."""

Choices = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The law of prompts and edits.

    Args:
        themes: what prompts are about.
        sentence_power, list_power: a new prompt fills each slot of its opening sentence, and of the list of
            modifiers after it, with a chance of U ** power, U uniform and drawn for each prompt.
        edit_median, edit_sigma, edit_session_sigma: log-normal law of the share of filled slots that an edit
            changes, at least one; the widths are those of edits in a session and of sessions.
        add_share, drop_share: share of edits that fill one more slot, or empty one; the others put another
            word into one. Further changes put in other words.
        focus_share: share of a prompt's slots that its edits and theirs play with before any others.
        name_share: share of subjects that are a name instead of a common word.
        rare_share: share of all other words that hardly another prompt has, in the mean of all subjects: of one it
            is U ** power, so that some are said in everybody's words and some in their own.
        theme_skew: exponent of the Zipf law of the common ones.
        styles, style_skew: lists of modifiers in fashion, and exponent of the Zipf law by which they are taken.
        style_follow, style_age_s: share of these that take the style of a prompt in a style that somebody has sent
            lately, and the mean age of that one (exponential law).
        style_fill: chance that a style fills a slot: what spreads is long.
        style_power: a prompt in a style takes each slot from it with a chance of U ** power, the others are its own.
    """

    themes: Themes
    sentence_power: float
    list_power: float
    edit_median: float
    edit_sigma: float
    edit_session_sigma: float
    add_share: float
    drop_share: float
    focus_share: float
    name_share: float
    rare_share: float
    theme_skew: float
    styles: int
    style_skew: float
    style_follow: float
    style_age_s: float
    style_fill: float
    style_power: float

    def compose(
        self, lineage: Lineage, session: Indices, arrival_s: Floats, rng: np.random.Generator
    ) -> pa.ChunkedArray:
        """The prompts of n requests of known lineage and session, (n,), that arrive at `arrival_s`, (n,) seconds."""
        sentence, listed = slots()
        rare = rng.random(len(arrival_s)) ** (1 / max(self.rare_share, 1e-9) - 1)
        draws = _Draws(self.name_share, rare[lineage.root], *self._subjects(arrival_s, rng), rng)
        count, width = len(arrival_s), len(sentence) + len(listed)
        chosen = np.full((count, width), ABSENT, np.int32)
        usual = lognormal(self.edit_median, self.edit_session_sigma, int(session.max()) + 1, rng)[session]
        generations = _generations(lineage)
        focus = np.zeros((count, width), np.bool_)
        begun = np.flatnonzero(lineage.new)
        focus[begun] = rng.random((len(begun), width), np.float32) < self.focus_share
        self._begin(chosen, begun, draws)
        self._follow_fashion(chosen, np.flatnonzero(lineage.styled), arrival_s, draws)
        for rows in generations[1:]:
            chosen[rows] = chosen[lineage.parent[rows]]
            edited = rows[lineage.edits[rows]]
            if edited.size:
                self._edit(chosen, edited, focus[lineage.root[edited]], usual[edited], draws)
        return pa.chunked_array([_spell(chosen[start : start + BLOCK]) for start in range(0, count, BLOCK)])

    def _subjects(self, arrival_s: Floats, rng: np.random.Generator) -> tuple[Floats, Indices]:
        return self.themes.heights(slots()[0][SUBJECT].common, self.theme_skew, arrival_s, rng)

    def _begin(self, chosen: Choices, rows: Indices, draws: "_Draws") -> None:
        """Draw these rows afresh."""
        sentence, listed = slots()
        filled = np.hstack(
            [
                _filled(len(rows), len(sentence), self.sentence_power, draws.rng),
                _filled(len(rows), len(listed), self.list_power, draws.rng),
            ]
        )
        filled[:, SUBJECT] = True
        row, slot = np.nonzero(filled)
        chosen[rows[row], slot] = draws.words(rows[row], slot)

    def _follow_fashion(self, chosen: Choices, rows: Indices, arrival_s: Floats, draws: "_Draws") -> None:
        """Put the lists of the styles in fashion in place of these rows' own."""
        sentence, listed = slots()
        style, slot = np.nonzero(draws.rng.random((self.styles, len(listed))) < self.style_fill)
        styles = np.full((self.styles, len(listed)), ABSENT, np.int32)
        # some request's share of rare words is the style's too
        styles[style, slot] = draws.words(style % len(draws.rare), slot + len(sentence))
        heights, period = self.themes.heights(self.styles, self.style_skew, arrival_s, draws.rng)
        worn = np.searchsorted(heights, period[rows] + draws.rng.random(len(rows)), side="right")
        worn = np.clip(worn - period[rows] * self.styles, 0, self.styles - 1)
        seen_s = arrival_s[rows] - draws.rng.exponential(self.style_age_s, len(rows))
        seen = np.minimum(np.searchsorted(arrival_s[rows], seen_s, side="right"), np.arange(len(rows))) - 1
        afresh = (seen < 0) | (draws.rng.random(len(rows)) >= self.style_follow)
        style = styles[worn[inherited_from(afresh, seen)]]
        taken = _filled(len(rows), len(listed), self.style_power, draws.rng)
        chosen[rows, len(sentence) :] = np.where(taken, style, chosen[rows, len(sentence) :])

    def _edit(self, chosen: Choices, rows: Indices, focus: Flags, usual: Floats, draws: "_Draws") -> None:
        rng = draws.rng
        old = chosen[rows]
        filled = old != ABSENT
        many = filled.sum(1)
        kind = rng.random(len(rows))
        adds = (kind < self.add_share) & (many < old.shape[1])
        drops = ~adds & (kind < self.add_share + self.drop_share) & (many > 2)
        # the slots that this theme's edits play with come first, then any; an addition takes an empty one
        luck = rng.random(old.shape, np.float32) + focus
        luck[drops, SUBJECT] = -1.0
        luck[filled == adds[:, None]] -= 2.0
        sure = luck.argmax(1)
        share = usual * lognormal(1.0, self.edit_sigma, len(rows), rng)
        further = np.rint(np.minimum(share, 1.0) * many).astype(np.int64) - 1
        luck[~filled] = -3.0
        at = np.arange(len(rows))
        luck[at, sure] = -3.0
        changed = _highest(luck, np.minimum(further, many - ~adds))
        changed[at, sure] = True
        row, slot = np.nonzero(changed)
        words = draws.words(rows[row], slot)
        same = words == old[row, slot]
        words[same] = (words[same] + 1) % draws.sizes[slot[same]]
        chosen[rows[row], slot] = words
        chosen[rows[drops], sure[drops]] = ABSENT


@dataclass(slots=True)
class _Draws:
    """Draws words for any slots of any rows at once; the subjects' heights and the rows' periods are of `Themes`."""

    name_share: float
    rare: Floats
    subjects: Floats
    period: Indices
    rng: np.random.Generator
    sizes: Indices = field(init=False)
    _common: Indices = field(init=False)
    _heights: Floats = field(init=False)
    _first: Indices = field(init=False)

    def __post_init__(self) -> None:
        every = [slot for group in slots() for slot in group]
        self.sizes = np.array([len(slot.texts) for slot in every])
        self._common = np.array([slot.common for slot in every])
        self._first = np.cumsum(self._common) - self._common
        heights = []
        for number, slot in enumerate(every):
            sums = np.cumsum(np.arange(1, slot.common + 1) ** -slot.skew)
            heights.append(sums / sums[-1] + number)
        self._heights = np.concatenate(heights)

    def words(self, rows: Indices, slot: Indices) -> Indices:
        """A word for each pair of a row and a slot, (k,), as its place in the slot's list."""
        luck = self.rng.random(len(rows))
        word = np.searchsorted(self._heights, slot + luck, side="right") - self._first[slot]
        about = slot == SUBJECT
        period = self.period[rows[about]]
        subject = np.searchsorted(self.subjects, period + luck[about], side="right")
        word[about] = subject - period * self._common[SUBJECT]
        word = np.clip(word, 0, self._common[slot] - 1)
        rare = self.rng.random(len(rows)) < np.where(about, self.name_share, self.rare[rows])
        drawn: Indices = np.where(rare, self.rng.integers(self._common[slot], self.sizes[slot]), word)
        return drawn


def _filled(count: int, width: int, power: float, rng: np.random.Generator) -> Flags:
    """Which of `width` slots of `count` prompts are filled, (count, width): each with the prompt's chance."""
    chance = rng.random(count) ** power
    filled: Flags = rng.random((count, width)) < chance[:, None]
    return filled


def _generations(lineage: Lineage) -> list[Indices]:
    """Rows by their distance from the new prompt that they go back to."""
    depth = (lineage.parent != np.arange(len(lineage.parent))).astype(np.int64)
    ancestor = lineage.parent
    while (more := depth[ancestor]).any():
        depth = depth + more
        ancestor = ancestor[ancestor]
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1])


def _spell(chosen: Choices) -> pa.Array:
    sentence, listed = slots()
    parts = []
    for slot, words in zip((*sentence, *listed), chosen.T, strict=True):
        parts.append(slot.texts.take(pa.array(np.maximum(words, 0), mask=words == ABSENT)))
    opening = pc.binary_join_element_wise(*parts[: len(sentence)], " ", null_handling="skip")
    return pc.binary_join_element_wise(opening, *parts[len(sentence) :], ", ", null_handling="skip")


def _highest(luck: npt.NDArray[np.float32], many: Indices) -> Flags:
    """Marks the `many` (n,) highest values of each row of `luck`, (n, k)."""
    falling = np.argsort(-luck, axis=1)
    marked = np.zeros(luck.shape, np.bool_)
    np.put_along_axis(marked, falling, np.arange(luck.shape[1]) < many[:, None], axis=1)
    return marked
