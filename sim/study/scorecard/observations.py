"""What NIRVANA saw in its traffic, looked for in the trace that is replayed: no targets, since no number is printed."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from conf.atomic import atomic_write
from sim.errors import ConfigError
from sim.study.scorecard.finished import Finished, Runs, Unmeasured
from sim.study.scorecard.key import digest
from sim.study.scorecard.nirvana import LONG_PROMPT, similarity_of_hits
from traces.describe.likeness import GROUPS, likeness
from traces.describe.survival import survival
from traces.encoders.embeddings import embed
from traces.encoders.ngram import HashedNgrams
from traces.table.digest import content_digest
from traces.table.ingest import ORDER_ONLY
from traces.table.trace import Trace

ALIKE = 50_000
"""Requests at the end of the trace whose prompts are compared with each other."""

MADE = 600_000
"""Requests of a synthetic trace that is looked at: four days at 100/min."""

FOLLOWED = (0.5, 10)
"""Distance and percentage of clusters whose survival is told: the widest of NIRVANA's (Figure 5)."""

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of the paper's and what one trace says of it.

    Attributes:
        what: the observation, in words, and where the paper makes it.
        numbers: what was measured, by name; empty if it could not be.
        as_seen: whether the trace shows it; None if it could not be measured.
        reason: why it could not be.
    """

    what: str
    numbers: Numbers
    as_seen: bool | None
    reason: str | None = None

    def sentence(self) -> str:
        """What the trace says, from the numbers alone."""
        if self.as_seen is None:
            return f"not measured: {self.reason}"
        told = ", ".join(f"{name} {value:.3f}" for name, value in self.numbers.items())
        values = list(self.numbers.values())
        steps = ", ".join(f"{later - first:+.3f}" for first, later in pairwise(values))
        return f"{'as the paper saw it' if self.as_seen else 'otherwise'}: {told}" + (
            f" (from each to the next {steps})" if steps else ""
        )


ALIKE_WHAT = "prompts of one session are more alike than a user's in other sessions, and those than strangers' (Fig. 7)"
SURVIVE_WHAT = "popular clusters of prompts stay popular for days (Fig. 5; here: half are left on the last whole day)"
SHORT_WHAT = f"hits on prompts under {LONG_PROMPT} words are of more similar prompts than hits on longer ones (Table 4)"


def observe(served: Runs, work: Path) -> list[Observation]:
    """All observations, on the trace of these runs and on what it did to NIRVANA.

    The trace is taken whole where it is a file, and `MADE` requests long where it is made: clusters are followed over
    days. What was seen of it is kept under ``work``, as the runs are.

    Args:
        served: runs of which one is of the system nirvana.
    """
    try:
        run = next(iter(served.where(system="nirvana")))
    except (Unmeasured, StopIteration) as absent:
        why = str(absent) or "not simulated"
        return [Observation(what, {}, None, why) for what in (ALIKE_WHAT, SURVIVE_WHAT, SHORT_WHAT)]
    longer = {"trace": run.config["trace"] | {"requests": None if "path" in run.config["trace"] else MADE}}
    kept = work / f"observed-{digest(longer | {'seed': run.config['seed'], 'compared': ALIKE})}.json"
    known = TypeAdapter(list[Observation])
    try:
        seen = known.validate_json(kept.read_bytes())
    except (OSError, ValidationError):
        trace = replace(run, config=run.config | longer).trace()
        seen = [_alike(trace), _surviving(trace)]
        with atomic_write(kept, ConfigError) as file:
            file.write_bytes(known.dump_json(seen))
    return [*seen, _short(run)]


def _alike(trace: Trace) -> Observation:
    first = max(0, len(trace) - ALIKE)
    last = trace.table.slice(first).combine_chunks()
    last_trace = replace(trace, table=last, digest=content_digest(last), path=None)
    timed = trace.notes.get("arrival_s") != ORDER_ONLY
    names = pc.fill_null(pc.index_in(last["user_id"], value_set=last["user_id"].unique().drop_null()), -1)
    user = np.asarray(names, np.int64)
    found = likeness(embed(last_trace, HashedNgrams(), progress=False), user, last_trace.arrival_s if timed else None)
    if found is None:
        return Observation(ALIKE_WHAT, {}, None, "the trace names no users")
    if any(not len(found.pairs[group]) for group in GROUPS):
        return Observation(ALIKE_WHAT, {}, None, "the trace has no times, or no user with two sessions")
    means = {group: round(float(found.pairs[group].mean()), 6) for group in GROUPS}
    session, own, other = means.values()
    return Observation(
        ALIKE_WHAT, {f"mean cosine, {group}:": mean for group, mean in means.items()}, session > own > other
    )


def _surviving(trace: Trace) -> Observation:
    if trace.notes.get("arrival_s") == ORDER_ONLY:
        return Observation(SURVIVE_WHAT, {}, None, "the trace has no times")
    found = survival(trace, HashedNgrams())
    left = None if found is None else found.left.get(FOLLOWED)
    if found is None or left is None:
        return Observation(
            SURVIVE_WHAT, {}, None, "the trace has not two whole days with enough prompts, or no clusters"
        )
    numbers = {
        f"left on day {day} of the first day's top:": round(float(of), 6)
        for day, of in zip(found.days, left, strict=True)
    }
    return Observation(SURVIVE_WHAT, numbers, float(left[-1]) >= 0.5)


def _short(run: Finished) -> Observation:
    try:
        short, long = similarity_of_hits(run, short=True), similarity_of_hits(run, short=False)
    except Unmeasured as absent:
        return Observation(SHORT_WHAT, {}, None, str(absent))
    numbers = {"mean similarity, short:": round(short, 6), "long:": round(long, 6)}
    return Observation(SHORT_WHAT, numbers, short > long)
