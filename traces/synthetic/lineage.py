"""What a prompt comes from: nothing, an earlier one of the user's, or one of somebody else's."""

from dataclasses import dataclass

import numpy as np

from traces.synthetic.laws import Flags, Floats, Indices, inherited_from, lognormal
from traces.table.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where the prompts of n requests come from.

    Attributes:
        parent: (n,) the earlier row that the prompt repeats or edits; of a new prompt the row itself.
        edits: (n,) whether the prompt edits its parent's. One that neither edits nor is new is a repeat.
        new: (n,) whether the prompt is about something new.
        styled: (n,) whether a new prompt takes its list of modifiers from a style in fashion.
        root: (n,) the new prompt that this one goes back to.
    """

    parent: Indices
    edits: Flags
    new: Flags
    styled: Flags
    root: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """The law of what prompts come from.

    Args:
        repeat_share: share of all requests that repeat an earlier prompt of the session.
        edit_share: share of all requests that edit an earlier prompt of the session.
        return_share: share of repeats and edits that go back beyond the session's latest prompt.
        session_contrast: how much sessions differ in how often they change the subject, from 0 (all alike)
            to nearly 1 (some in every request, the others never): the correlation of two changes in a session.
        resume_share, resume_s: share of sessions that begin from the user's last prompt before, if that was only just
            sent; it falls to 1/e where that was `resume_s` ago.
        borrow_share: share of all other prompts that begin from a prompt of any user's.
        borrow_median_s, borrow_sigma: log-normal law of the age of such a prompt. A moment is drawn and the request
            nearest before it is taken, so prompts are borrowed as often as they are used; their popularity
            feeds itself, and decays as this law does (NIRVANA, Figure 5).
        copy_share: share of resumed and borrowed prompts that are not edited.
        style_share: share of the rest, the new prompts, that take their list of modifiers from a style in fashion, in a
            session that never changes the subject; in others it is less, as their chance to stay with it.
    """

    repeat_share: float
    edit_share: float
    return_share: float
    session_contrast: float
    resume_share: float
    resume_s: float
    borrow_share: float
    style_share: float
    borrow_median_s: float
    borrow_sigma: float
    copy_share: float

    def draw(self, visits: Sessions, arrival_s: Floats, rng: np.random.Generator) -> Lineage:
        """Draw the lineage of n requests that arrive at `arrival_s`, (n,) seconds, in `visits`."""
        count = len(arrival_s)
        rows = np.arange(count)
        follows = visits.previous >= 0
        draw = rng.random(count)
        share = max(float(follows.mean()), 1e-9)  # shares are of all requests, draws only of those that follow
        loyal = self._loyalty(visits, min((self.repeat_share + self.edit_share) / share, 1.0), rng)
        repeating = self.repeat_share / max(self.repeat_share + self.edit_share, 1e-9)
        repeats = follows & (draw < loyal * repeating)
        edits = follows & ~repeats & (draw < loyal)
        back = (visits.position >= 2) & (rng.random(count) < self.return_share)
        older = visits.rank - 2 - np.floor(rng.random(count) * np.maximum(visits.position - 1, 1)).astype(np.int64)
        parent = np.where(back, visits.ordered[np.where(back, older, 0)], visits.previous)

        away_s = np.where(visits.own_previous >= 0, arrival_s - arrival_s[visits.own_previous], np.inf)
        resumes = ~follows & (rng.random(count) < self.resume_share * np.exp(-away_s / self.resume_s))
        others = ~(repeats | edits | resumes)
        age_s = lognormal(self.borrow_median_s, self.borrow_sigma, count, rng)
        lender = np.minimum(np.searchsorted(arrival_s, arrival_s - age_s, side="right"), rows) - 1
        borrows = others & (lender >= 0) & (rng.random(count) < self.borrow_share)
        parent = np.where(resumes, visits.own_previous, np.where(borrows, lender, parent))
        edits |= (resumes | borrows) & (rng.random(count) >= self.copy_share)
        new = others & ~borrows
        styled = new & (rng.random(count) < self.style_share * loyal)
        parent = np.where(new, rows, parent)
        return Lineage(parent=parent, edits=edits, new=new, styled=styled, root=inherited_from(new, parent))

    def _loyalty(self, visits: Sessions, mean: float, rng: np.random.Generator) -> Floats:
        """The chance that a request of a running session stays with its subject, (n,): a beta law over sessions."""
        if self.session_contrast == 0.0 or not 0.0 < mean < 1.0:
            return np.full(len(visits.session), mean)
        alike = 1.0 / self.session_contrast - 1.0
        loyal: Floats = rng.beta(mean * alike, (1.0 - mean) * alike, visits.count)[visits.session]
        return loyal
