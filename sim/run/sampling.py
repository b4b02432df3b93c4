"""Sampling parameters of a trace's requests: what a run counts of them, and what it leaves out and says so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from mezzotint.backends.base import Backend
from mezzotint.settings.assumption import UNMEASURED
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.sampling import Sampling, SamplingColumn, cfg_beside_usual, usual_cfg
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.protocols import Executor
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.table.trace import Trace, make

Images = Literal["batch", "requests", "first"]
Flags = NDArray[np.bool_]


def images_mode(images: Images | None, trace: Trace) -> Images:
    """Return how the images of a request are made: the setting, else ``batch``, and of generated traces ``first``.

    The generator draws images per request from a public log, while the studies that use it count one image a request.
    """
    return images or ("first" if "generator" in trace.notes else "batch")


def split(
    trace: Trace, schedule: Schedule, preload: int, max_tries: int = 1
) -> tuple[Trace, Schedule, NDArray[np.int64]]:
    """Make each image of a request a request of its own, which arrives with it; rows that only fill caches stay.

    The further ones are called ID#2, ID#3 and so on.

    Returns:
        The trace and schedule of these requests, and the number of each served one's image in its request, from 1.

    Raises:
        ConfigError: the loop is closed, or a client may send a request again (``max_tries``).
        TraceError: the trace has such an id already.
    """
    if len(schedule.times) < len(trace) - preload:
        raise ConfigError(
            "images=requests: the images of a request arrive together, and a closed loop sends one request as another "
            "ends; choose images=batch, or an open arrivals="
        )
    if max_tries > 1:
        raise ConfigError(
            "client: found one that sends a request again, beside images=requests, which makes each image a request of "
            "its own; choose images=batch, or a client= with max_retries=0 and hedge_after_s=null"
        )
    images = np.maximum(trace.column("images"), 1)
    images[:preload] = 1
    rows = np.repeat(np.arange(len(trace)), images)
    image_number = np.arange(len(rows)) - np.repeat(np.cumsum(images) - images, images) + 1
    taken = trace.take(rows)
    of_request = taken.cells("request_id").to_pylist()
    ids = [name if n == 1 else f"{name}#{n}" for name, n in zip(of_request, image_number.tolist(), strict=True)]
    columns = {name: taken.known.column(name) for name in taken.known.column_names} | {"request_id": ids}
    columns["images"] = np.ones(len(rows), np.int32)
    split_trace = make(
        columns, name=trace.name, source=trace.source, notes=trace.notes, where="images=requests", late=taken.late
    )
    times = np.repeat(schedule.times, images[preload:])
    return split_trace, replace(schedule, times=times), image_number[preload:]


@dataclass(slots=True)
class SamplingCounter:
    """Make the sampling parameters of every row of a trace.

    Args:
        images: ``first`` makes one image a request.
        unsupported: ``error`` refuses what cannot be counted; ``warn`` leaves it out, as an assumption.
        backends: by kind of GPU.
        assume: takes what, value and source of each assumption.
        serves_addons: True if the trace's add-ons are served.
    """

    images: Images
    unsupported: Literal["error", "warn"]
    models: Sequence[Model]
    backends: Mapping[str, Backend]
    executor: Executor
    assume: Callable[[str, Any, str], object]
    serves_addons: bool

    def column(self, trace: Trace) -> SamplingColumn | None:
        """Return the parameters of every row; None if none change a cost.

        Raises ConfigError for what cannot be counted, and for kinds of GPU whose seconds are for unlike guidance.
        """
        several, is_first = trace.requests_of_several_images, self.images == "first"
        if is_first and several:
            self.assume("images per request", 1, f"{several} requests ask for more; one is served")
        names = "guidance", "negative_prompt", "input_images", "strength"
        if (is_first or not several) and not any(trace.has(name) for name in names):
            return None
        images = np.ones(len(trace), np.int64) if is_first else np.maximum(trace.column("images"), 1)
        guidance, strength, inputs = (trace.column(name) for name in ("guidance", "strength", "input_images"))
        negative = pc.fill_null(pc.greater(pc.utf8_length(trace.cells("negative_prompt")), 0), False).to_numpy()
        strength = np.where(inputs == 0, np.nan, strength)
        inputs = np.where(np.isnan(strength), np.maximum(inputs, 0), np.maximum(inputs, 1))
        # -1 is a request without a guidance scale, of which only a negative prompt tells whether CFG runs.
        guided = np.where(np.isnan(guidance), -1, guidance > 1)
        guided, negative = self._guidance(guided, negative)
        inputs = self._input_images(trace, inputs, np.isnan(strength))
        if wrong := self._one_image():
            strength = np.where(self._leave_out("input images", inputs > 0, *wrong), np.nan, strength)
            inputs = np.where(np.isnan(strength), 0, inputs)
            images = np.where(self._leave_out("several images", images > 1, *wrong), 1, images)
        counted = {"several images": images > 1, "guidance": (guided >= 0) | negative, "input images": inputs > 0}
        if counts := {name: int(rows.sum()) for name, rows in counted.items() if rows.any()}:
            self.assume("requests whose sampling parameters are counted", counts, "columns of the trace")
        return _column(images, guided, negative, inputs, strength)

    def _leave_out(self, what: str, rows: Flags, why: str, remedy: str) -> Flags:
        """Return ``rows``, which ask for ``what``, for the caller to leave it out; note that or refuse it."""
        if count := int(rows.sum()):
            if self.unsupported == "error":
                raise ConfigError(
                    f"unsupported=error: {count} requests ask for {what}, and {why}; {remedy}, or leave it out with "
                    "unsupported=warn"
                )
            self.assume(
                f"requests that ask for {what}, which is not counted", count, f"{why}; served without {UNMEASURED}"
            )
        return rows

    def _one_image(self) -> tuple[str, str] | None:
        """Return why only one image and no input image can be served, and the remedy; None if others can."""
        for backend in self.backends.values():
            if not all(backend.basis(model.name).is_counted for model in self.models):
                return f"{class_name(backend)} makes one image from a prompt", "choose backend=profiled"
        if self.serves_addons and self._remote_controlnets():
            return "ControlNets on other GPUs are timed for one image", "choose controlnet_placement=inline"
        return None

    def _remote_controlnets(self) -> bool:
        parts = (self.executor, getattr(self.executor, "batching", None))
        placements = [getattr(part, "controlnet_placement", None) for part in parts]
        return any(placement is not None and not isinstance(placement, InlineControlNets) for placement in placements)

    def _guidance(self, guided: NDArray[Any], negative: Flags) -> tuple[NDArray[Any], Flags]:
        """Return the guidance that is counted: of each row -1, 0 or 1, and whether it has a negative prompt."""
        asks = (guided >= 0) | negative
        if not asks.any():
            return guided, negative
        models = [model for model in self.models if model.guidance != "distilled"]
        for model in self.models:
            if model not in models:
                source = f"guidance is distilled into {model.name}: a scale or a negative prompt costs nothing"
                self.assume(f"requests whose guidance costs nothing on {model.name}", int(asks.sum()), source)
        unlike = np.zeros_like(negative)
        for model in models:
            unlike |= self._unlike(model)[guided + 1, negative.astype(int)]
        wrong = self._one_image()
        batching = getattr(self.executor, "batching", None)
        if isinstance(getattr(batching, "base", batching), PatchedSteps):  # with add-ons it is the base of the steps
            wrong = "patches of unlike guidance were not measured", "choose batching=same-size"
        if wrong is not None:
            self._leave_out("other guidance than the profile's", unlike, *wrong)
        if wrong is not None or not unlike.any():
            return np.full_like(guided, -1), np.zeros_like(negative)
        return guided, negative

    def _unlike(self, model: Model) -> Flags:
        """Return which requests have other guidance than the seconds of ``model``: by scale (none, 0, 1) and prompt.

        Raises ConfigError if kinds of GPU differ in that guidance.
        """
        bases = {gpu: backend.basis(model.name) for gpu, backend in self.backends.items()}
        usual = {gpu: usual_cfg(model, basis) for gpu, basis in bases.items()}
        if len(set(usual.values())) > 1:
            with_cfg = ", ".join(gpu for gpu, cfg in usual.items() if cfg)
            raise ConfigError(
                f"cluster.pools: the seconds of {model.name} include classifier-free guidance on {with_cfg} and not on "
                "the other kinds, so that the trace's guidance cannot be counted; take profiles of one basis"
            )
        basis = next(iter(bases.values()))
        return np.array(
            [
                [
                    cfg_beside_usual(Sampling(1, guided, negative), model, basis) is not None
                    for negative in (False, True)
                ]
                for guided in (None, False, True)
            ]
        )

    def _input_images(self, trace: Trace, inputs: NDArray[Any], edits: Flags) -> NDArray[Any]:
        """Return the input images that are encoded, without those of edits that no profile of the models has."""
        edits = edits & (inputs > 0)
        videos = edits & ((trace.column("frames") > 1) | any(model.frames > 1 for model in self.models))
        if videos.any():
            source = f"the image is encoded, and the steps take those of text to video {UNMEASURED}"
            self.assume("requests whose input image begins a video", int(videos.sum()), source)
        bases = {backend.basis(model.name).input_images for backend in self.backends.values() for model in self.models}
        unlike = edits & ~videos & np.logical_or.reduce([inputs != base for base in bases])
        names = ", ".join(dict.fromkeys(model.name for model in self.models))
        why = f"the profile of {names} has no seconds of them, which take several times as long"
        remedy = "take a profile that was measured with them (input_images)"
        return np.where(self._leave_out("input images to edit", unlike, why, remedy), 0, inputs)


def _column(
    images: NDArray[Any], guided: NDArray[Any], negative: Flags, inputs: NDArray[Any], strength: NDArray[Any]
) -> SamplingColumn | None:
    table = np.column_stack([images, guided, negative, inputs, np.nan_to_num(strength, nan=-1.0)])
    kinds, codes = np.unique(table, axis=0, return_inverse=True)
    made = [
        Sampling(int(n), None if cfg < 0 else bool(cfg), bool(without), int(encoded), None if share < 0 else share)
        for n, cfg, without, encoded, share in kinds.tolist()
    ]
    usual = [None if kind == Sampling() else kind for kind in made]
    return SamplingColumn(usual, codes.reshape(-1).astype(np.int32)) if any(usual) else None
