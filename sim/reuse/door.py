"""Front doors: what decides which model runs for a request, and from which step."""

from dataclasses import dataclass, field

from sim.engine import Engine, Model
from sim.errors import ConfigError
from sim.request import Request
from sim.reuse.admission import Admission
from sim.reuse.cache import Cache, State
from sim.reuse.selector import Selector


@dataclass(slots=True)
class Direct:
    """Every request runs in full on the model of one ``role``: no cache, no decision, no time."""

    role: str = "large"
    _engine: Engine = field(init=False, repr=False)
    _model: Model = field(init=False, repr=False)

    def bind(self, engine: Engine) -> None:
        """See Door.bind."""
        self._engine = engine
        self._model = engine.model(self.role)

    def admit(self, request: Request, now_s: float) -> float:
        """See Door.admit."""
        self._engine.assign(request, self._model)
        return 0.0

    def completed(self, request: Request) -> bool:
        """See Door.completed."""
        return False

    def insert(self, request: Request, now_s: float) -> None:
        """See Door.insert."""


@dataclass(slots=True)
class Reuse:
    """Embed, search the cache, and start from what is found there when it is similar enough.

    One door for NIRVANA (latents, K by text similarity, the same model), MoDM (final images, K by
    text-to-image similarity, a hit on the small model) and retrieval (K = N: the image found is the answer).

    Args:
        cache: what earlier requests left behind.
        selector: similarity -> K.
        admission: whose artifacts are kept.
        hit_role: the role of the model that runs a hit, unless K = N.
        miss_role: the role of the model that runs a miss.
        embed_s: seconds to embed the prompt.
        search_s: seconds for one search (NIRVANA's l_s, 4.1; MoDM, 5.2).
        fetch_s: seconds to fetch an artifact, on the worker (NIRVANA's l_r, 4.1).

    Raises:
        ConfigError: a negative time, or latents of one model for another to resume.
    """

    cache: Cache
    selector: Selector
    admission: Admission
    hit_role: str = "large"
    miss_role: str = "large"
    embed_s: float = 0.0
    search_s: float = 0.0
    fetch_s: float = 0.0
    _engine: Engine = field(init=False, repr=False)
    _hit_model: Model = field(init=False, repr=False)
    _miss_model: Model = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("embed_s", "search_s", "fetch_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"door.{name}: found {getattr(self, name)}, expected 0 or more seconds")
        if self.cache.latents_at and self.hit_role != self.miss_role:
            raise ConfigError(
                f"door.hit_role: found {self.hit_role!r} beside miss_role {self.miss_role!r}; a latent is bound to the "
                "model that made it: use one role for both, or cache final images (latents_at: [])"
            )

    def bind(self, engine: Engine) -> None:
        """See Door.bind. The rows to preload are inserted here, as full generations made at time 0."""
        self._engine = engine
        self._hit_model = engine.model(self.hit_role)
        self._miss_model = engine.model(self.miss_role)
        self.admission.bind(engine)
        self.cache.bind(engine, self.selector)
        engine.alpha = self.selector.alpha
        for row in range(-engine.preload, 0):
            request = engine.request(row, 0.0)
            self._in_full(request)
            if engine.backend.live:
                request.made = engine.backend.whole(engine.work(request)).artifact
            self.cache.insert(request, 0.0)

    def admit(self, request: Request, now_s: float) -> float:
        """See Door.admit. The search sees the cache as it is when the request arrives."""
        self._in_full(request)
        took_s = request.search_s = self.embed_s + self.search_s
        request.searched = True
        match = self.cache.find(request)
        if match is None:
            return took_s
        request.similarity = match.similarity
        k = self.selector.skip(match.similarity)
        state = self.cache.get(match, k, now_s, request) if k > 0 else None
        if state is not None:
            self._start_from(request, match.row, state)
        return took_s

    def _in_full(self, request: Request) -> None:
        request.k = request.skipped = 0
        self._engine.assign(request, self._miss_model)
        self._capture(request)

    def _start_from(self, request: Request, row: int, state: State) -> None:
        request.k, request.of_steps = state.k, self.selector.of_steps
        self._engine.assign(request, self._hit_model)
        if request.skipped == 0:  # a model of so few steps that K is less than one of them
            self._in_full(request)
            return
        request.source = row
        request.source_age_s = state.age_s
        request.artifact = state.artifact
        request.fetch_s = self.fetch_s
        request.refine = not self.cache.latents_at
        self._capture(request)
        if request.skipped >= request.steps:
            request.model = None

    def _capture(self, request: Request) -> None:
        """What a live backend must keep on the way: the states after K that this run passes through."""
        if self._engine.backend.live and self.cache.latents_at:
            of_steps = self.selector.of_steps
            passed = [k for k in self.cache.latents_at if k > request.k]
            request.capture = {k: k * request.steps // of_steps for k in passed}

    def completed(self, request: Request) -> bool:
        """See Door.completed."""
        return self.admission.admits(request)

    def insert(self, request: Request, now_s: float) -> None:
        """See Door.insert."""
        self.cache.insert(request, now_s)
