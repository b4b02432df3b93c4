"""Front ends: what decides which model runs for a request, and from which step."""

from dataclasses import dataclass, field

from backends.base import standalone_cost
from conf.ranges import Seconds, Share
from sim.cache.cache import ArtifactCache, State
from sim.cache.index import VectorIndex
from sim.cache.store import ArtifactStore
from sim.core.culprit import of, yes
from sim.core.errors import ConfigError, SimulationError
from sim.core.model import Model
from sim.core.request import (
    EMPTY,
    FORGONE_MATCH,
    HIT,
    MISS,
    NO_DATABASE,
    NO_STORE,
    PREDICTED_MISS,
    STALE,
    Request,
)
from sim.core.streams import FRONT_END
from sim.frontend.delay import Constant, Draws, delay
from sim.frontend.match_predictor import Always
from sim.protocols import Admission, Delay, FrontEnd, MatchPredictor, RequestColumn, Run, Selector


@dataclass(slots=True)
class Direct(FrontEnd):
    """Every request runs in full on the model of one ``role``: no cache, no decision, no time.

    Args:
        role: of the model.
        skip_fraction: the share of the steps of every request that is not run, as if a cache had spared it: PatchedServe
            stands NIRVANA in like this (8), SwiftDiffusion too (6.1). Not on a live backend.
        fetch_s: seconds until what they go on from is there, on the worker.
        refine: whether that is an image, which is encoded first.
    """

    role: str = "large"
    skip_fraction: Share = 0.0
    fetch_s: Seconds = 0.0
    refine: bool = False
    _run: Run = field(init=False, repr=False)
    _model: Model = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self._model = run.model(self.role)
        if self.skip_fraction:
            if run.backend.live:
                raise ConfigError("frontend.skip_fraction: a live backend runs every step; choose another frontend=")
            run.assume(
                "share of all steps that is not run",
                self.skip_fraction,
                "frontend.skip_fraction: stands for a cache's hits",
            )

    def admit(self, request: Request, now_s: float) -> float:
        self._run.assign(request, self._model)
        if self.skip_fraction:
            request.skipped = round(self.skip_fraction * request.steps)
            request.steps_left = request.steps - request.skipped
            request.refine, request.fetch_s = self.refine, self.fetch_s
        return 0.0


