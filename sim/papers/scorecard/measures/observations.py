"""NIRVANA's observations of its traffic, tested on the replayed trace; not targets, since no number is printed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from mezzotint.files.digest import keep, read_kept
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.nirvana import LONG_PROMPT, similarity_of_hits
from mezzotint.sim.run.refusal import warn
from mezzotint.sim.run.run_key import digest
from mezzotint.traces.describe.prompts.prompt_similarity import GROUPS, prompt_similarity
from mezzotint.traces.describe.prompts.survival import survival
from mezzotint.traces.encoders.embeddings import embed
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace

COMPARED = 50_000
"""Last requests of the trace whose prompts are compared with each other."""

SYNTHETIC_REQUESTS = 600_000
"""Requests of a synthetic trace: four days at 100/min."""

CLUSTERS = (0.5, 10)
"""Distance and percentage of the clusters whose survival is measured: the widest of NIRVANA's (Figure 5)."""

Numbers = dict[str, float]
T = TypeVar("T", Trace, Finished)


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of the paper, measured on one trace.

    Attributes:
        what: the observation, in words, and its place in the paper.
        numbers: the measured values; empty if it could not be measured.
        as_seen: True if the trace shows it too; None, with a reason, if it could not be measured.
    """

    what: str
    numbers: Numbers
    as_seen: bool | None
    reason: str | None = None

    def sentence(self) -> str:
        """Return the finding in words, made from the numbers."""
        if self.as_seen is None:
            return f"not measured: {self.reason}"
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in self.numbers.items())
        changes = ", ".join(f"{later - first:+.3f}" for first, later in pairwise(self.numbers.values()))
        finding = "as in the paper" if self.as_seen else "not as in the paper"
        return f"{finding}: {numbers}" + (f" (differences {changes})" if changes else "")


ALIKE_WHAT = "prompts of one session are more alike than a user's in other sessions, and those than strangers' (Fig. 7)"
SURVIVE_WHAT = "popular clusters of prompts stay popular for days (Fig. 5; here: half are left on the last whole day)"
SHORT_WHAT = f"hits on prompts under {LONG_PROMPT} words are of more similar prompts than hits on longer ones (Table 4)"


def observe(served: Runs, work: Path) -> list[Observation]:
    """Measure all observations, on the trace of these runs and on NIRVANA's runs.

    A trace file is read whole and a synthetic trace is `SYNTHETIC_REQUESTS` long, as clusters are followed over days.
    Findings on the trace are cached under ``work``.
    """
    try:
        run = next(iter(served.where(system="nirvana")))
    except (Unmeasured, StopIteration) as error:
        why = str(error) or "not simulated"
        return [Observation(what, {}, None, why) for what in (ALIKE_WHAT, SURVIVE_WHAT, SHORT_WHAT)]
    requests = None if "path" in run.config["trace"] else SYNTHETIC_REQUESTS
    longer = {"trace": run.config["trace"] | {"requests": requests}}
    path = work / f"observed-{digest(longer | {'seed': run.config['seed'], 'compared': COMPARED})}.json"
    adapter = TypeAdapter(list[Observation])
    try:
        of_trace = adapter.validate_python(read_kept(path, warn))
    except ValidationError:
        trace = replace(run, config=run.config | longer).trace()
        of_trace = [_try(ALIKE_WHAT, _compare_prompts, trace), _try(SURVIVE_WHAT, _follow_clusters, trace)]
        keep(path, adapter.dump_python(of_trace, mode="json"), ConfigError)
    return [*of_trace, _try(SHORT_WHAT, _compare_lengths, run)]


def _try(what: str, measure: Callable[[T], tuple[Numbers, bool]], source: T) -> Observation:
    try:
        numbers, as_seen = measure(source)
    except Unmeasured as error:
        return Observation(what, {}, None, str(error))
    return Observation(what, {name: round(float(value), 6) for name, value in numbers.items()}, as_seen)


def _compare_prompts(trace: Trace) -> tuple[Numbers, bool]:
    last_trace = trace.take(np.arange(max(0, len(trace) - COMPARED), len(trace)))
    last = last_trace.known
    arrival_s = None if trace.notes.get("arrival_s") == ORDER_ONLY else last_trace.arrival_s
    names = pc.fill_null(pc.index_in(last["user_id"], value_set=last["user_id"].unique().drop_null()), -1)
    vectors = embed(last_trace, HashedNgrams(), progress=False)
    similarity = prompt_similarity(vectors, np.asarray(names, np.int64), arrival_s)
    if similarity is None:
        raise Unmeasured("the trace names no users")
    if any(not len(similarity.pairs[group]) for group in GROUPS):
        raise Unmeasured("the trace has no times, or no user with two sessions")
    session, same_user, stranger = means = [round(float(similarity.pairs[group].mean()), 6) for group in GROUPS]
    labels = (f"mean cosine, {group}:" for group in GROUPS)
    return dict(zip(labels, means, strict=True)), session > same_user > stranger


def _follow_clusters(trace: Trace) -> tuple[Numbers, bool]:
    if trace.notes.get("arrival_s") == ORDER_ONLY:
        raise Unmeasured("the trace has no times")
    clusters = survival(trace, HashedNgrams())
    left = None if clusters is None else clusters.left.get(CLUSTERS)
    if clusters is None or left is None:
        raise Unmeasured("the trace has not two whole days with enough prompts, or no clusters")
    names = (f"left on day {day} of the first day's top:" for day in clusters.days)
    return dict(zip(names, left, strict=True)), bool(left[-1] >= 0.5)


def _compare_lengths(run: Finished) -> tuple[Numbers, bool]:
    short, long = similarity_of_hits(run, short=True), similarity_of_hits(run, short=False)
    return {"mean similarity, short:": short, "long:": long}, short > long
