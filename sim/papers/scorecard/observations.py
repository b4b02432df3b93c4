"""What NIRVANA saw in its traffic, looked for in the trace that is replayed: no targets, since no number is printed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from conf.atomic import atomic_write
from sim.core.errors import ConfigError
from sim.papers.scorecard.finished import Finished, Runs, Unmeasured
from sim.papers.scorecard.key import digest
from sim.papers.scorecard.nirvana import LONG_PROMPT, similarity_of_hits
from traces.describe.prompt_similarity import GROUPS, prompt_similarity
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
T = TypeVar("T", Trace, Finished)


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of the paper's and what one trace says of it.

    Attributes:
        what: the observation, in words, and where the paper makes it.
        numbers, as_seen: what was measured, and whether the trace shows it; empty and None, with a reason, if it could
            not be measured.
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
        seen = [_seen(ALIKE_WHAT, _alike, trace), _seen(SURVIVE_WHAT, _surviving, trace)]
        with atomic_write(kept, ConfigError) as file:
            file.write_bytes(known.dump_json(seen))
    return [*seen, _seen(SHORT_WHAT, _short, run)]


def _seen(what: str, look: Callable[[T], tuple[Numbers, bool]], at: T) -> Observation:
    try:
        numbers, as_seen = look(at)
    except Unmeasured as absent:
        return Observation(what, {}, None, str(absent))
    return Observation(what, {name: round(float(value), 6) for name, value in numbers.items()}, as_seen)


def _alike(trace: Trace) -> tuple[Numbers, bool]:
    first = max(0, len(trace) - ALIKE)
    last = trace.table.slice(first).combine_chunks()
    last_trace = replace(trace, table=last, digest=content_digest(last), path=None)
    timed = trace.notes.get("arrival_s") != ORDER_ONLY
    names = pc.fill_null(pc.index_in(last["user_id"], value_set=last["user_id"].unique().drop_null()), -1)
    user = np.asarray(names, np.int64)
    found = prompt_similarity(
        embed(last_trace, HashedNgrams(), progress=False), user, last_trace.arrival_s if timed else None
    )
    if found is None:
        raise Unmeasured("the trace names no users")
    if any(not len(found.pairs[group]) for group in GROUPS):
        raise Unmeasured("the trace has no times, or no user with two sessions")
    session, own, other = means = [round(float(found.pairs[group].mean()), 6) for group in GROUPS]
    told = (f"mean cosine, {group}:" for group in GROUPS)
    return dict(zip(told, means, strict=True)), session > own > other


def _surviving(trace: Trace) -> tuple[Numbers, bool]:
    if trace.notes.get("arrival_s") == ORDER_ONLY:
        raise Unmeasured("the trace has no times")
    found = survival(trace, HashedNgrams())
    left = None if found is None else found.left.get(FOLLOWED)
    if found is None or left is None:
        raise Unmeasured("the trace has not two whole days with enough prompts, or no clusters")
    names = (f"left on day {day} of the first day's top:" for day in found.days)
    return dict(zip(names, left, strict=True)), bool(left[-1] >= 0.5)


def _short(run: Finished) -> tuple[Numbers, bool]:
    short, long = similarity_of_hits(run, short=True), similarity_of_hits(run, short=False)
    return {"mean similarity, short:": short, "long:": long}, short > long