@dataclass(slots=True)
class CachedFrontEnd(FrontEnd):
    """Embed, predict, search the cache, and start from what is found there when it is similar enough.

    One frontend for NIRVANA (latents, K by text similarity, the same model), MoDM (final images, K by
    text-to-image similarity, a hit on the small model) and retrieval (K = N: the image found is the answer).

    Everything is decided as the services are when the request arrives. A request is generated in full when no match is
    predicted, when none is found, when the state wanted was deleted before the database learnt of it (NIRVANA's
    Algorithm 1 tells of a deletion in no other way), and when a service is down (after its timeout). Attempts in vain
    are ``search_s``.

    Args:
        cache: what earlier requests left behind.
        selector: similarity -> K.
        admission: whose artifacts are kept.
        hit_role, miss_role: the roles of the models that run a hit, unless K = N, and a miss; one role for latents.
        embed_s: seconds to embed the prompt; this and the next two are numbers or distributions.
        search_s: seconds for one search (NIRVANA's l_s, 4.1; MoDM, 5.2).
        fetch_s: seconds to fetch an artifact, on the worker (NIRVANA's l_r, 4.1).
        index: when what is stored can be found; by default at once.
        store: when artifacts can be fetched; by default always.
        match_predictor: which prompts are searched for; by default all.
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
    _run: Run = field(init=False, repr=False)
    _captures: bool = field(init=False, default=False)
    _predicts: bool = field(init=False, default=False)
    _interrupted: bool = field(init=False, default=False)
    """Whether the database or the store is ever out of service."""
    _skips: set[int] = field(init=False, default_factory=set, repr=False)
    """Numbers of steps that the selector returned so far."""
    _wasted: RequestColumn = field(init=False, repr=False)
    _hit_model: Model = field(init=False, repr=False)
    _miss_model: Model = field(init=False, repr=False)
    _delays: dict[str, Delay] = field(init=False, repr=False)
    _embed: Draws = field(init=False, repr=False)
    _search: Draws = field(init=False, repr=False)
    _fetch: Draws = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._delays = {name: delay(getattr(self, name)) for name in FRONT_END}
        if self.cache.latents_at and self.hit_role != self.miss_role:
            raise ConfigError(
                f"frontend.hit_role: found {self.hit_role!r} beside miss_role {self.miss_role!r}; a latent is bound to the "
                "model that made it: use one role for both, or cache final images (latents_at: [])"
            )

    def bind(self, run: Run) -> None:
        """The rows to preload are inserted here, as full generations made at time 0."""
        self._run = run
        self._captures = run.backend.live and bool(self.cache.latents_at)
        self._hit_model = run.model(self.hit_role)
        self._miss_model = run.model(self.miss_role)
        self._embed, self._search, self._fetch = (
            Draws(each, run.rng(FRONT_END[name]), run.workload.preload) for name, each in self._delays.items()
        )
        self.admission.bind(run)
        self._predicts = not isinstance(self.match_predictor, Always)
        self._interrupted = bool(self.index.outages or self.store.outages)
        self.cache.bind(run, self.selector, self.index, self.match_predictor if self._predicts else None)
        self.match_predictor.bind(run, self.cache.similarity)
        self._wasted = run.add_column("wasted_s", default=0.0, public=False, total="cache.predictor.wasted_search_s")
        run.gauge("database_up", self.index.outage.up_at)
        run.gauge("store_up", self.store.outage.up_at)
        self._assume(run)
        for row in range(run.workload.preload):
            request = run.request(row, 0.0)
            self._in_full(request)
            if run.backend.live:
                work = run.work(request)
                standalone_cost(run.backend, work)
                request.made = work.made
            self.cache.insert(request, 0.0)
        self.index.settle(0.0)

    def admit(self, request: Request, now_s: float) -> float:
        self._run.assign(request, self._miss_model)
        if self._captures:
            self._capture(request)
        row = request.row
        took_s = self._embed.of(row)
        if self.index.due_s <= now_s:
            self.index.advance(now_s)
        if self._predicts and not yes(self.match_predictor.expects(row, now_s), self.match_predictor, "expects"):
            match = self.cache.find(request)
            forgone = match is not None and self.selector.skip(match.similarity) > 0
            request.lookup = FORGONE_MATCH if forgone else PREDICTED_MISS
        elif self._interrupted and self.index.outage.down(now_s):
            took_s += self.index.timeout_s
            request.lookup = NO_DATABASE
        else:
            searched_s = self._search.of(row)
            request.lookup, tried_s = self._look(request, now_s)
            if request.lookup == MISS:
                self._wasted[row] = searched_s
            took_s += searched_s + tried_s
        request.search_s = took_s
        return took_s

    def _look(self, request: Request, now_s: float) -> tuple[int, float]:
        """Search, and start from what is found: returns the outcome, and seconds spent on a fetch in vain."""
        match = self.cache.find(request)
        if match is None:
            return MISS, 0.0
        request.similarity = similarity = match.similarity
        if similarity != similarity:
            raise SimulationError(f"{of(self.cache.similarity)} returned {similarity} from similar; expected a number")
        k = self.selector.skip(similarity)
        if k == 0:
            return MISS, 0.0
        if k not in self._skips:
            self._check_skip(k)
        if self._interrupted and self.store.outage.down(now_s):
            return NO_STORE, self.store.timeout_s
        if match.row is None:
            return STALE, self._fetch.of(request.row)
        state = self.cache.get(match, k, now_s, request)
        if state is None:
            return EMPTY, 0.0
        return self._start_from(request, match.row, state), 0.0

    def _check_skip(self, k: int) -> None:
        if not 0 < k <= self.selector.of_steps or k % 1:
            raise SimulationError(
                f"{of(self.selector)} skips {k} steps; expected a whole number from 0 to {self.selector.of_steps}"
            )
        self._skips.add(k)

    def _assume(self, run: Run) -> None:
        constant = [name for name, each in self._delays.items() if isinstance(each, Constant) and each.seconds]
        if constant:
            run.assume(
                "times that are the same for every request", ", ".join(constant), "no paper gives their distribution"
            )
        for name, service in (("index", self.index), ("store", self.store)):
            if service.outages:
                run.assume(f"time-out of the {name} [s]", service.timeout_s, "a setting; not published")

    def _in_full(self, request: Request) -> None:
        self._run.assign(request, self._miss_model)
        if self._captures:
            self._capture(request)

    def _start_from(self, request: Request, row: int, state: State) -> int:
        request.k, request.of_steps = state.k, self.selector.of_steps
        self._run.assign(request, self._hit_model)
        if request.skipped == 0:  # a model of so few steps that K is less than one of them
            request.k = 0
            self._in_full(request)
            return EMPTY
        request.source = row
        request.source_age_s = state.age_s
        request.artifact = state.artifact
        request.fetch_s = self._fetch.of(request.row)
        request.refine = not self.cache.latents_at
        if self._captures:
            self._capture(request)
        if request.skipped >= request.steps:
            request.model = None
        return HIT

    def _capture(self, request: Request) -> None:
        """Have a live backend keep the states after K that this run passes through."""
        of_steps = self.selector.of_steps
        passed = [k for k in self.cache.latents_at if k > request.k]
        request.capture = {k: k * request.steps // of_steps for k in passed}

    def completed(self, request: Request) -> bool:
        return self.admission.admits(request)

    def insert(self, request: Request, now_s: float) -> None:
        self.cache.insert(request, now_s)
