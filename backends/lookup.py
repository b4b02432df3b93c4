"""Costs of single operations of one model on one kind of GPU, looked up in measured tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from math import fsum
from pathlib import Path
from typing import Literal

from mezzotint.backends.base import BackendError, Cost, Work, size_text
from mezzotint.backends.lookup_record import CFG_EVALUATIONS, LookupRecord, Where
from mezzotint.backends.patched import Size
from mezzotint.backends.profile import Profile
from mezzotint.backends.scaling import way_on
from mezzotint.backends.table import Table

INSTEAD = "choose another models= or cluster=, or measure one and name its folder with backend.folder"

NEAR = 0.02
"""Share of its edges' pixels by which a grid is wider than measured: 832x480x81 lies 1.3 % below 854x480x80."""


@dataclass(slots=True)
class Lookup:
    """The profiles of one kind of GPU, by model, from ``folders``, and a record of the look-ups in them."""

    gpu: str
    profiles: Mapping[str, Profile]
    extrapolate: Literal["error", "warn"]
    service_factor: float
    folders: Sequence[Path | Traversable]
    record: LookupRecord = field(init=False, default_factory=LookupRecord)
    _times: dict[tuple[str, str, int, int, int, int], float] = field(init=False, default_factory=dict, repr=False)

    def require(self, model: str) -> None:
        if model in self.profiles:
            if self.profiles[model].step:
                return
            raise self.lacks(model, "step: nobody measured how long a step takes, so nothing can be served", INSTEAD)
        there = ", ".join(sorted(self.profiles)) or "none yet"
        known = f"no profile of {model} on {self.gpu} (profiles of {self.gpu}: {there})"
        raise BackendError(f"{known}; {way_on(self.gpu, [model], self.folders, 'assume=')}; or {INSTEAD}")

    def lacks(self, model: str, what: str, remedy: str) -> BackendError:
        return BackendError(f"profile of {model} on {self.gpu}: {what}; {remedy}")

    def seconds(self, operation: str, model: str, width: int, height: int, batch: int = 1, frames: int = 1) -> float:
        """Return the seconds of one ``operation`` (step, text_encode, vae_encode, vae_decode) of a batch of one size.

        An operation without a table costs nothing, and the record notes it: profiles from papers include it in the
        step. Encoding or decoding beyond the largest measured batch takes seconds in proportion to its images, an upper
        bound.

        Raises:
            BackendError: the size or batch is outside the grid and ``extrapolate`` is ``error``.
        """
        key = (operation, model, width, height, batch, frames)
        seconds = self._times.get(key)
        if seconds is None:
            seconds = self._times[key] = self._measured_s(operation, Where(model, width, height, batch, frames))
        return seconds

    def _measured_s(self, operation: str, where: Where) -> float:
        self.require(where.model)
        table = self.profiles[where.model].tables.get(operation)
        if table is None:
            self.record.untimed.add((where.model, operation))
            return 0.0
        if operation == "text_encode":  # prompts have no size; their table has one column of 1 pixel
            where = Where(where.model, 1, 1, where.batch)
        # Not a step: its batch changes what a step costs, so beyond the grid it is extrapolated, or refused.
        if operation != "step" and where.batch > (largest := table.max_batch):
            self.record.in_turn.add((where.model, operation, largest))
            whole_s = self.at(table, operation, where._replace(batch=largest))
            return whole_s * (where.batch / largest) * self.service_factor
        return self.at(table, operation, where) * self.service_factor

    def step(self, work: Work, batch: int, in_turn: bool = False) -> Cost:
        """Return the cost of one step of a batch of ``batch`` images like those of ``work``.

        Args:
            in_turn: a batch beyond the measured ones takes the largest one's seconds in proportion to its images.
        """
        measured = self._measured(work, batch) if in_turn else batch
        if measured == batch:
            cost = self._step(work, batch)
        else:
            self.record.in_turn.add((work.model, "step", measured))
            cost = self._step(work, measured).times(batch / measured)
        factor = self.cfg_factor(work)
        return cost if factor == 1.0 else cost.times(factor)

    def _measured(self, work: Work, batch: int) -> int:
        """Return the largest batch up to ``batch`` whose step was measured at the size of ``work``; else ``batch``."""
        self.require(work.model)
        table = self.profiles[work.model].tables["step"]
        return table.max_covered(work.width * work.height * work.frames, batch) or batch

    def cfg_factor(self, work: Work) -> float:
        """Return the seconds of a step of ``work`` over those of its model's usual guidance."""
        if work.cfg is None:
            return 1.0
        guidance = self.profiles[work.model].guidance
        factor = None if guidance is None else guidance.factor
        self.record.guided.add((work.model, work.cfg))
        factor = CFG_EVALUATIONS if factor is None else factor
        return factor if work.cfg else 1.0 / factor

    def _step(self, work: Work, batch: int) -> Cost:
        where = Where(work.model, work.width, work.height, batch, work.frames)
        plain_s = seconds = self.seconds("step", *where)
        profile = self.profiles[work.model]
        if nets := len(work.controlnets):
            extra_s = self.of_nets({0: None, **profile.controlnet_tables}, "controlnet_step", where, nets)
            seconds += extra_s * self.service_factor
        table = profile.energy_table
        if table is None:
            cost = self.cost(work.model, seconds)
        else:
            # Measured without ControlNets: the extra seconds draw the same power.
            drawn_j = self.at(table, "energy", where)
            cost = Cost(seconds, drawn_j * (seconds / plain_s) * self.service_factor)
        self.record.stepped.add(work.model)
        return cost

    def patched(self, works: Sequence[Work], sizes: Sequence[Size], side: int) -> Cost:
        """Return the cost of one step of images of ``sizes`` in patches of ``side`` pixels."""
        model = works[0].model
        if any(work.model != model or work.controlnets for work in works):
            named = ", ".join(sorted({work.model for work in works}))
            said = f"patches of {named}: several models, or ControlNets, share no batch of patches"
            raise BackendError(f"{said}; give each model workers of its own and leave addons=ignore")
        self.require(model)
        if any(work.cfg is not None for work in works):
            raise self.lacks(model, "patched: nobody measured patches of unlike guidance", "choose batching=same-size")
        if any(work.frames > 1 for work in works):
            raise self.lacks(model, "patched: nobody measured patches of a video", "choose batching=same-size")
        timing = self.profiles[model].patched
        if timing is None:
            there = ", ".join(sorted(name for name, profile in self.profiles.items() if profile.patched)) or "none"
            what = f"patched: nobody measured what a step of patches takes (known on {self.gpu}: {there})"
            raise self.lacks(model, what, "choose batching=same-size, or add it to a profile")
        for width, height in dict.fromkeys(sizes):
            # Patches are measured together, but a size must lie within what was measured alone.
            self.seconds("step", model, width, height)  # refuses or records a size outside the measured ones
        self.record.stepped.add(model)
        return self.cost(model, timing.step_s(sizes, side) * self.service_factor)

    def peak_bytes(self, work: Work, batch: int, in_turn: bool = False) -> int | None:
        """Return the peak bytes of ``batch`` images like those of ``work``, weights included; None if not measured.

        ``in_turn`` as of ``step``.
        """
        self.require(work.model)
        batch = self._measured(work, batch) if in_turn else batch
        where, nets = Where(work.model, work.width, work.height, batch, work.frames), len(work.controlnets)
        tables = self.profiles[work.model].peak_tables
        with_nets = {n: table for (what, n), table in tables.items() if what == "controlnet_step"}
        plain, decoding = tables.get(("step", 0)), tables.get(("vae_decode", 0))
        if plain is None or (nets and not with_nets):
            return None
        peaks = [self.of_nets({0: plain} | with_nets, "memory of a step", where, nets)]
        if decoding is not None:
            peaks.append(self.at(decoding, "memory of vae_decode", where))
        # Steps and decoding follow each other, so memory is the larger of both
        # (test_peak_memory_is_the_maximum_over_steps_and_decoding).
        return round(max(peaks)) + (self.profiles[work.model].weights_bytes or 0)

    def of_nets(self, tables: Mapping[int, Table | None], what: str, where: Where, nets: int) -> float:
        """Return the value for ``nets`` inline ControlNets, from tables by their number; a None table is all zeros."""

        def at(count: int) -> float:
            table = tables[count]
            return 0.0 if table is None else self.at(table, what, where)

        if nets in tables:
            return at(nets)
        model, max_nets = where.model, max(tables)
        if nets > max_nets and (self.extrapolate == "error" or max_nets == 0):
            there = ", ".join(str(count) for count in sorted(tables) if count) or "none"
            said = f"{what}: {nets} inline ControlNets were not measured for {model} on {self.gpu} (measured: {there})"
            measure = f"measure them (mezzotint calibrate --controlnets {nets})"
            remedy = f"serve without them, {measure}, or have more of them take as much each, with extrapolate=warn"
            raise self.lacks(model, said, remedy)
        self.record.between.add((model, nets))
        if nets > max_nets:
            # Only the part that ControlNets add grows with their number; at(0) may be above 0, as for memory.
            return at(0) + (at(max_nets) - at(0)) * nets / max_nets
        low, high = max(n for n in tables if n < nets), min(n for n in tables if n > nets)
        share = (nets - low) / (high - low)
        return at(low) + (at(high) - at(low)) * share

    def at(self, table: Table, what: str, where: Where) -> float:
        """Return the value of ``table`` at a size and batch; ``what`` names the table in errors."""
        pixels = where.width * where.height * where.frames
        if table.covers(pixels, where.batch):
            pass
        elif self.extrapolate == "warn":
            self.record.extrapolated.add(where)
        elif table.covers(pixels, where.batch, NEAR):
            self.record.near.add(where)
        else:
            of_all = " of all frames" * (where.frames > 1)
            size = f"{size_text(where.width, where.height, where.frames)} ({pixels} pixels{of_all})"
            outside = f"{what} at {size}, batch {where.batch} is outside the measured grid ({table.grid()})"
            # Of a size that was measured alone, the batch is too large: no other size would help.
            is_batch = where.batch > 1 and table.covers(pixels, 1, NEAR)
            avoid = "lower max_batch, or the images of a request (images=first)" if is_batch else "use shapes=model"
            remedy = f"{avoid}, measure that size and batch, or allow it with extrapolate=warn"
            raise self.lacks(where.model, outside, remedy)
        return table.at(pixels, where.batch)

    def cost(self, model: str, seconds: float) -> Cost:
        """Return ``seconds`` with their joules at the measured power draw, if there is one."""
        power_w = self.profiles[model].power_w
        return Cost(seconds, None if power_w is None else power_w * seconds)

    def in_turn(self, parts: Iterable[tuple[str, float]]) -> Cost:
        """Return the cost of (model, seconds) that follow one another."""
        return exact_total([self.cost(*part) for part in parts])


def exact_total(costs: Sequence[Cost]) -> Cost:
    """Add up ``costs`` exactly, so that their order does not matter."""
    joules = [cost.joules for cost in costs if cost.joules is not None]
    return Cost(fsum(cost.seconds for cost in costs), fsum(joules) if len(joules) == len(costs) else None)
