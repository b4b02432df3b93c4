"""The profiled backend: every answer is looked up in measured tables."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, inf, prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from backends.base import Apart, Asked, Asset, BackendError, Cost, Work, check_done, whole
from backends.patched import Size
from backends.profile import LoraTiming, Profile, find, shipped
from backends.scatter import Draws
from backends.table import Table
from conf.assumption import Assumption

MOST_CUT = 100_000
"""Batches of patches that are remembered: of many sizes there are more than memory holds."""


@dataclass(slots=True)
class Profiled:
    """Looks up what work costs on ``gpu`` in profile files, each of one model on one GPU.

    Works that are run together are a batch as far as they have one model, size and number of ControlNets: their
    time is interpolated in pixels and in batch. Images of different sizes share no tensor, so each such group runs
    as a batch of its own, one after another, and a mixed batch takes the sum over its groups.

    ControlNets in line add to every step what was measured for their number; a number between measured ones
    (none adds nothing) is interpolated linearly. A LoRA costs its load and then nothing, as it is in the weights.

    Joules of a step are those measured; where only the draw was, it is taken times the seconds, as it is for all
    other work. A ControlNet draws as the step it stands beside does.

    Where a profile has a scatter, what a request takes that runs alone is its typical seconds times a factor drawn for
    its row, one for all of its stages. A batch takes the typical seconds, and so does what belongs to no row: the
    standalone latency.

    Args:
        gpu: the kind of GPU, as the profile files spell it (``mi210``).
        extrapolate: ``error`` refuses a size or a batch outside the measured grid; ``warn`` scales the nearest edge
            of the grid by pixels (and by batch), and says so in the summary.
        unpublished_load_s: seconds to load a model whose profile has no ``load_s``.
        folder: a folder of further profiles, which replace the shipped ones of the same model. Every YAML file in it is
            one, by its keys ``gpu`` and ``model`` and not by its name; hidden files aside.
        seed: of what is drawn.
        service_factor: what every second of a stage is multiplied with, loads left out; of a sweep of it one sees what
            an error of the profile does to latencies. It moves the standalone latency too, and so the SLO's limits.

    Raises:
        BackendError: a factor that is not positive, a folder or profile that cannot be read, or two profiles of one GPU
            and model in a folder.
    """

    gpu: str
    extrapolate: Literal["error", "warn"] = "error"
    unpublished_load_s: float = 20.0
    folder: str | Path | None = None
    seed: int = 0
    service_factor: float = 1.0
    live: bool = field(init=False, default=False)
    by_row: bool = field(init=False, default=False)
    quality_basis: str | None = field(init=False, default=None)
    gangs: frozenset[int] = field(init=False)
    profiles: dict[str, Profile] = field(init=False)
    # One step by shape and batch: a change of a batch costs a look-up or two.
    _steps: dict[tuple[str, int], Cost] = field(init=False, default_factory=dict)
    _peaks: dict[tuple[str, int], int | None] = field(init=False, default_factory=dict)
    _times: dict[tuple[str, str, int, int, int], float] = field(init=False, default_factory=dict)
    _stepped: set[str] = field(init=False, default_factory=set)
    _extrapolated: set[tuple[str, int, int, int]] = field(init=False, default_factory=set)
    _loads: set[str] = field(init=False, default_factory=set)
    _between: set[tuple[str, int]] = field(init=False, default_factory=set)
    _mixed: bool = field(init=False, default=False)
    # One step of a batch of patches by model, sizes in order and side.
    _cut: dict[tuple[str, tuple[Size, ...], int], Cost] = field(init=False, default_factory=dict)
    _cut_models: set[str] = field(init=False, default_factory=set)
    _draws: Draws = field(init=False, repr=False)
    # Factors of one shape and number of steps, and the probabilities that they are at.
    _scatters: dict[tuple[str, int], tuple[Any, Any] | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.unpublished_load_s >= 0:
            raise BackendError(f"unpublished_load_s: found {self.unpublished_load_s}, expected 0 or more seconds")
        if not 0 < self.service_factor < inf:
            raise BackendError(f"backend.service_factor: found {self.service_factor}, expected a number over 0")
        folders = [shipped()]
        if self.folder is not None:
            if not Path(self.folder).is_dir():
                raise BackendError(f"{self.folder}: not a folder of profiles; name one or leave backend.folder null")
            folders.append(Path(self.folder))
        self.profiles = find(self.gpu, folders)
        self.gangs = frozenset(n for profile in self.profiles.values() for n in profile.gang_tables)
        self.by_row = any(profile.scatter is not None for profile in self.profiles.values())
        self._draws = Draws(self.seed)

    def open(self, asked: Asked) -> None:
        """See Backend.open. A profile does not depend on the prompt."""

    def require(self, model: str) -> None:
        """See Backend.require."""
        if model in self.profiles:
            if self.profiles[model].step:
                return
            raise BackendError(
                f"profile of {model} on {self.gpu}: step: nobody measured how long a step takes, so nothing can be "
                "served; choose another models= or cluster=, or measure it and name its folder with backend.folder"
            )
        there = ", ".join(sorted(self.profiles)) or "none yet"
        raise BackendError(
            f"no profile of {model} on {self.gpu} (profiles of {self.gpu}: {there}); choose another "
            "models= or cluster=, or measure one and name its folder with backend.folder"
        )

    # -- the stages ----------------------------------------------------------------------------------------

    def begin(self, works: Sequence[Work]) -> Cost:
        """See Backend.begin. One batch of prompts for each model, one of artifacts for each size."""
        work = works[0]
        if len(works) == 1 and not work.refine:
            return self._cost(work.model, self.seconds("text_encode", work.model, 1, 1) * self._factor(work))
        prompts = Counter(work.model for work in works)
        artifacts = Counter((work.model, work.width, work.height) for work in works if work.refine)
        parts = [(model, self.seconds("text_encode", model, 1, 1, n)) for model, n in prompts.items()]
        parts += [(size[0], self.seconds("vae_encode", *size, n)) for size, n in artifacts.items()]
        if len(works) == 1:
            parts = [(model, seconds * self._factor(work)) for model, seconds in parts]
        return self._in_turn(parts)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        """See Backend.steps and above."""
        known = self._steps
        if len(works) == 1:
            work = works[0]
            work.done += count
            one = known.get((work.shape, 1)) or self._step(work, 1)
            if self.by_row and (factor := self._factor(work)) != 1.0:
                one = one.times(factor)
            return one.times(count)
        groups: dict[str, int] = {}
        so_far = groups.get
        for work in works:
            work.done += count
            shape = work.shape
            groups[shape] = so_far(shape, 0) + 1
        seconds, joules = [], []
        for group in groups.items():
            one = known.get(group) or self._step(_one_of(works, group[0]), group[1])
            seconds.append(one.seconds)
            joules.append(one.joules)
        if len(groups) > 1:
            self._mixed = True
            one = _total(seconds, joules)
        return one.times(count)

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        """See Patching.patched. It takes the typical seconds, whatever the rows."""
        sizes = []
        for work in works:
            work.done += count
            sizes.append((work.width, work.height))
        sizes.sort()
        key = works[0].model, tuple(sizes), side
        one = self._cut.get(key)
        if one is None:
            if len(self._cut) >= MOST_CUT:
                self._cut.clear()
            self._cut_models.add(works[0].model)
            one = self._cut[key] = self._patched(works, sizes, side)
        return one.times(count)

    def end(self, works: Sequence[Work]) -> Cost:
        """See Backend.end. One batch for each model and size."""
        check_done(works)
        if len(works) == 1:
            work = works[0]
            seconds = self.seconds("vae_decode", work.model, work.width, work.height)
            return self._cost(work.model, seconds * self._factor(work))
        sizes = Counter((work.model, work.width, work.height) for work in works)
        return self._in_turn([(size[0], self.seconds("vae_decode", *size, n)) for size, n in sizes.items()])

    def _factor(self, work: Work) -> float:
        """What the row of ``work`` takes over the typical seconds."""
        if not self.by_row or work.row < 0:
            return 1.0
        key = (work.shape, work.steps)
        if key not in self._scatters:
            scatter = self.profiles[work.model].scatter
            known = None if scatter is None else (scatter.probabilities, scatter.factors(self.typical_s(work)))
            self._scatters[key] = known
        found = self._scatters[key]
        return 1.0 if found is None else float(np.interp(self._draws(work.row), *found))

    def typical_s(self, work: Work) -> float:
        """Seconds that a request like ``work`` typically takes in full, alone on the GPU."""
        stages = whole(self, Work(work.model, work.width, work.height, work.steps, controlnets=work.controlnets))
        return stages.denoise_s + stages.other_s

    def times_faster(self, model: str, width: int, height: int, gpus: int) -> float | None:
        """How many times faster than on one GPU a step is on ``gpus``, one of ``gangs``; None where nobody measured it.

        Raises BackendError outside the grid unless ``extrapolate`` is ``warn``.
        """
        self.require(model)
        profile = self.profiles[model]
        table = profile.gang_tables.get(gpus)
        if table is None:
            return None
        alone_s = self._at(profile.tables["step"], "step", model, width, height, 1)
        return alone_s / self._at(table, f"step on {gpus} GPUs", model, width, height, 1)

    # -- what lies in memory -------------------------------------------------------------------------------

    def load(self, asset: Asset) -> Cost:
        """See Backend.load."""
        self.require(asset.model)
        profile = self.profiles[asset.model]
        if asset.kind == "lora":
            lora = self._lora(asset)
            seconds = lora.read_s * _size(asset, lora.bytes) + lora.patch_s
        elif asset.kind == "controlnet":
            if profile.controlnet is None:
                raise self._absent("controlnet", asset, "--controlnets 1")
            seconds = profile.controlnet.load_s * _size(asset, profile.controlnet.bytes)
        elif profile.load_s is not None:
            seconds = profile.load_s
        else:
            self._loads.add(asset.model)
            seconds = self.unpublished_load_s
        return self._cost(asset.model, seconds)

    def bytes(self, asset: Asset) -> int | None:
        """See Backend.bytes."""
        self.require(asset.model)
        profile = self.profiles[asset.model]
        if asset.size is not None:
            return asset.size
        if asset.kind == "model":
            return profile.weights_bytes
        add_on = profile.lora if asset.kind == "lora" else profile.controlnet
        return None if add_on is None else add_on.bytes

    # -- add-ons, stage by stage: see Taken ------------------------------------------------------------------

    def read_lora(self, lora: Asset) -> Cost:
        """See Taken.read_lora."""
        measured = self._lora(lora)
        return self._cost(lora.model, measured.read_s * _size(lora, measured.bytes))

    def create_lora(self, lora: Asset) -> Cost:
        """See Taken.create_lora."""
        measured = self._lora(lora)
        return self._cost(lora.model, (measured.attach_s + measured.fuse_s) * _size(lora, measured.bytes))

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        """See Taken.merge_loras. One after another."""
        return self._in_turn((lora.model, self._merge_s(lora)) for lora in loras)

    def _merge_s(self, lora: Asset) -> float:
        measured = self._lora(lora)
        once_s = measured.patch_s if measured.merge_s is None else measured.merge_s
        return once_s + (measured.copy_s or 0.0) * _size(lora, measured.bytes)

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        """See Taken.restore_weights."""
        measured = self._lora(loras[0])
        return self._cost(loras[0].model, measured.unfuse_s if measured.restore_s is None else measured.restore_s)

    def _lora(self, lora: Asset) -> LoraTiming:
        """What was measured of a LoRA of its model."""
        self.require(lora.model)
        measured = self.profiles[lora.model].lora
        if measured is None:
            raise self._absent("lora", lora, "--loras")
        return measured

    def apart(self, work: Work, batch: int, gpus: int) -> Apart:
        """See Taken.apart. Of a batch, in the proportion of the step's own."""
        self.require(work.model)
        measured = self.profiles[work.model].apart
        at = [(p.gpus, p.width, p.height) for p in measured]
        try:
            found = measured[at.index((gpus, work.width, work.height))]
        except ValueError:
            there = "; ".join(f"{g} GPUs at {w}x{h}" for g, w, h in at) or "nothing"
            raise BackendError(
                f"profile of {work.model} on {self.gpu}: apart: nobody measured a step on {gpus} GPUs at {work.width}x"
                f"{work.height} with ControlNets on others (measured: {there}); serve them in line "
                "(controlnets=in-line), or add the figures to a profile in backend.folder"
            ) from None
        scale = self.service_factor
        if batch > 1:
            shape = ("step", work.model, work.width, work.height)
            scale *= self.seconds(*shape, batch) / self.seconds(*shape)
        return Apart(found.encoder_s * scale, found.controlnet_s * scale, found.receive_s * scale)

    def faster(self, model: str, kernels: Sequence[str]) -> float:
        """See Taken.faster. Their factors are multiplied."""
        self.require(model)
        known = self.profiles[model].kernels
        for name in kernels:
            if name not in known:
                raise BackendError(
                    f"profile of {model} on {self.gpu}: kernels: nobody measured {name} (measured: "
                    f"{', '.join(known) or 'none'}); leave it out, or add it to a profile in backend.folder"
                )
        return prod(known[name] for name in kernels)

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        """See Backend.peak_bytes. Groups take turns, so it is the most over them."""
        peaks = []
        for group in Counter(work.shape for work in works).items():
            if group not in self._peaks:
                self._peaks[group] = self._peak(_one_of(works, group[0]), group[1])
            peaks.append(self._peaks[group])
        known = [peak for peak in peaks if peak is not None]
        return max(known) if known and len(known) == len(peaks) else None

    # -- look-ups ------------------------------------------------------------------------------------------

    def seconds(self, operation: str, model: str, width: int, height: int, batch: int = 1) -> float:
        """Seconds of one ``operation`` (step, text_encode, vae_encode, vae_decode) of a batch of one size.

        An operation that the profile did not measure apart costs nothing here: profiles quoted from papers
        hold it inside the step time. Raises BackendError outside the grid unless ``extrapolate`` is ``warn``.
        """
        key = (operation, model, width, height, batch)
        found = self._times.get(key)
        if found is None:
            self.require(model)
            table = self.profiles[model].tables.get(operation)
            size = (1, 1) if operation == "text_encode" else (width, height)
            found = 0.0 if table is None else self._at(table, operation, model, *size, batch) * self.service_factor
            self._times[key] = found
        return found

    def _step(self, work: Work, batch: int) -> Cost:
        """One step of ``batch`` works like this one."""
        model, width, height = work.model, work.width, work.height
        plain_s = seconds = self.seconds("step", model, width, height, batch)
        if work.controlnets:
            tables: dict[int, Table | None] = {0: None, **self.profiles[model].controlnet_tables}
            nets = len(work.controlnets)
            extra_s = self._of_nets(tables, "controlnet_step", model, width, height, batch, nets)
            seconds += extra_s * self.service_factor
        table = self.profiles[model].energy_table
        if table is None:
            joules = self._cost(model, seconds).joules
        else:
            joules = self._at(table, "energy", model, width, height, batch) * (seconds / plain_s) * self.service_factor
        self._stepped.add(model)
        cost = self._steps[work.shape, batch] = Cost(seconds, joules)
        return cost

    def _patched(self, works: Sequence[Work], sizes: Sequence[Size], side: int) -> Cost:
        """One step of images of ``sizes`` in patches of ``side``."""
        model = works[0].model
        if any(work.model != model or work.controlnets for work in works):
            named = ", ".join(sorted({work.model for work in works}))
            raise BackendError(
                f"patches of {named}: several models, or ControlNets, share no batch of "
                "patches; give each model workers of its own and leave addons=ignore"
            )
        self.require(model)
        timing = self.profiles[model].patched
        if timing is None:
            there = ", ".join(sorted(name for name, each in self.profiles.items() if each.patched)) or "none"
            raise BackendError(
                f"profile of {model} on {self.gpu}: patched: nobody measured what a step of patches takes (models of "
                f"{self.gpu} of which it is known: {there}); choose steps=batched, or add it to a profile"
            )
        for width, height in dict.fromkeys(sizes):
            self.seconds("step", model, width, height)  # inside the measured sizes, or said to be extrapolated
        self._stepped.add(model)
        return self._cost(model, timing.step_s(sizes, side) * self.service_factor)

    def _peak(self, work: Work, batch: int) -> int | None:
        model, width, height, nets = work.model, work.width, work.height, len(work.controlnets)
        self.require(model)
        tables = self.profiles[model].peak_tables
        steered = {n: table for (what, n), table in tables.items() if what == "controlnet_step"}
        plain, decoding = tables.get(("step", 0)), tables.get(("vae_decode", 0))
        if plain is None or (nets and not steered):
            return None
        peaks = [self._of_nets({0: plain} | steered, "memory of a step", model, width, height, batch, nets)]
        if decoding is not None:
            peaks.append(self._at(decoding, "memory of vae_decode", model, width, height, batch))
        return round(max(peaks)) + (self.profiles[model].weights_bytes or 0)

    def _of_nets(
        self, tables: Mapping[int, Table | None], what: str, model: str, width: int, height: int, batch: int, nets: int
    ) -> float:
        """The value for ``nets`` ControlNets in line, from tables by their number; None stands for nothing."""

        def at(count: int) -> float:
            table = tables[count]
            return 0.0 if table is None else self._at(table, what, model, width, height, batch)

        if nets in tables:
            return at(nets)
        if nets > max(tables) and (self.extrapolate == "error" or max(tables) == 0):
            there = ", ".join(str(count) for count in sorted(tables) if count) or "none"
            raise BackendError(
                f"profile of {model} on {self.gpu}: {what}: {nets} ControlNets in line were not measured for {model} "
                f"on {self.gpu} (measured: {there}); serve without them, measure them (mezzotint calibrate "
                f"--controlnets {nets}), or have more of them take as much each, with extrapolate=warn"
            )
        self._between.add((model, nets))
        if nets > max(tables):
            return at(0) + (at(max(tables)) - at(0)) * nets / max(tables)
        low, high = max(n for n in tables if n < nets), min(n for n in tables if n > nets)
        share = (nets - low) / (high - low)
        return at(low) + (at(high) - at(low)) * share

    def _at(self, table: Table, what: str, model: str, width: int, height: int, batch: int) -> float:
        pixels = width * height
        if not table.covers(pixels, batch):
            if self.extrapolate == "error":
                raise BackendError(
                    f"profile of {model} on {self.gpu}: {what} at {width}x{height} ({pixels} pixels), "
                    f"batch {batch} is outside the measured grid ({table.grid()}); use shapes=model, measure "
                    "that size and batch, or allow it with extrapolate=warn"
                )
            self._extrapolated.add((model, width, height, batch))
        return table.at(pixels, batch)

    def _cost(self, model: str, seconds: float) -> Cost:
        """``seconds`` at the draw that was measured, if it was."""
        power_w = self.profiles[model].power_w
        return Cost(seconds, None if power_w is None else power_w * seconds)

    def _in_turn(self, parts: Iterable[tuple[str, float]]) -> Cost:
        """The (model, seconds) one after another."""
        costs = [self._cost(*part) for part in parts]
        return _total([cost.seconds for cost in costs], [cost.joules for cost in costs])

    def _absent(self, key: str, asset: Asset, option: str) -> BackendError:
        return BackendError(
            f"profile of {asset.model} on {self.gpu}: {key}: nobody measured what it takes to load {asset.name} for "
            f"{asset.model} on {self.gpu}; serve without add-ons, or measure it (mezzotint calibrate {option})"
        )

    # -- what it rests on ----------------------------------------------------------------------------------

    def assumptions(self) -> list[Assumption]:
        """See Backend.assumptions."""
        used = {name: self.profiles[name] for name in sorted(self._stepped)}
        said = [
            Assumption(f"step time of {name} on {self.gpu}", _range(profile), profile.source)
            for name, profile in used.items()
        ]
        said += [
            Assumption(f"energy of {name} on {self.gpu}", basis, profile.source)
            for name, profile in used.items()
            if (basis := _energy(profile)) is not None
        ]
        for name in sorted(self._cut_models):
            timing = self.profiles[name].patched
            assert timing is not None
            basis = (
                f"{timing.base_s:g} s + {timing.patch_s:g} s a patch of {timing.side} px + {timing.size_s:g} s a "
                f"further size + {timing.halo_s:g} s a border"
            )
            said.append(Assumption(f"step of a batch of patches of {name} on {self.gpu}", basis, timing.source))
        if self.service_factor != 1.0 and used:
            said.append(Assumption("seconds of all stages, times", self.service_factor, "backend.service_factor"))
        said += [
            Assumption(
                f"load time of {model} on {self.gpu} [s]",
                self.unpublished_load_s,
                "nobody published it; a setting",
            )
            for model in sorted(self._loads)
        ]
        said += [
            Assumption(
                f"extra time of {nets} ControlNets in line of {model} on {self.gpu}",
                "between those of fewer and of more, or in proportion",
                "this number was not measured; as many ControlNets in line take as many times as long",
            )
            for model, nets in sorted(self._between)
        ]
        said += [
            Assumption(
                f"scatter of the seconds of {name} on {self.gpu}",
                "one factor for each request, drawn from the run's seed",
                profile.source,
            )
            for name, profile in used.items()
            if profile.scatter is not None
        ]
        if self._mixed:
            said.append(
                Assumption(
                    "a batch of several sizes or numbers of ControlNets",
                    "a batch for each, one after another",
                    "images of different sizes share no tensor",
                )
            )
        for model in sorted({name for name, *_ in self._extrapolated}):
            alone = [each for each in self._extrapolated if each[0] == model and each[3] == 1]
            batched = [each for each in self._extrapolated if each[0] == model and each[3] > 1]
            if alone:
                said.append(
                    Assumption(
                        f"sizes whose step time of {model} on {self.gpu} is extrapolated",
                        len(alone),
                        "outside the measured grid; the grid's edge scaled by pixels (extrapolate=warn)",
                    )
                )
            if batched:
                said.append(
                    Assumption(
                        f"batched shapes whose time of {model} on {self.gpu} is extrapolated",
                        len(batched),
                        "outside the measured grid; the grid's edge scaled by pixels and batch (extrapolate=warn)",
                    )
                )
        return said


def _size(asset: Asset, measured: int) -> float:
    """The bytes of ``asset`` over those of the one that was measured."""
    return 1.0 if asset.size is None else asset.size / measured


def _total(seconds: Iterable[float], joules: Sequence[float | None]) -> Cost:
    """All of them one after another; the sums are exact, so that their order does not matter."""
    return Cost(fsum(seconds), None if None in joules else fsum(joules))  # type: ignore[arg-type]


def _one_of(works: Sequence[Work], shape: str) -> Work:
    return next(work for work in works if work.shape == shape)


def _range(profile: Profile) -> str:
    seconds = [point.seconds for point in profile.step]
    low, high = min(seconds), max(seconds)
    return f"{low:g} s" if low == high else f"{low:g} to {high:g} s over {len(seconds)} shapes"


def _energy(profile: Profile) -> str | None:
    power = None if profile.power_w is None else f"{profile.power_w:g} W while it works"
    if profile.energy:
        joules = [point.joules for point in profile.energy]
        measured = f"{min(joules):g} to {max(joules):g} J a step"
        return measured if power is None else f"{measured}; all else {power}"
    return power
