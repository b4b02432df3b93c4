"""Made-up traffic in the image of real services: users, sessions, and prompts that edit earlier ones."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from traces.error import TraceError
from traces.synthetic import settings
from traces.synthetic.bounds import MOST_DRAWN, check_size
from traces.synthetic.clock import Clock
from traces.synthetic.laws import Indices, weighted
from traces.synthetic.lineage import Descent
from traces.synthetic.prompts import Wording
from traces.synthetic.published import published
from traces.synthetic.themes import Themes
from traces.synthetic.visits import Visits
from traces.table.sessions import sessions
from traces.table.trace import Trace, make
from traces.table.validation import check_count, check_number

WHERE = "synthetic trace"

POSITIVE = (
    "rate_rpm", "users_per_rpm", "burst_s", "gap_least_s", "gap_median_s", "resume_s", "borrow_median_s", "style_age_s",
    "theme_days", "sentence_power", "list_power", "style_power", "edit_median",
)  # fmt: skip
WIDTHS = (
    "user_sigma", "session_sigma", "gap_sigma", "borrow_sigma", "edit_sigma", "edit_session_sigma", "theme_sigma",
    "theme_skew", "style_skew", "burst_cv",
)  # fmt: skip
SHARES = (
    "repeat_share", "edit_share", "return_share", "resume_share", "borrow_share", "style_share", "copy_share",
    "add_share", "drop_share", "focus_share", "name_share", "rare_share", "style_follow", "style_fill",
    "settings_change", "images_change", "model_change", "addon_change",
)  # fmt: skip


STREAMS = ("visits", "lineage", "wording", "sizes", "steps", "images", "models", "addons", "seeds")


def _fitted(name: str) -> Any:
    return field(default_factory=lambda: published(name))


@dataclass(slots=True, kw_only=True)
class Synthetic:
    """The built-in trace: needs no file and no network.

    Sessions begin as a Poisson process that follows the hour and has bursts (`Clock`), and fall to users of
    unequal activity (`Visits`). In a session a prompt repeats an earlier one, edits it, or starts something new,
    which may come from another user's prompts (`Descent`). Prompts are words in slots that edits change one by
    one, some of them nobody else's; they are about subjects that drift over days, and end in lists of modifiers
    that are in fashion (`Wording`, `Themes`). Those classes in `traces.synthetic` say what each parameter means.
    The values, the statistic that each one fits and where that was published are in conf/trace/synthetic.yaml, and
    nowhere else; what is not given here is taken from there.

    Each part can be switched off: `day_ratio` 1, `burst_cv` 0, `theme_sigma` 0, `borrow_share`, `resume_share`
    and `style_share` 0, `name_share` and `rare_share` 0, `repeat_share` and `edit_share` 0, one row in `sizes`,
    `steps` or `images`, no `base_models` (the column is null), `service` null (no ControlNets and LoRAs: null).

    Args:
        requests: number of rows.
        rate_rpm: arrivals, requests per minute, in the mean over a day.
        users: people who might send a request; None is `users_per_rpm` x `rate_rpm`, so that there are more
            users, not busier ones, at a higher rate.
        sizes: [width, height, weight] rows, pixels.
        steps: [steps, weight] rows.
        images: [images per request, weight] rows.
        base_models: share of each base model.
        service: whose add-ons: a key of `services`, or None.
        services: by name: `controlnets`, rows of names used together and their weight; `loras_per_request`, shares
            of 0, 1, 2... LoRAs; `lora_names` of them, drawn with weights (1 + rank + `lora_shift`) ** -`lora_skew`.
        settings_change, images_change, model_change, addon_change: chance that a request of a running session
            draws its size, and its steps; its number of images; its base model; its add-ons afresh.
        name: what reports call the trace.

    Raises:
        TraceError: an argument is out of its range.
    """

    requests: int = _fitted("requests")
    rate_rpm: float = _fitted("rate_rpm")
    day_ratio: float = _fitted("day_ratio")
    peak_hour: float = _fitted("peak_hour")
    burst_cv: float = _fitted("burst_cv")
    burst_s: float = _fitted("burst_s")
    users: int | None = _fitted("users")
    users_per_rpm: float = _fitted("users_per_rpm")
    user_sigma: float = _fitted("user_sigma")
    session_mean: float = _fitted("session_mean")
    session_sigma: float = _fitted("session_sigma")
    session_most: int = _fitted("session_most")
    gap_least_s: float = _fitted("gap_least_s")
    gap_median_s: float = _fitted("gap_median_s")
    gap_sigma: float = _fitted("gap_sigma")
    repeat_share: float = _fitted("repeat_share")
    edit_share: float = _fitted("edit_share")
    session_contrast: float = _fitted("session_contrast")
    return_share: float = _fitted("return_share")
    resume_share: float = _fitted("resume_share")
    resume_s: float = _fitted("resume_s")
    borrow_share: float = _fitted("borrow_share")
    borrow_median_s: float = _fitted("borrow_median_s")
    borrow_sigma: float = _fitted("borrow_sigma")
    copy_share: float = _fitted("copy_share")
    style_share: float = _fitted("style_share")
    styles: int = _fitted("styles")
    style_skew: float = _fitted("style_skew")
    style_follow: float = _fitted("style_follow")
    style_age_s: float = _fitted("style_age_s")
    style_fill: float = _fitted("style_fill")
    style_power: float = _fitted("style_power")
    sentence_power: float = _fitted("sentence_power")
    list_power: float = _fitted("list_power")
    name_share: float = _fitted("name_share")
    rare_share: float = _fitted("rare_share")
    edit_median: float = _fitted("edit_median")
    edit_sigma: float = _fitted("edit_sigma")
    edit_session_sigma: float = _fitted("edit_session_sigma")
    focus_share: float = _fitted("focus_share")
    add_share: float = _fitted("add_share")
    drop_share: float = _fitted("drop_share")
    theme_skew: float = _fitted("theme_skew")
    theme_sigma: float = _fitted("theme_sigma")
    theme_days: float = _fitted("theme_days")
    sizes: Sequence[Sequence[float]] = _fitted("sizes")
    steps: Sequence[Sequence[float]] = _fitted("steps")
    settings_change: float = _fitted("settings_change")
    images: Sequence[Sequence[float]] = _fitted("images")
    images_change: float = _fitted("images_change")
    base_models: Sequence[float] = _fitted("base_models")
    model_change: float = _fitted("model_change")
    service: str | None = _fitted("service")
    services: Mapping[str, Mapping[str, Any]] = _fitted("services")
    addon_change: float = _fitted("addon_change")
    name: str = "synthetic"

    def __post_init__(self) -> None:
        check_count(WHERE, "requests", self.requests, MOST_DRAWN)
        if self.users is not None:
            check_count(WHERE, "users", self.users, MOST_DRAWN)
        check_count(WHERE, "session_most", self.session_most, 10**6)
        check_count(WHERE, "styles", self.styles, 10**6)
        for name in POSITIVE:
            check_number(WHERE, name, getattr(self, name), above=0.0)
        for name in WIDTHS:
            check_number(WHERE, name, getattr(self, name), least=0.0, most=10.0)
        for name in SHARES:
            check_number(WHERE, name, getattr(self, name), least=0.0, most=1.0)
        check_number(WHERE, "day_ratio", self.day_ratio, least=1.0, most=1e6)
        check_number(WHERE, "peak_hour", self.peak_hour)
        check_number(WHERE, "session_mean", self.session_mean, least=1.0, most=self.session_most)
        check_number(WHERE, "session_contrast", self.session_contrast, least=0.0, most=0.99)
        check_number(WHERE, "repeat_share + edit_share", self.repeat_share + self.edit_share, most=1.0)
        check_number(WHERE, "add_share + drop_share", self.add_share + self.drop_share, most=1.0)
        if self.gap_median_s <= self.gap_least_s:
            raise TraceError(f"{WHERE}: gap_median_s={self.gap_median_s!r}, expected more than gap_least_s")
        weighted(self.sizes, "sizes", 2)
        weighted(self.steps, "steps", 1)
        weighted(self.images, "images", 1)
        settings.check_shares(self.base_models, "base_models")
        if self.service is not None:
            if self.service not in self.services:
                raise TraceError(
                    f"{WHERE}: service={self.service!r}, expected null or one of {', '.join(self.services)}"
                )
            settings.check_service(self.services[self.service], self.service)
        users = self.users_per_rpm * self.rate_rpm if self.users is None else self.users
        check_size(WHERE, self.requests, self.rate_rpm, users)

    def load(self, rng: np.random.Generator) -> Trace:
        """Make the trace up; the same arguments and stream give the same digest."""
        # a stream for each part: switching one on leaves the others as they were
        streams = dict(zip(STREAMS, rng.spawn(len(STREAMS)), strict=True))
        count, users = self.requests, self._users()
        law = self._part(Visits, clock=self._part(Clock), users=users)
        arrival_s, user, planned = law.draw(count, self.rate_rpm, streams["visits"])
        # by plan, since of too few users one may have several at once
        visits = replace(sessions(planned, arrival_s, np.inf), own_previous=sessions(user, arrival_s).own_previous)
        lineage = self._part(Descent).draw(visits, arrival_s, streams["lineage"])
        wording = self._part(Wording, themes=self._part(Themes))

        def inherited(part: str, change: float) -> tuple[Indices, np.random.Generator]:
            return settings.inherited(visits.previous, change, streams[part]), streams[part]

        sizes = settings.numbers(self.sizes, "sizes", 2, *inherited("sizes", self.settings_change))
        service = None if self.service is None else self.services[self.service]
        controlnets, loras = settings.addons(service, self.service or "", *inherited("addons", self.addon_change))
        return make(
            {
                "request_id": settings.named("r", np.arange(count), count),
                "arrival_s": arrival_s,
                "user_id": settings.named("u", user, users),
                "prompt": wording.compose(lineage, visits.session, arrival_s, streams["wording"]),
                "width": sizes[:, 0],
                "height": sizes[:, 1],
                "steps": settings.numbers(self.steps, "steps", 1, *inherited("steps", self.settings_change))[:, 0],
                "images": settings.numbers(self.images, "images", 1, *inherited("images", self.images_change))[:, 0],
                "base_model": settings.models(self.base_models, *inherited("models", self.model_change)),
                "controlnets": controlnets,
                "loras": loras,
                "seed": streams["seeds"].integers(0, 2**32, count, dtype=np.int64),
            },
            name=self.name,
            source="synthetic: made up by mezzotint, in the image of published traces",
            notes={"synthetic": True, "generator": 3, "parameters": self._parameters()},
            where=WHERE,
        )

    def _users(self) -> int:
        return self.users if self.users is not None else max(1, round(self.users_per_rpm * self.rate_rpm))

    def _part(self, law: Any, **given: Any) -> Any:
        return law(**given, **{each.name: getattr(self, each.name) for each in fields(law) if each.name not in given})

    def _parameters(self) -> dict[str, Any]:
        """The arguments as plain data; configuration hands over types of its own."""
        given = {**asdict(self), "services": {self.service: self.services[self.service]} if self.service else {}}
        return {name: _plain(value) for name, value in given.items() if name != "name"}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return [_plain(item) for item in value]
