"""A calibration from start to end: measure the missing cells, journal them, and write the profile."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate.assemble import profile_of
from mezzotint.backends.calibrate.bench import Bench, ran_out_of_memory
from mezzotint.backends.calibrate.journal import CellMeasurement, Journal, JournalEntry
from mezzotint.backends.calibrate.machine import Machine, machine
from mezzotint.backends.calibrate.page import write_page
from mezzotint.backends.calibrate.plan import Cell, Plan
from mezzotint.backends.diffusers_ import LiveModel
from mezzotint.backends.diffusers_.device import free_memory
from mezzotint.backends.diffusers_.families import family_of
from mezzotint.backends.diffusers_.networks.architectures import architecture
from mezzotint.backends.profile import Profile, check_replaced, file_name, shipped, write


class Interrupted(KeyboardInterrupt):
    """The user stopped the calibration; the message says what is kept and how to resume."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A finished calibration.

    Attributes:
        files: profile, page and figure.
        entries: cells tried, in the plan's order; cells larger than one that did not fit are not tried.
    """

    profile: Profile
    files: tuple[Path, ...]
    entries: tuple[JournalEntry, ...]


def complete(
    plan: Plan,
    folder: Path,
    *,
    progress: bool = True,
    model: LiveModel | None = None,
    fresh: bool = False,
    measure: Callable[[Cell], CellMeasurement] | None = None,
) -> Calibration:
    """Measure the cells of ``plan`` that the journal in ``folder`` lacks, and write the profile and its page.

    Args:
        progress: show a progress bar, on a terminal.
        model: a model already built from ``plan.spec`` on ``plan.device``; not with ``load_from_disk``.
        fresh: forget what the journal holds.
        measure: replaces Bench.

    Raises:
        BackendError: a size, name, device or folder is invalid, the model cannot be built or does not fit, or no step
            could be measured.
        Interrupted: the user stopped it; finished cells are kept.
    """
    file = folder / file_name(plan.gpu, plan.model)
    toy = plan.spec.scale == "tiny" or torch.device(plan.device).type == "cpu"
    if toy and folder.resolve() == Path(str(shipped())).resolve():
        what = "the shipped profiles of real GPUs and models, and this is none"
        raise BackendError(f"{folder}: holds {what}; name another --output")
    spec, family = plan.spec, family_of(plan.spec.family)
    for width, height, _ in plan.shapes:
        family.check_size(spec.family, width, height)
        if plan.patches is not None and (
            family.predict_patched is None or width % plan.patches[0] + height % plan.patches[0]
        ):
            said = (
                "has no such step"
                if family.predict_patched is None
                else f"makes {width}x{height}, which they do not divide"
            )
            raise BackendError(
                f"patches of {plan.patches[0]} px: {spec.family} {said}; take sd15 or sdxl and a side that divides all"
                " sizes, or leave --patches out"
            )
    check_replaced(file)
    has_controlnets = bool(architecture(spec.family, spec.variant, spec.scale).controlnets)
    cells = plan.cells(has_controlnets, family.denoiser == "unet")
    here = machine(plan.device)
    conditions = _conditions(plan, here)
    journal = Journal(folder / f"{file.stem}.journal.jsonl", JournalEntry)
    entries, note = journal.open(fresh)
    if note is not None:
        print(f"mezzotint: {note}", file=sys.stderr)
    kept = {e.cell: e for e in entries if e.conditions == conditions and e.outcome != "failed"}
    bench = Bench(plan, here, model)
    with tqdm(total=len(cells), desc=plan.model, unit="cell", disable=None if progress else True) as bar:
        try:
            for cell in cells:
                bar.set_postfix_str(str(cell))
                nothing = [tried.cell for tried in kept.values() if tried.outcome != "measured"]
                if cell not in kept and not any(_no_larger(other, cell) for other in nothing):
                    if measure is None:
                        bench.open(from_disk=plan.load_from_disk and cell.operation == "load")
                    kept[cell] = _tried(cell, measure or bench, conditions)
                    journal.add(kept[cell])
                    if here.device.type == "cuda":
                        free_memory(here.device)  # or the peak of the next cell would include it
                bar.update()
        except KeyboardInterrupt:
            done = sum(cell in kept for cell in cells)
            said = f"interrupted; {done} of {len(cells)} cells are kept in {journal.path}"
            raise Interrupted(f"{said}, and the same command goes on") from None
    if left := {str(entry.cell) for entry in entries if entry.outcome == "measured"} - {str(cell) for cell in kept}:
        note = f"{journal.path}: {len(left)} cells ({min(left)}, ...) were measured under other conditions"
        print(f"mezzotint: {note}, and are not in the profile; measure them again", file=sys.stderr)
    profile = profile_of(plan, here.name, here.versions, kept.values())
    write(profile, file)
    ordered = [kept[cell] for cell in cells if cell in kept]
    pages = write_page(profile, ordered, [cell for cell in cells if cell not in kept], folder)
    return Calibration(profile, (file, *pages), tuple(ordered))


def _conditions(plan: Plan, here: Machine) -> dict[str, str | int]:
    """Return everything besides the cell that a time, or its precision, depends on."""
    spec = plan.spec
    return {
        "device": here.name,
        **here.versions,
        "family": spec.family,
        "variant": spec.variant or "",
        "weights": spec.weights,
        "scale": spec.scale,
        "dtype": spec.dtype,
        "scheduler": spec.scheduler or "",
        "warmup": plan.warmup,
        "repeats": plan.repeats,
        "steps_timed": plan.steps_timed,
        **({"clock": "processor"} if here.device.type == "cpu" else {}),
    }


def _no_larger(cell: Cell, than: Cell) -> bool:
    """Return True if ``than`` cannot fit if ``cell`` does not: as many or more images and ControlNets of one size.

    A step with ControlNets needs at least the memory of a plain one.
    """
    same = cell.operation == than.operation or (cell.operation, than.operation) == ("step", "controlnet_step")
    more = cell.batch <= than.batch and cell.nets <= than.nets
    return same and more and (cell.width, cell.height, cell.mix) == (than.width, than.height, than.mix)


def _tried(cell: Cell, measure: Callable[[Cell], CellMeasurement], conditions: dict[str, str | int]) -> JournalEntry:
    """Measure ``cell``; an error of this cell alone becomes its outcome.

    Raises:
        BackendError: the device failed for good.
    """
    outcome: dict[str, Any]
    try:
        outcome = {"outcome": "measured", "measured": measure(cell)}
    except (RuntimeError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if ran_out_of_memory(error):
            outcome = {"outcome": "did not fit", "reason": reason}
        elif isinstance(error, torch.AcceleratorError):
            # After such an error every later call on the device fails too.
            raise BackendError(f"{cell}: the device failed ({reason}); what was measured before is kept") from error
        else:
            outcome = {"outcome": "failed", "reason": reason}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return JournalEntry(conditions=conditions, cell=cell, at=now, **outcome)


def unmeasured(entries: Iterable[JournalEntry]) -> list[str]:
    """Return a line for each cell without a measurement, with the reason."""
    return [f"{entry.cell}: {entry.outcome} ({entry.reason})" for entry in entries if entry.outcome != "measured"]
