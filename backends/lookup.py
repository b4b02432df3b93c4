"""Costs of single operations of one model on one kind of GPU, looked up in measured tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Literal

from mezzotint.backends.base import BackendError, Cost, Work, size_text
from mezzotint.backends.lookup_record import LookupRecord
from mezzotint.backends.patched import Size
from mezzotint.backends.profile import Profile
from mezzotint.backends.table import Table

INSTEAD = "choose another models= or cluster=, or measure one and name its folder with backend.folder"


@dataclass(slots=True)
class Lookup:
    """The profiles of one kind of GPU, by model, and a record of the look-ups in them."""

    gpu: str
    profiles: Mapping[str, Profile]
    extrapolate: Literal["error", "warn"]
    service_factor: float
    record: LookupRecord = field(init=False, default_factory=LookupRecord)
    _times: dict[tuple[str, str, int, int, int, int], float] = field(init=False, default_factory=dict, repr=False)

    def require(self, model: str) -> None:
        if model in self.profiles:
            if self.profiles[model].step:
                return
            raise self.lacks(model, "step: nobody measured how long a step takes, so nothing can be served", INSTEAD)
        there = ", ".join(sorted(self.profiles)) or "none yet"
        raise BackendError(f"no profile of {model} on {self.gpu} (profiles of {self.gpu}: {there}); {INSTEAD}")

    def lacks(self, model: str, what: str, remedy: str) -> BackendError:
        return BackendError(f"profile of {model} on {self.gpu}: {what}; {remedy}")

    def seconds(self, operation: str, model: str, width: int, height: int, batch: int = 1, frames: int = 1) -> float:
        """Return the seconds of one ``operation`` (step, text_encode, vae_encode, vae_decode) of a batch of one size.

        An operation without a table costs nothing: profiles from papers include it in the step. Encoding or decoding
        beyond the largest measured batch takes seconds in proportion to its images, an upper bound.

        Raises:
            BackendError: the size or batch is outside the grid and ``extrapolate`` is ``error``.
        """
        key = (operation, model, width, height, batch, frames)
        found = self._times.get(key)
        if found is None:
            self.require(model)
            table = self.profiles[model].tables.get(operation)
            # Prompts have no size; their table has one column of 1 pixel.
            width, height, frames = (1, 1, 1) if operation == "text_encode" else (width, height, frames)
            if table is None:
                found = 0.0
            # Not a step: its batch changes what a step costs, so beyond the grid it is extrapolated, or refused.
            elif operation != "step" and batch > (largest := table.max_batch):
                self.record.in_turn.add((model, operation, largest))
                whole_s = self.at(table, operation, model, width, height, largest, frames)
                found = whole_s * (batch / largest) * self.service_factor
            else:
                found = self.at(table, operation, model, width, height, batch, frames) * self.service_factor
            self._times[key] = found
        return found

    def step(self, work: Work, batch: int) -> Cost:
        model, width, height, frames = work.model, work.width, work.height, work.frames
        plain_s = seconds = self.seconds("step", model, width, height, batch, frames)
        if work.controlnets:
            tables: dict[int, Table | None] = {0: None, **self.profiles[model].controlnet_tables}
            nets = len(work.controlnets)
            extra_s = self.of_nets(tables, "controlnet_step", model, width, height, batch, nets, frames)
            seconds += extra_s * self.service_factor
        table = self.profiles[model].energy_table
        if table is None:
            joules = self.cost(model, seconds).joules
        else:
            # Measured without ControlNets: the extra seconds draw the same power.
            drawn_j = self.at(table, "energy", model, width, height, batch, frames)
            joules = drawn_j * (seconds / plain_s) * self.service_factor
        self.record.stepped.add(model)
        return Cost(seconds, joules)

    def patched(self, works: Sequence[Work], sizes: Sequence[Size], side: int) -> Cost:
        """Return the cost of one step of images of ``sizes`` in patches of ``side`` pixels."""
        model = works[0].model
        if any(work.model != model or work.controlnets for work in works):
            named = ", ".join(sorted({work.model for work in works}))
            said = f"patches of {named}: several models, or ControlNets, share no batch of patches"
            raise BackendError(f"{said}; give each model workers of its own and leave addons=ignore")
        self.require(model)
        if any(work.frames > 1 for work in works):
            raise self.lacks(model, "patched: nobody measured patches of a video", "choose batching=same-size")
        timing = self.profiles[model].patched
        if timing is None:
            there = ", ".join(sorted(name for name, each in self.profiles.items() if each.patched)) or "none"
            what = f"patched: nobody measured what a step of patches takes (known on {self.gpu}: {there})"
            raise self.lacks(model, what, "choose batching=same-size, or add it to a profile")
        for width, height in dict.fromkeys(sizes):
            # Patches are measured together, but a size must lie within what was measured alone.
            self.seconds("step", model, width, height)  # refuses or records a size outside the measured ones
        self.record.stepped.add(model)
        return self.cost(model, timing.step_s(sizes, side) * self.service_factor)

    def peak_bytes(self, work: Work, batch: int) -> int | None:
        """Return the peak bytes of ``batch`` works like ``work``, weights included; None if not measured."""
        model, width, height, nets = work.model, work.width, work.height, len(work.controlnets)
        frames = work.frames
        self.require(model)
        tables = self.profiles[model].peak_tables
        with_nets = {n: table for (what, n), table in tables.items() if what == "controlnet_step"}
        plain, decoding = tables.get(("step", 0)), tables.get(("vae_decode", 0))
        if plain is None or (nets and not with_nets):
            return None
        peaks = [self.of_nets({0: plain} | with_nets, "memory of a step", model, width, height, batch, nets, frames)]
        if decoding is not None:
            peaks.append(self.at(decoding, "memory of vae_decode", model, width, height, batch, frames))
        # Steps and decoding follow each other, so memory is the larger of both
        # (test_peak_memory_is_the_maximum_over_steps_and_decoding).
        return round(max(peaks)) + (self.profiles[model].weights_bytes or 0)

    def of_nets(
        self,
        tables: Mapping[int, Table | None],
        what: str,
        model: str,
        width: int,
        height: int,
        batch: int,
        nets: int,
        frames: int = 1,
    ) -> float:
        """Return the value for ``nets`` inline ControlNets, from tables by their number; a None table is all zeros."""

        def at(count: int) -> float:
            table = tables[count]
            return 0.0 if table is None else self.at(table, what, model, width, height, batch, frames)

        if nets in tables:
            return at(nets)
        if nets > max(tables) and (self.extrapolate == "error" or max(tables) == 0):
            there = ", ".join(str(count) for count in sorted(tables) if count) or "none"
            said = f"{what}: {nets} inline ControlNets were not measured for {model} on {self.gpu} (measured: {there})"
            measure = f"measure them (mezzotint calibrate --controlnets {nets})"
            remedy = f"serve without them, {measure}, or have more of them take as much each, with extrapolate=warn"
            raise self.lacks(model, said, remedy)
        self.record.between.add((model, nets))
        if nets > max(tables):
            # Only the part that ControlNets add grows with their number; at(0) may be above 0, as for memory.
            return at(0) + (at(max(tables)) - at(0)) * nets / max(tables)
        low, high = max(n for n in tables if n < nets), min(n for n in tables if n > nets)
        share = (nets - low) / (high - low)
        return at(low) + (at(high) - at(low)) * share

    def at(self, table: Table, what: str, model: str, width: int, height: int, batch: int, frames: int = 1) -> float:
        """Return the value of ``table`` at a size and batch; ``what`` names the table in errors."""
        pixels = width * height * frames
        if not table.covers(pixels, batch):
            if self.extrapolate == "error":
                size = size_text(width, height, frames)
                where = f"{what} at {size} ({pixels} pixels{' of all frames' * (frames > 1)}), batch {batch}"
                remedy = "use shapes=model, measure that size and batch, or allow it with extrapolate=warn"
                raise self.lacks(model, f"{where} is outside the measured grid ({table.grid()})", remedy)
            self.record.extrapolated.add((model, width, height, frames, batch))
        return table.at(pixels, batch)

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
