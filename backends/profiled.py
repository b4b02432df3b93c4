"""The profiled backend: every answer is looked up in measured tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from mezzotint.backends.base import (
    Asset,
    BackendError,
    ComponentWeights,
    Cost,
    Provenance,
    RemoteControlNetCosts,
    RequestBasis,
    RequestInputs,
    ServerStart,
    Work,
    check_done,
    size_text,
    standalone_cost,
)
from mezzotint.backends.lookup import Lookup, exact_total
from mezzotint.backends.lookup_record import Where
from mezzotint.backends.patched import Size
from mezzotint.backends.profile import LoraTiming, Profile, find, shipped
from mezzotint.backends.scaling import Scaled, parse, scale
from mezzotint.backends.scatter import draw_uniform
from mezzotint.settings.assumption import Assumption
from mezzotint.settings.ranges import Seconds

Factor = Annotated[float, Ge(1e-6), Le(1e6)]
"""A factor on measured seconds; the bounds lie far beyond the ratio of any two GPUs."""

ROUNDING = 1e-9
"""Greatest difference of two sums of equal steps, as a share of them."""

MAX_PATCH_BATCHES = 100_000
"""Size of the cache of patch batches; traces of many sizes have more than memory holds."""


@dataclass(slots=True)
class Profiled:
    """Costs of work on ``gpu``, looked up in profile files (mezzotint.backends.profile), each of one model on one GPU.

    Works of one model, size (with the frames of a video) and number of ControlNets form a batch. Images of different
    sizes share no tensor, so a mixed batch costs the sum over its groups. A LoRA in the weights costs its load and
    nothing per step.

    If a profile has a ``scatter``, a request alone takes its typical seconds times one factor drawn for its row. A
    batch and the standalone latency, which has no row, take the typical seconds.

    Args:
        gpu: the kind of GPU, as the profile files spell it (``mi210``).
        extrapolate: ``error`` refuses a size or batch outside the measured grid. ``warn`` scales the nearest edge of
            the grid by pixels and by batch, and says so in the summary.
        unpublished_load_s: seconds to load a model whose profile has no ``load_s``.
        folder: a folder of further profiles under any file names, which replace shipped ones of the same model.
        seed: of the draws from ``scatter``.
        service: ``profile``, or ``trace``: a request alone takes the seconds that the trace's ``gen_s`` has for its
            row, and a partial generation its share of them. Batches and standalone latencies stay the profile's.
        assume: declared scalings to kinds of GPUs (mezzotint.backends.scaling), as ``a10g=l40s*1.9``. A model that was
            measured on ``gpu`` keeps its own profile.
        service_factor: multiplies the seconds of every stage, but not of loads, to study an error of the profile. The
            standalone latency, and with it the SLO, moves too.

    Raises:
        BackendError: a folder or profile cannot be read, a folder has two profiles of one GPU and model, a scaling
            cannot be made, or ``service=trace`` meets a row without seconds.
    """

    gpu: str
    extrapolate: Literal["error", "warn"] = "error"
    unpublished_load_s: Seconds = 20.0
    folder: str | Path | None = None
    assume: str | None = None
    seed: int = 0
    service_factor: Factor = 1.0
    service: Literal["profile", "trace"] = "profile"
    live: bool = field(init=False, default=False)
    by_row: bool = field(init=False, default=False)
    quality_basis: str | None = field(init=False, default=None)
    measures_memory: bool = field(init=False)
    profiles: dict[str, Profile] = field(init=False)
    _lookup: Lookup = field(init=False, repr=False)
    _scaled: Scaled | None = field(init=False, repr=False)
    _has_unequal_steps: bool = field(init=False, repr=False)
    _makes_several: bool = field(init=False, default=True, repr=False)
    """False if no request of the trace asks for several images."""
    # (shape, images) -> one step: batches change often, and a look-up in a dict is cheap. The images are negative if a
    # request makes several, since batches beyond the measured ones then take turns.
    _steps: dict[tuple[str, int], Cost] = field(init=False, default_factory=dict)
    _peaks: dict[tuple[str, int], int | None] = field(init=False, default_factory=dict)
    # (model, sorted sizes, side) -> one step of patches.
    _patch_steps: dict[tuple[str, tuple[Size, ...], int], Cost] = field(init=False, default_factory=dict)
    # (shape, steps) -> ends of the steps.
    _step_ends: dict[tuple[str, int], tuple[float, ...]] = field(init=False, default_factory=dict)
    # (shape, steps, images) -> probabilities and factors of the scatter.
    _scatters: dict[tuple[str, int, int], tuple[Any, Any] | None] = field(init=False, default_factory=dict)
    # (shape, steps, images) -> seconds in full, for service=trace.
    _typical_s: dict[tuple[str, int, int], float] = field(init=False, default_factory=dict)
    _asked: RequestInputs | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        # The user's folder last: later ones replace the profiles of the same model
        # (test_folder_of_profiles_replaces_shipped_ones).
        folders = [shipped()]
        if self.folder is not None:
            if not Path(self.folder).is_dir():
                raise BackendError(f"{self.folder}: not a folder of profiles; name one or leave backend.folder null")
            folders.append(Path(self.folder))
        self.profiles = find(self.gpu, folders)
        self._scaled = None
        for scaling in parse(self.assume):
            if scaling.gpu == self.gpu:
                self._scaled = scale(scaling, self.profiles, folders)
                self.profiles |= self._scaled.profiles
        self._lookup = Lookup(self.gpu, self.profiles, self.extrapolate, self.service_factor, folders)
        self.measures_memory = any(profile.memory for profile in self.profiles.values())
        self._has_unequal_steps = any(profile.step_shares for profile in self.profiles.values())
        has_scatter = any(profile.scatter is not None for profile in self.profiles.values())
        self.by_row = has_scatter or self.service == "trace"

    def open(self, asked: RequestInputs) -> None:
        self._asked = asked
        self._makes_several = asked.has_several_images()

    def require(self, model: str) -> None:
        self._lookup.require(model)

    def alias(self, model: str, architecture: str) -> None:
        """Raises BackendError without a profile of ``architecture``, or if ``model`` has one of another."""
        self.require(architecture)
        if self.profiles.setdefault(model, self.profiles[architecture]) is not self.profiles[architecture]:
            remedy = "give it a role of its own in models=, without an architecture"
            raise self._lookup.lacks(model, f"it is to cost as {architecture}, and has a profile of its own", remedy)

    def provenance(self, model: str) -> Provenance:
        profile = self.profiles.get(model)
        if profile is None:
            return Provenance()
        software = None if profile.software is None else " ".join(filter(None, (profile.software, profile.version)))
        return Provenance(
            profile.basis,
            profile.dtype,
            profile.service_error,
            profile.source,
            software,
            profile.date,
            tuple(stage for stage in ("text_encode", "vae_decode") if stage not in profile.tables),
        )

    def server_start(self, model: str) -> ServerStart:
        self.require(model)
        profile = self.profiles[model]
        ready, compiled = profile.ready, {entry.size: entry for entry in profile.compile}
        others = compiled.pop(None, None)
        return ServerStart(
            None if ready is None else ready.seconds,
            {size: entry.seconds for size, entry in compiled.items() if size is not None},
            None if others is None else others.seconds,
            None if ready is None else ready.source or profile.source,
            "; ".join(dict.fromkeys(entry.source or profile.source for entry in profile.compile)) or None,
        )

    def begin(self, works: Sequence[Work]) -> Cost:
        """Encode one batch of prompts per model, and one of artifacts per size."""
        work = works[0]
        if len(works) == 1 and not work.refine and not work.input_images:
            seconds = self._lookup.seconds("text_encode", work.model, 1, 1)
            return self._lookup.cost(work.model, seconds * self._factor(work))
        prompts = Counter(work.model for work in works)
        artifacts: Counter[tuple[str, int, int, int]] = Counter()
        for work in works:
            if work.refine:
                artifacts[work.model, work.width, work.height, work.frames] += 1
            if work.input_images:  # an image also where it starts a video
                artifacts[work.model, work.width, work.height, 1] += work.input_images
                if not self.profiles[work.model].vae_encode:
                    self._lookup.record.unencoded.add(work.model)
        parts = [(model, self._lookup.seconds("text_encode", model, 1, 1, n)) for model, n in prompts.items()]
        parts += [(size[0], self._lookup.seconds("vae_encode", *size[:3], n, size[3])) for size, n in artifacts.items()]
        if len(works) == 1:
            parts = [(model, seconds * self._factor(work)) for model, seconds in parts]
        return self._lookup.in_turn(parts)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        """Raises BackendError for a batch whose next steps are unequal."""
        known = self._steps
        mean_steps = self._mean_steps(works, count) if self._has_unequal_steps else count
        if len(works) == 1:
            work = works[0]
            work.done += count
            group = work.shape, (1 if work.images == 1 else -work.images)
            one = known.get(group) or self._step(group, work)
            if self.by_row and (factor := self._factor(work)) != 1.0:
                one = one.times(factor)
            return one.times(mean_steps)
        groups: dict[str, int] = {}
        so_far = groups.get
        for work in works:
            work.done += count
            shape = work.shape
            groups[shape] = so_far(shape, 0) + 1
        if self._makes_several and any(work.images > 1 for work in works):
            images = Counter[str]()
            for work in works:
                images[work.shape] += work.images
            groups = {shape: -count for shape, count in images.items()}
        costs = [known.get(group) or self._step(group, _first_of_shape(works, group[0])) for group in groups.items()]
        if len(groups) == 1:
            return costs[0].times(mean_steps)
        self._lookup.record.mixed = True
        return exact_total(costs).times(mean_steps)

    def _mean_steps(self, works: Sequence[Work], count: int) -> float:
        """Return in how many mean steps the next ``count`` steps of ``works`` are run."""
        steps = [
            ends[work.done + count] - ends[work.done] if (ends := self.step_ends(work)) else count for work in works
        ]
        longest = max(steps)
        # Sums of equal steps from different begins differ in the last bits
        # (test_batch_of_requests_at_one_step_takes_that_step_and_others_are_refused).
        if longest - min(steps) > ROUNDING * longest:
            what = f"{len(works)} requests are at steps of unequal seconds, and no batch of such was measured"
            remedy = "serve one request at a time, or take step_shares out"
            raise self._lookup.lacks(works[0].model, f"step_shares: {what}", remedy)
        return longest

    def basis(self, model: str) -> RequestBasis:
        profile = self.profiles.get(model)
        guidance = None if profile is None else profile.guidance
        images = 0 if profile is None else profile.input_images or 0
        return RequestBasis(None if guidance is None else guidance.cfg, images, is_counted=True)

    def unequal_sizes(self, model: str) -> list[tuple[int, int, int]]:
        profile = self.profiles.get(model)
        return [] if profile is None else [at.size for at in profile.step_shares if len(set(at.shares)) > 1]

    def step_ends(self, work: Work) -> tuple[float, ...]:
        key = (work.shape, work.steps)
        if key not in self._step_ends:
            self._step_ends[key] = self._ends(work)
        return self._step_ends[key]

    def _ends(self, work: Work) -> tuple[float, ...]:
        size = (work.width, work.height, work.frames)
        shares = next((at.shares for at in self.profiles[work.model].step_shares if size == at.size), None)
        if shares is None:
            return ()
        weights = [shares[min(step, len(shares) - 1)] for step in range(work.steps)]
        if len(set(weights)) < 2:
            return ()
        whole = fsum(weights)
        # Each end from the begin, not from the one before, so that the last is exactly ``work.steps``
        # (test_whole_request_takes_its_mean_step_as_often_as_it_has_steps).
        return tuple(work.steps * (fsum(weights[:step]) / whole) for step in range(work.steps + 1))

    def _step(self, group: tuple[str, int], work: Work) -> Cost:
        images = group[1]
        cost = self._steps[group] = self._lookup.step(work, abs(images), in_turn=images < 0)
        return cost

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        """Return the typical cost, whatever the rows. Raises BackendError for a batch whose next steps are unequal."""
        mean_steps = self._mean_steps(works, count) if self._has_unequal_steps else count
        sizes = []
        for work in works:
            work.done += count
            sizes += [(work.width, work.height)] * work.images
        # A batch costs the same in whatever order its requests joined.
        sizes.sort()
        key = works[0].model, tuple(sizes), side
        one = self._patch_steps.get(key)
        if one is None:
            if len(self._patch_steps) >= MAX_PATCH_BATCHES:
                self._patch_steps.clear()
            self._lookup.record.patched.add(works[0].model)
            one = self._patch_steps[key] = self._lookup.patched(works, sizes, side)
        return one.times(mean_steps)

    def end(self, works: Sequence[Work]) -> Cost:
        """Decode one batch per model and size."""
        check_done(works)
        if len(works) == 1:
            work = works[0]
            seconds = self._lookup.seconds("vae_decode", work.model, work.width, work.height, work.images, work.frames)
            return self._lookup.cost(work.model, seconds * self._factor(work))
        sizes: Counter[tuple[str, int, int, int]] = Counter()
        for work in works:
            sizes[work.model, work.width, work.height, work.frames] += work.images
        parts = [(size[0], self._lookup.seconds("vae_decode", *size[:3], n, size[3])) for size, n in sizes.items()]
        return self._lookup.in_turn(parts)

    def _factor(self, work: Work) -> float:
        """Return the factor of the row of ``work`` on its typical seconds."""
        if not self.by_row or work.row < 0:
            return 1.0
        key = (work.shape, work.steps, work.images)
        if self.service == "trace" and self._asked is not None:
            if key not in self._typical_s:
                self._typical_s[key] = self.typical_s(work)
            return self.service_factor * self._asked.service_s(work.row) / self._typical_s[key]
        if key not in self._scatters:
            scatter = self.profiles[work.model].scatter
            known = None if scatter is None else (scatter.probabilities, scatter.factors(self.typical_s(work)))
            self._scatters[key] = known
        quantiles = self._scatters[key]
        return 1.0 if quantiles is None else float(np.interp(draw_uniform(self.seed, work.row), *quantiles))

    def seconds(self, operation: str, model: str, width: int, height: int, batch: int = 1, frames: int = 1) -> float:
        return self._lookup.seconds(operation, model, width, height, batch, frames)

    def typical_s(self, work: Work) -> float:
        """Return the seconds that a request like ``work`` typically takes in full, alone on a GPU."""
        stages = standalone_cost(self, replace(work, skipped=0, row=-1, refine=False, loras=(), input_images=0))
        return stages.denoise_s + stages.other_s

    def group_sizes(self, model: str | None = None) -> frozenset[int]:
        profiles = self.profiles.values() if model is None else [self.profiles[model]]
        return frozenset(n for profile in profiles for n in profile.group_tables)

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        """Return the cost of a step; of a batch that was not measured on a group, from that on one GPU.

        The group is then as much faster as with the largest batch that was measured on it. A batch costs its typical
        seconds, whatever the rows.

        Raises BackendError outside the grid unless ``extrapolate`` is ``warn``.
        """
        # A row's factor is of the request alone; nobody measured how those of a batch add up.
        factor = self._factor(work) if batch == 1 else 1.0
        several = 1 if work.images == 1 else -1
        batch *= work.images
        if gpus == 1:
            return self._step((work.shape, several * batch), work).times(factor)
        self.require(work.model)
        table = self.profiles[work.model].group_tables.get(gpus)
        if table is None:
            return None
        # The speedup of the largest batch measured on the group, times the cost of this batch on one GPU
        # (test_batch_on_a_group_is_as_much_faster_as_one_request).
        measured = min(batch, table.max_batch)
        where = Where(work.model, work.width, work.height, measured, work.frames)
        seconds = self._lookup.at(table, f"step on {gpus} GPUs", where)
        if measured < batch:
            many, few = (self._step((work.shape, several * n), work).seconds for n in (batch, measured))
            seconds *= many / few
            self._lookup.record.grouped.add((work.model, gpus, measured))
        factor *= self._lookup.cfg_factor(work)
        cost = self._lookup.cost(work.model, seconds * self.service_factor * factor)
        return cost if cost.joules is None else Cost(cost.seconds, cost.joules * gpus)

    def component_s(self, component: str, work: Work, gpus: int, batch: int = 1) -> float:
        """Raises BackendError outside the grid of batches unless ``extrapolate`` is ``warn``."""
        self.require(work.model)
        tables, size = self.profiles[work.model].component_tables, (work.width, work.height, work.frames)
        table = tables.get((component, gpus, size))
        if table is not None:
            self._lookup.record.components.add((work.model, component))
            seconds = self._lookup.at(table, component, Where(work.model, *size[:2], batch, work.frames))
            return seconds * self.service_factor * self._factor(work)
        names = ", ".join(sorted({name for name, *_ in tables})) or "none"
        said = f"nobody measured {component} at {size_text(*size)} on {gpus} GPUs (components measured: {names})"
        remedy = "add the figure to a profile in backend.folder, or leave the stage out of the plan"
        raise self._lookup.lacks(work.model, f"component: {said}", remedy)

    def component_degrees(self, component: str, model: str) -> frozenset[int]:
        return frozenset(gpus for name, gpus, _ in self.profiles[model].component_tables if name == component)

    def component_weights(self, component: str, model: str) -> ComponentWeights | None:
        self.require(model)
        weights = self.profiles[model].component_weights.get(component)
        return None if weights is None else ComponentWeights(weights.bytes, weights.load_s)

    def load(self, asset: Asset) -> Cost:
        self.require(asset.model)
        profile = self.profiles[asset.model]
        if asset.kind == "lora":
            lora = self._lora(asset)
            return self._lookup.cost(asset.model, lora.read_s * _relative_size(asset, lora.bytes) + lora.patch_s)
        if asset.kind == "controlnet":
            net = profile.controlnet
            if net is None:
                raise self._absent("controlnet", asset, "--controlnets 1")
            return self._lookup.cost(asset.model, net.load_s * _relative_size(asset, net.bytes))
        seconds = profile.load_s
        if seconds is None:
            self._lookup.record.unpublished_loads.add(asset.model)
            seconds = self.unpublished_load_s
        return self._lookup.cost(asset.model, seconds)

    def bytes(self, asset: Asset) -> int | None:
        self.require(asset.model)
        profile = self.profiles[asset.model]
        if asset.size is not None:
            return asset.size
        if asset.kind == "model":
            return profile.weights_bytes
        add_on = profile.lora if asset.kind == "lora" else profile.controlnet
        return None if add_on is None else add_on.bytes

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        """Return the maximum over groups of one shape, which take turns."""
        if not self.measures_memory:
            return None
        peaks = []
        sizes: dict[str, int] = {}
        so_far = sizes.get
        for work in works:
            sizes[work.shape] = so_far(work.shape, 0) + work.images
        several = -1 if sum(sizes.values()) > len(works) else 1
        for shape, images in sizes.items():
            group = shape, several * images
            if group not in self._peaks:
                work = _first_of_shape(works, shape)
                self._peaks[group] = self._lookup.peak_bytes(work, images, in_turn=several < 0)
            peaks.append(self._peaks[group])
        known = [peak for peak in peaks if peak is not None]
        return max(known) if known and len(known) == len(peaks) else None

    def read_lora(self, lora: Asset) -> Cost:
        measured = self._lora(lora)
        return self._lookup.cost(lora.model, measured.read_s * _relative_size(lora, measured.bytes))

    def create_lora(self, lora: Asset, beside: Sequence[Asset]) -> Cost:
        measured = self._lora(lora)
        once_s = measured.attach_s + measured.fuse_s
        return self._lookup.cost(lora.model, once_s * _relative_size(lora, measured.bytes))

    def lora_spread(self, lora: Asset) -> Sequence[float]:
        return self._lora(lora).spread or ()

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        """Merge them one after another."""
        parts = []
        for lora in loras:
            measured = self._lora(lora)
            once_s = measured.patch_s if measured.merge_s is None else measured.merge_s
            parts.append((lora.model, once_s + (measured.copy_s or 0.0) * _relative_size(lora, measured.bytes)))
        return self._lookup.in_turn(parts)

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        measured = self._lora(loras[0])
        seconds = measured.unfuse_s if measured.restore_s is None else measured.restore_s
        return self._lookup.cost(loras[0].model, seconds)

    def remote_controlnet_costs(self, work: Work, batch: int, gpus: int) -> RemoteControlNetCosts:
        """Scale the parts measured at batch 1 as the plain step scales with the batch."""
        self.require(work.model)
        measured = {(p.gpus, p.width, p.height): p for p in self.profiles[work.model].apart}
        parts = measured.get((gpus, work.width, work.height)) if work.frames == 1 else None
        if parts is None:
            there = "; ".join(f"{g} GPUs at {w}x{h}" for g, w, h in measured) or "nothing"
            size = f"{gpus} GPUs at {size_text(work.width, work.height, work.frames)} with ControlNets on others"
            what = f"apart: nobody measured a step on {size} (measured: {there})"
            inline = "serve them inline (controlnet_placement=inline)"
            raise self._lookup.lacks(work.model, what, f"{inline}, or add the figures to a profile in backend.folder")
        scale = self.service_factor
        if batch > 1:
            shape = ("step", work.model, work.width, work.height)
            scale *= self.seconds(*shape, batch) / self.seconds(*shape)
        return RemoteControlNetCosts(parts.encoder_s * scale, parts.controlnet_s * scale, parts.receive_s * scale)

    def faster(self, model: str, kernels: Sequence[str]) -> float:
        self.require(model)
        known = self.profiles[model].kernels
        for name in kernels:
            if name not in known:
                what = f"kernels: nobody measured {name} (measured: {', '.join(known) or 'none'})"
                raise self._lookup.lacks(model, what, "leave it out, or add it to a profile in backend.folder")
        slower = {name: gain - 1 for name, gain in known.items()}
        return (1 + sum(slower.values())) / (1 + sum(slower[name] for name in known if name not in kernels))

    def _lora(self, lora: Asset) -> LoraTiming:
        self.require(lora.model)
        measured = self.profiles[lora.model].lora
        if measured is None:
            raise self._absent("lora", lora, "--loras")
        return measured

    def _absent(self, key: str, asset: Asset, option: str) -> BackendError:
        what = f"{key}: nobody measured what it takes to load {asset.name} for {asset.model} on {self.gpu}"
        remedy = f"serve without add-ons, or measure it (mezzotint calibrate {option})"
        return self._lookup.lacks(asset.model, what, remedy)

    def assumptions(self) -> list[Assumption]:
        record = self._lookup.record.of_profiles(self.profiles)
        own = Assumption("service seconds", "the trace's own", "gen_s of each request (backend.service=trace)")
        stated = record.assumptions(self.gpu, self.profiles, self.service_factor, self.unpublished_load_s)
        scaled = () if self._scaled is None else self._scaled.assumptions(sorted(record.stepped))
        return [*stated, *scaled, *([own] if self.service == "trace" else [])]


def _first_of_shape(works: Sequence[Work], shape: str) -> Work:
    return next(work for work in works if work.shape == shape)


def _relative_size(asset: Asset, measured: int) -> float:
    """Return the bytes of ``asset`` over those of the measured one; 1 if unknown."""
    return 1.0 if asset.size is None else asset.size / measured
