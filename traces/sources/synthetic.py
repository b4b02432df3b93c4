"""Synthetic traffic modelled on real services: users, sessions, and prompts that edit earlier ones."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Le

from mezzotint.settings.ranges import Count, Number, Share
from mezzotint.traces.error import TraceError
from mezzotint.traces.synthetic import addons, settings
from mezzotint.traces.synthetic.ancestry import Ancestry, Order, order_by
from mezzotint.traces.synthetic.bounds import check_size
from mezzotint.traces.synthetic.distributions import Floats, Indices, numbered_names, split_weights
from mezzotint.traces.synthetic.prompt_writer import PromptWriter
from mezzotint.traces.synthetic.published import published
from mezzotint.traces.synthetic.session_rate import SessionRate
from mezzotint.traces.synthetic.user_sessions import UserSessions, channels
from mezzotint.traces.synthetic.words import words_digest
from mezzotint.traces.table.nodes import placed
from mezzotint.traces.table.sessions import sessions
from mezzotint.traces.table.trace import LatePrompts, Trace, make
from mezzotint.traces.table.validation import check_number, check_ranges

WHERE, GENERATOR = "synthetic trace", 6

STREAMS = ("visits", "channels", "wording", "sizes", "steps", "images", "models", "addons", "seeds")

SIZE, ONE = (2, 3), (1,)
"""Numbers beside the weight in rows of `sizes`, with and without frames, and in rows of other settings."""

UpToMillion = Annotated[int, Ge(1), Le(10**6)]
Above0 = Annotated[float, Ge(1e-300), Le(1e300)]
Width = Annotated[float, Ge(0), Le(10)]

FITTED: Any = object()
"""Placeholder for the value in conf/trace/synthetic.yaml."""


def _fitted(kind: type) -> type:
    """Set the default of each field of a dataclass to its value in conf/trace/synthetic.yaml."""
    for name in [name for name in kind.__annotations__ if getattr(kind, name) is FITTED]:
        setattr(kind, name, field(default_factory=partial(published, name)))
    return kind


@dataclass(slots=True, kw_only=True)
@_fitted
class Synthetic:
    """The built-in synthetic trace; it needs no file and no network.

    Sessions start as a Poisson process, optionally with a day cycle and bursts (`SessionRate`). They belong to users of
    unequal activity (`UserSessions`), who send requests in one of several channels and sometimes change it. A prompt
    repeats or edits an earlier one of the user, or begins a new subject with the end of another prompt. New text
    consists of stretches of earlier prompts, of the channel or of any user, and of new words (`Ancestry`,
    `PromptWriter`). A history before the first row provides prompts to copy from.

    The classes in `mezzotint.traces.synthetic` explain the parameters. Values, fitted statistics and sources are in
    conf/trace/synthetic.yaml alone, which also has the defaults.

    Each part can be switched off: `day_ratio` 1, `burst_cv` 0, `channels` 1, `repeat_share` 0. A tiny `stay_s` with a
    huge `subject_mass` leaves no edits, and `new_mean` 1 no copies. One row in `sizes`, `steps` or `images` fixes them.
    Without `base_models` or `service` their columns are null.

    Args:
        requests: number of rows.
        history: mean number of requests before the first row, which are not in the trace.
        rate_rpm: mean rate of the whole service over a day, requests per minute.
        channels: number of communities.
        channel_stay: chance that a user's request is in the channel of the one before.
        one_channel: true: the trace is a single channel's, of rate `rate_rpm` / `channels`; false: all of them.
        users: number of possible users; None is `users_per_rpm` x `rate_rpm`, so that a higher rate means more
            users, not busier ones.
        sizes: [width, height, weight] rows, pixels; of videos [width, height, frames, weight].
        steps: [steps, weight] rows.
        images: [images per request, weight] rows.
        base_models: share of each base model.
        service: key in `services` of the nodes and add-ons, or None. With one, requests are named service/node/row.
        services: name -> arguments of `mezzotint.traces.synthetic.addons.AddonService`.
        settings_change, images_change, model_change: chance that a request of a running session draws new values of
            size and steps, of the number of images, of the base model.
        name: name of the trace in reports.

    Raises TraceError if an argument is out of its range.
    """

    requests: Count = FITTED
    history: Annotated[int, Ge(0), Le(10**7)] = FITTED
    rate_rpm: Above0 = FITTED
    channels: UpToMillion = FITTED
    channel_stay: Share = FITTED
    one_channel: bool = FITTED
    day_ratio: Annotated[float, Ge(1), Le(1e6)] = FITTED
    peak_hour: Number = FITTED
    burst_cv: Width = FITTED
    burst_s: Above0 = FITTED
    users: Count | None = FITTED
    users_per_rpm: Above0 = FITTED
    user_sigma: Width = FITTED
    session_mean: Annotated[float, Ge(1)] = FITTED
    session_sigma: Width = FITTED
    session_most: UpToMillion = FITTED
    gap_least_s: Above0 = FITTED
    gap_median_s: Above0 = FITTED
    gap_sigma: Width = FITTED
    repeat_share: Share = FITTED
    stay_s: Above0 = FITTED
    subject_mass: Above0 = FITTED
    near_share: Share = FITTED
    new_mean: Share = FITTED
    new_spread: Above0 = FITTED
    piece_mass: Above0 = FITTED
    change_power: Above0 = FITTED
    edit_power: Above0 = FITTED
    length_words: Above0 = FITTED
    length_shape: Above0 = FITTED
    comma_share: Share = FITTED
    word_skew: Width = FITTED
    word_shift: Annotated[float, Ge(0)] = FITTED
    sizes: Sequence[Sequence[float]] = FITTED
    steps: Sequence[Sequence[float]] = FITTED
    settings_change: Share = FITTED
    images: Sequence[Sequence[float]] = FITTED
    images_change: Share = FITTED
    base_models: Sequence[float] = FITTED
    model_change: Share = FITTED
    service: str | None = FITTED
    services: Mapping[str, Mapping[str, Any]] = FITTED
    name: str = "synthetic"

    def __post_init__(self) -> None:
        check_ranges(WHERE, self)
        check_number(WHERE, "session_mean", self.session_mean, max_value=self.session_most)
        if self.gap_median_s <= self.gap_least_s:
            raise TraceError(f"{WHERE}: gap_median_s={self.gap_median_s!r}, expected more than gap_least_s")
        split_weights(self.sizes, "sizes", SIZE)
        split_weights(self.steps, "steps", ONE)
        split_weights(self.images, "images", ONE)
        for share in self.base_models:
            check_number(WHERE, "base_models", share, above=0.0, max_value=1e15)
        if self.service is not None and self.service not in self.services:
            raise TraceError(f"{WHERE}: service={self.service!r}, expected null or one of {', '.join(self.services)}")
        for name, given in self.services.items():
            addons.service(given, name)
        users = self.users_per_rpm * self.rate_rpm if self.users is None else self.users
        drawn = self.requests * (self.channels if self.one_channel else 1) + int(self.history)
        check_size(WHERE, drawn, self.rate_rpm, users)

    def load(self, rng: np.random.Generator) -> Trace:
        """Draw the trace; the same arguments and stream give the same digest. Prompts are made when they are read."""
        users = self.users if self.users is not None else max(1, round(self.users_per_rpm * self.rate_rpm))
        user_sessions = self._part(UserSessions, clock=self._part(SessionRate), users=users)
        drawn_rows = self.requests * (self.channels if self.one_channel else 1)
        found = 0
        while found < self.requests:
            # a channel's share of the requests is known only once they are drawn
            # a stream for each part: switching one on leaves the others as they were
            streams = dict(zip(STREAMS, deepcopy(rng).spawn(len(STREAMS)), strict=True))
            arrival_s, user, planned = user_sessions.draw(drawn_rows, self.history, self.rate_rpm, streams["visits"])
            own = order_by(user)
            channel = channels(own, self.channels, self.channel_stay, streams["channels"])
            visible = np.flatnonzero((arrival_s >= 0.0) & ((channel == 0) | (not self.one_channel)))
            found, drawn_rows = len(visible), drawn_rows + drawn_rows // 4 + 100
        rows = visible[: self.requests]
        late = self._late_prompts(user, arrival_s, own, channel, rows, streams["wording"])
        arrival_s, user, count = arrival_s[rows], user[rows], len(rows)
        # planned sessions, since those of one user may overlap
        previous = sessions(planned[rows], arrival_s, np.inf).previous

        def inherited(part: str, change: float) -> tuple[Indices, np.random.Generator]:
            return settings.inherited(previous, change, streams[part]), streams[part]

        sizes = settings.numbers(self.sizes, "sizes", SIZE, *inherited("sizes", self.settings_change))
        nothing, ids = pa.nulls(count, pa.list_(pa.string())), numbered_names("r", np.arange(count), count)
        controlnets, loras = nothing, nothing
        if self.service is not None:
            service = addons.service(self.services[self.service], self.service)
            drawn = service.draw(count, streams["addons"])
            controlnets, loras = drawn.controlnets, drawn.loras
            ids = placed(self.service, numbered_names("node", drawn.node, service.nodes), ids)
        return make(
            {
                "request_id": ids,
                "arrival_s": arrival_s,
                "user_id": numbered_names("u", user, users),
                "width": sizes[:, 0],
                "height": sizes[:, 1],
                "frames": sizes[:, 2] if sizes.shape[1] == 3 else None,
                "steps": settings.numbers(self.steps, "steps", ONE, *inherited("steps", self.settings_change))[:, 0],
                "images": settings.numbers(self.images, "images", ONE, *inherited("images", self.images_change))[:, 0],
                "base_model": settings.models(self.base_models, *inherited("models", self.model_change)),
                "controlnets": controlnets,
                "loras": loras,
                "seed": streams["seeds"].integers(0, 2**32, count, dtype=np.int64),
            },
            name=self.name,
            source="synthetic: made up by mezzotint, in the image of published traces",
            notes={"synthetic": True, "generator": GENERATOR, "parameters": self._parameters()},
            where=WHERE,
            late=late,
        )

    def _late_prompts(
        self, user: Indices, arrival_s: Floats, own: Order, channel: Indices, rows: Indices, rng: np.random.Generator
    ) -> LatePrompts:
        """Return the prompts of `rows`; the other arguments are those of all requests, the history among them."""
        seed = repr(rng.bit_generator.seed_seq)
        recipe = [GENERATOR, np.__version__, type(rng.bit_generator).__name__, seed, self._parameters(), words_digest()]

        def write() -> pa.ChunkedArray:
            wording = self._part(PromptWriter, ancestry=self._part(Ancestry))
            made = wording.compose(user, arrival_s, own, order_by(channel), rng)
            return made.texts(rows, self.comma_share)

        return LatePrompts(hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest(), write)

    def _part(self, kind: Any, **given: Any) -> Any:
        return kind(**given, **{each.name: getattr(self, each.name) for each in fields(kind) if each.name not in given})

    def _parameters(self) -> dict[str, Any]:
        """Return the arguments as plain data, since OmegaConf hands over types of its own."""
        given = {**asdict(self), "services": {self.service: self.services[self.service]} if self.service else {}}
        return {name: _plain(value) for name, value in given.items() if name != "name"}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return [_plain(item) for item in value]
