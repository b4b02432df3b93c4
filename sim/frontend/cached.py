"""Cached front end: start a request from the artifact of a similar earlier request."""

from array import array
from dataclasses import dataclass, field
from math import nan
from typing import Any

from mezzotint.backends.base import standalone_cost
from mezzotint.settings.ranges import Seconds
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.index import VectorIndex
from mezzotint.sim.cache.store import ArtifactStore
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.plan import (
    DECLARED,
    EMPTY,
    FORGONE_MATCH,
    HIT,
    MISS,
    MISSING,
    NO_DATABASE,
    NO_STORE,
    PREDICTED_MISS,
    STALE,
    Plan,
)
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import FRONT_END
from mezzotint.sim.frontend.declared_hits import FORGONE, DeclaredHits
from mezzotint.sim.frontend.delay import Constant, RowDelays, as_delay
from mezzotint.sim.frontend.match_predictor import Always
from mezzotint.sim.protocols import Admission, Delay, FrontEnd, MatchPredictor, RequestColumn, Run, Selector

make_tuple = tuple.__new__
"""Makes a plan of the values of all its fields, in half the time of a call of Plan."""


@dataclass(slots=True)
class CachedFrontEnd(FrontEnd):
    """Embed the prompt, predict a match, search the cache, and start from an artifact that is similar enough.

    Serves NIRVANA (latents, K by text similarity, one model), MoDM (final images, K by text-to-image similarity, hits
    on the small model) and retrieval. In retrieval K = N: the image found is the answer.

    Everything is decided when the request arrives. The request is generated in full if no match is predicted or found,
    or if a service is down (after its timeout). The same happens if the artifact was deleted before the index learnt of
    it: NIRVANA's Algorithm 1 announces deletions in no other way. Failed attempts count as ``search_s``.

    Args:
        cache: artifacts of earlier requests.
        selector: similarity -> K.
        admission: which requests leave artifacts.
        hit_role, miss_role: roles of the models for a hit, unless K = N, and for a miss; one role for latents.
        embed_s: seconds to embed the prompt, a number or a distribution, as are the next two.
        search_s: seconds for one search (NIRVANA's l_s, 4.1; MoDM, 5.2).
        fetch_s: seconds to fetch an artifact, on the worker (NIRVANA's l_r, 4.1).
        index: when a stored artifact can be found; by default at once.
        store: when an artifact can be fetched; by default always.
        match_predictor: which prompts to search for; by default all.
        hits: shares of requests by K, which replace the search. Then nothing is stored: the cache's size, similarity,
            admission, eviction and match predictor have no effect, and the delays and outages do.
    """

    cache: ArtifactCache
    selector: Selector
    admission: Admission
    hit_role: str = "large"
    miss_role: str = "large"
    embed_s: Seconds | Delay = 0.0
    search_s: Seconds | Delay = 0.0
    fetch_s: Seconds | Delay = 0.0
    index: VectorIndex = field(default_factory=VectorIndex)
    store: ArtifactStore = field(default_factory=ArtifactStore)
    match_predictor: MatchPredictor = field(default_factory=Always)
    hits: DeclaredHits | None = None
    _run: Run = field(init=False, repr=False)
    _captures_latents: bool = field(init=False, default=False)
    _predicts: bool = field(init=False, default=False)
    _draws: "array[int]" = field(init=False, default_factory=lambda: array("h"), repr=False)
    """Declared hits of the served rows: K, or a code of DeclaredHits."""
    _plan_by_draw: dict[int, Plan] = field(init=False, default_factory=dict, repr=False)
    """Plans of declared hits; empty if they depend on the row or the time, by a random delay or an outage."""
    _first: int = field(init=False, default=0)
    _has_outages: bool = field(init=False, default=False)
    """True if the index or the store has outages."""
    _checked_skips: set[int] = field(init=False, default_factory=set, repr=False)
    """Valid numbers of steps that the selector returned so far."""
    _wasted_s: RequestColumn = field(init=False, repr=False)
    _hit_model: str = field(init=False, repr=False)
    _miss_model: str = field(init=False, repr=False)
    _delays: dict[str, Delay] = field(init=False, repr=False)
    _embed_delay: RowDelays = field(init=False, repr=False)
    _search_delay: RowDelays = field(init=False, repr=False)
    _fetch_delay: RowDelays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._delays = {name: as_delay(getattr(self, name)) for name in FRONT_END}
        if self.cache.latents_at and self.hit_role != self.miss_role:
            raise ConfigError(
                f"frontend.hit_role: found {self.hit_role!r} beside miss_role {self.miss_role!r}; a latent is bound to "
                "the model that made it: use one role for both, or cache final images (latents_at: [])"
            )

    def bind(self, run: Run) -> None:
        """Bind the parts, and insert the rows to preload as full generations made at time 0."""
        self._run = run
        self._captures_latents = run.backend.live and bool(self.cache.latents_at)
        self._hit_model, self._miss_model = run.model(self.hit_role).name, run.model(self.miss_role).name
        self._embed_delay, self._search_delay, self._fetch_delay = (
            RowDelays(delay, run.rng(FRONT_END[name]), run.workload.preload) for name, delay in self._delays.items()
        )
        self._has_outages = bool(self.index.outages or self.store.outages)
        if self.hits is None:
            self._bind_cache(run)
        else:
            self._declare_hits(run, self.hits)
        self._wasted_s = run.add_column("wasted_s", default=0.0, public=False, total="cache.predictor.wasted_search_s")
        run.gauge("database_up", self.index.outage.is_up)
        run.gauge("store_up", self.store.outage.is_up)
        self._record_assumptions(run)
        if self.hits is None:
            self._fill_cache(run)

    def _bind_cache(self, run: Run) -> None:
        self.admission.bind(run)
        self._predicts = not isinstance(self.match_predictor, Always)
        self.cache.bind(run, self.selector, self.index, self.match_predictor if self._predicts else None)
        self.match_predictor.bind(run, self.cache.similarity)

    def _fill_cache(self, run: Run) -> None:
        """Insert the rows to preload, and make the index serve."""
        for row in range(run.workload.preload):
            request = run.request(row, 0.0)
            run.assign(request, Plan(self._miss_model))
            if self._captures_latents:
                self._plan_capture(request)
            if run.backend.live:
                work = run.work(request)
                standalone_cost(run.backend, work)
                request.made = work.made
            self.cache.insert(request, 0.0)
        self.index.start_serving()

    def _declare_hits(self, run: Run, hits: DeclaredHits) -> None:
        if run.backend.live:
            raise ConfigError(
                "hits: declared beside a live backend, which needs an artifact to start from; leave it out"
            )
        self._draws = hits.draw(run, self.selector, self.cache.latents_at)
        self._first = run.workload.preload
        if all(isinstance(delay, Constant) for delay in self._delays.values()) and not self._has_outages:
            self._plan_by_draw = {drawn: self._declared_plan(drawn, self._first, 0.0) for drawn in set(self._draws)}
        run.assume("hits by K", hits.describe(self.selector), hits.basis)
        run.assume(
            "cache", "not simulated: its size, similarity, eviction and predictor have no effect", "hits are declared"
        )

    def admit(self, request: Request, now_s: float) -> float:
        if self._draws:
            return self._admit_declared(request, now_s)
        row = request.row
        took_s = self._embed_delay.for_row(row)
        if self._predicts:
            if self.index.due_s <= now_s:  # before the predictor decides: it learns of what the index applies
                self.index.advance(now_s)
            if not self.match_predictor.expects(row, now_s):
                match = self.cache.find(request)
                forgone = match is not None and self.selector.skip(match[2]) > 0  # its similarity
                return self._generate(request, FORGONE_MATCH if forgone else PREDICTED_MISS, took_s)
        if self._has_outages and self.index.outage.is_down(now_s):
            return self._generate(request, NO_DATABASE, took_s + self.index.timeout_s)
        return self._search_cache(request, now_s, took_s)

    def _admit_declared(self, request: Request, now_s: float) -> float:
        row = request.row
        drawn = self._draws[row - self._first]
        plan = self._plan_by_draw.get(drawn) or self._declared_plan(drawn, row, now_s)
        if plan.source == DECLARED:
            return self._start_from(request, plan)
        if plan.lookup == MISS:
            self._wasted_s[row] = self._search_delay.for_row(row)
        self._run.assign(request, plan)
        return plan.search_s

    def _declared_plan(self, drawn: int, row: int, now_s: float) -> Plan:
        """Return the plan of what was drawn for ``row``, with the delays and outages of a search."""
        took_s = self._embed_delay.for_row(row)
        if drawn < 0:
            return self._full_plan(FORGONE_MATCH if drawn == FORGONE else PREDICTED_MISS, took_s)
        if self._has_outages and self.index.outage.is_down(now_s):
            return self._full_plan(NO_DATABASE, took_s + self.index.timeout_s)
        took_s += self._search_delay.for_row(row)
        if drawn == 0:
            return self._full_plan(MISS, took_s)
        if self._has_outages and self.store.outage.is_down(now_s):
            return self._full_plan(NO_STORE, took_s + self.store.timeout_s)
        return self._hit_plan(row, DECLARED, drawn, took_s)

    def _search_cache(self, request: Request, now_s: float, took_s: float) -> float:
        """Search, and start from the match if it can be used; return the seconds of planning, ``took_s`` included."""
        searched_s = self._search_delay.for_row(request.row)
        match = self.cache.find(request)
        if match is None:
            similarity, k = nan, 0
        else:
            entry, source, similarity = match
            if similarity != similarity:
                raise SimulationError(
                    f"{class_name(self.cache.similarity)} returned {similarity} from similar; expected a number"
                )
            k = self.selector.skip(similarity)
        if k == 0:
            self._wasted_s[request.row] = searched_s
            return self._generate(request, MISS, took_s + searched_s, similarity)
        if k not in self._checked_skips:
            self._check_skip(k)
        if self._has_outages and self.store.outage.is_down(now_s):
            return self._generate(request, NO_STORE, took_s + (searched_s + self.store.timeout_s), similarity)
        if source is None:
            failed_s = self._fetch_delay.for_row(request.row)
            return self._generate(request, STALE, took_s + (searched_s + failed_s), similarity)
        state = self.cache.get(entry, k, now_s, request)
        if state is None:
            return self._generate(request, EMPTY, took_s + searched_s, similarity)
        stored_k, age_s, resize_s, artifact = state
        plan = self._hit_plan(request.row, source, stored_k, took_s + searched_s, similarity, age_s)
        if resize_s:
            # On the worker, as the fetch.
            plan = plan._replace(fetch_s=plan.fetch_s + resize_s)
        return self._start_from(request, plan, artifact)

    def _check_skip(self, k: int) -> None:
        if not 0 < k <= self.selector.of_steps or k % 1:
            raise SimulationError(
                f"{class_name(self.selector)} skips {k} steps; expected a whole number from 0 to "
                f"{self.selector.of_steps}"
            )
        self._checked_skips.add(k)

    def _record_assumptions(self, run: Run) -> None:
        constant = [name for name, delay in self._delays.items() if isinstance(delay, Constant) and delay.seconds]
        if constant:
            run.assume(
                "times that are the same for every request", ", ".join(constant), "no paper gives their distribution"
            )
        for name, service in (("index", self.index), ("store", self.store)):
            if service.outages:
                run.assume(f"time-out of the {name} [s]", service.timeout_s, "a setting; not published")

    def _full_plan(self, lookup: int, took_s: float, similarity: float = nan) -> Plan:
        """Return the plan of a full generation, after a lookup that found nothing to start from."""
        return make_tuple(
            Plan, (self._miss_model, 0, 1, 0.0, lookup, took_s, MISSING, nan, similarity, 0.0, False, (), None)
        )

    def _hit_plan(
        self, row: int, source: int, k: int, took_s: float, similarity: float = nan, age_s: float = nan
    ) -> Plan:
        """Return the plan of the request in ``row`` from the artifact of ``source`` on."""
        model, of_steps, refine = self._hit_model, self.selector.of_steps, not self.cache.latents_at
        fetch_s = self._fetch_delay.for_row(row)
        return make_tuple(
            Plan, (model, k, of_steps, 0.0, HIT, took_s, source, age_s, similarity, fetch_s, refine, (), None)
        )

    def _generate(self, request: Request, lookup: int, took_s: float, similarity: float = nan) -> float:
        """Generate ``request`` in full; return the seconds of planning."""
        self._run.assign(request, self._full_plan(lookup, took_s, similarity))
        if self._captures_latents:
            self._plan_capture(request)
        return took_s

    def _start_from(self, request: Request, plan: Plan, artifact: Any = None) -> float:
        """Start ``request`` from an artifact by ``plan``; return the seconds of planning."""
        self._run.assign(request, plan)
        if request.skipped == 0:  # K is less than one step of a model of few steps
            return self._generate(request, EMPTY, plan.search_s, plan.similarity)
        request.artifact = artifact
        if self._captures_latents:
            self._plan_capture(request)
        if request.skipped >= request.steps:
            self._run.assign(request, plan.on(None))
        return plan.search_s

    def _plan_capture(self, request: Request) -> None:
        """Make a live backend keep the states after K that this run passes through."""
        of_steps = self.selector.of_steps
        passed = [k for k in self.cache.latents_at if k > request.plan.k]
        request.capture = {k: k * request.steps // of_steps for k in passed}

    def completed(self, request: Request) -> bool:
        return not self._draws and self.admission.admits(request)

    def insert(self, request: Request, now_s: float) -> None:
        self.cache.insert(request, now_s)
