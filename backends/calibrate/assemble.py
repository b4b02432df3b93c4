"""Assemble a profile from the entries of a journal: means, spreads and their source."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

import numpy as np

from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate.journal import CellMeasurement, JournalEntry
from mezzotint.backends.calibrate.patches import fit
from mezzotint.backends.calibrate.plan import Cell, Plan
from mezzotint.backends.profile import (
    ControlNetLoad,
    ControlPoint,
    EnergyPoint,
    LoraTiming,
    MemoryPoint,
    Point,
    Profile,
    RemoteControlNetPoint,
    Timing,
)

_PEAKS = ("step", "vae_encode", "vae_decode", "controlnet_step")
T = TypeVar("T", bound=Timing)


def round_value(value: float) -> float:
    """Round to six significant digits, more than the clocks resolve."""
    return float(f"{value:.6g}")


def mean_and_spread(measured: CellMeasurement, quantity: str = "seconds") -> tuple[float, float | None]:
    """Return mean and interquartile range of a quantity; no range from fewer than two samples.

    The mean, since a run pays for every stall of the host: medians made six of six live runs too fast
    (results/validation-h100.md).
    """
    samples = measured.seconds[quantity]
    low, high = np.quantile(samples, (0.25, 0.75))
    return round_value(fmean(samples)), round_value(high - low) if len(samples) > 1 else None


def profile_of(plan: Plan, device: str, versions: dict[str, str], entries: Iterable[JournalEntry]) -> Profile:
    """Return the profile of ``entries``, all taken under the same conditions.

    A ControlNet's cost that is not above the noise is left out.

    Raises:
        BackendError: no denoising step was measured.
    """
    tried = list(entries)
    done = [(entry.cell, entry.measured) for entry in tried if entry.measured is not None]

    def of(*operations: str) -> list[tuple[Cell, CellMeasurement]]:
        cells = [(cell, got) for cell, got in done if cell.operation in operations]
        return sorted(cells, key=lambda at: (at[0].nets, at[0].width * at[0].height, at[0].width, at[0].batch))

    if not of("step"):
        why = next((f" ({entry.reason})" for entry in tried if entry.cell.operation == "step" and entry.reason), "")
        raise BackendError(f"no denoising step of {plan.model} could be measured{why}; try smaller sizes or batches")
    # Loading from the hub may include a download.
    local = plan.spec.weights == "random" or Path(plan.spec.weights).expanduser().is_dir()
    read = [mean_and_spread(got)[0] for _, got in of("load") if local]
    powers = [got.power_w for _, got in of("step") if got.power_w]
    patched = {cell.mix: mean_and_spread(got)[0] for cell, got in of("patched")}
    peaks = [(cell, got.peak_bytes) for operation in _PEAKS for cell, got in of(operation) if got.peak_bytes]
    return Profile(
        schema=1,
        model=plan.model,
        gpu=plan.gpu,
        source=(
            f"mezzotint calibrate on {device}: means of {plan.repeats} repeats after {plan.warmup} warm-up calls, "
            f"of the denoiser {plan.steps_timed} steps each"
        ),
        basis="measured",
        device=device,
        date=max(entry.at for entry in tried)[:10],
        dtype=plan.spec.dtype,
        software="diffusers",
        version=versions.get("diffusers"),
        versions=versions,
        notes=_notes(plan, [got for _, got in done]),
        step=_timed(Point, of("step")),
        text_encode=_timed(Timing, of("text_encode")),
        vae_encode=_timed(Point, of("vae_encode")),
        vae_decode=_timed(Point, of("vae_decode")),
        controlnet_step=_timed(ControlPoint, [at for at in of("controlnet_step") if mean_and_spread(at[1])[0] > 0]),
        apart=[
            RemoteControlNetPoint(
                gpus=1,
                width=cell.width,
                height=cell.height,
                **{f"{part}_s": mean_and_spread(got, part)[0] for part in ("encoder", "controlnet", "receive")},
            )
            for cell, got in of("apart")
        ],
        controlnet=next(
            (
                ControlNetLoad(bytes=got.facts["bytes"], load_s=mean_and_spread(got, "load")[0])
                for _, got in of("controlnet")
            ),
            None,
        ),
        lora=next((_lora(got) for _, got in of("lora")), None),
        memory=[
            MemoryPoint.model_validate(cell.model_dump(include=set(MemoryPoint.model_fields)) | {"bytes": b})
            for cell, b in peaks
        ],
        energy=[
            EnergyPoint(width=cell.width, height=cell.height, batch=cell.batch, joules=round_value(got.energy_j))
            for cell, got in of("step")
            if got.energy_j
        ],
        load_s=read[-1] if read else None,
        weights_bytes=next((got.facts["bytes"] for _, got in of("load", "draw")), None),
        power_w=round_value(median(powers)) if powers else None,
        patched=fit(plan.patches[0], patched) if plan.patches and patched else None,
    )


def _timed(kind: type[T], cells: Sequence[tuple[Cell, CellMeasurement]]) -> list[T]:
    points = []
    for cell, got in cells:
        seconds, spread_s = mean_and_spread(got)
        keys = cell.model_dump(include=set(kind.model_fields))
        points.append(kind.model_validate(keys | {"seconds": seconds, "spread_s": spread_s}))
    return points


def _lora(got: CellMeasurement) -> LoraTiming:
    times = {f"{name}_s": mean_and_spread(got, name)[0] for name in got.seconds}
    return LoraTiming.model_validate(times | got.facts)


def _notes(plan: Plan, done: Sequence[CellMeasurement]) -> str:
    spec = plan.spec
    what = f"{spec.family} {spec.scale}" + (f" {spec.variant}" if spec.variant else "")
    random = " with random weights: latency does not depend on their values."
    said = [what + (random if spec.weights == "random" else f", weights from {spec.weights}.")]
    if plan.load_from_disk:
        said.append("Loaded from files that were in the system's cache.")
    if spec.dtype != "float32" and any(got.facts.get("vae_bits") == 32 for got in done):
        said.append("The VAE runs in float32, because it overflows in float16.")
    clocks = [got.clock_mhz for got in done if got.clock_mhz]
    if clocks:
        said.append(f"SM clock after each cell {min(clocks)} to {max(clocks)} MHz, median {round(median(clocks))}.")
    if plan.lora_rank is not None:
        said.append("The LoRA's file was in the system's cache.")
    if any("load" in got.seconds for got in done):
        said.append("So were the ControlNet's.")
    if plan.device.startswith("cpu"):
        time = "Seconds are processor time of this process, of all its threads"
        said.append(f"{time}: what else the machine did is not in them.")
    return " ".join(said)
