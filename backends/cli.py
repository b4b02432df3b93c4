"""`mezzotint calibrate`: a profile of a live model or of published baselines."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from mezzotint.backends import baselines
from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate import Plan, grid
from mezzotint.backends.profile import check_replaced, file_name, write
from mezzotint.files.atomic import output_folder

OUTPUT = Path("results/calibration")
GRIDS = {"full": ("512,768,1024", "1,2,4,8,16"), "tiny": ("64,128,256", "1,2,4")}
"""Sizes and batches where none are given."""

Scale = Literal["full", "tiny"]
Dtype = Literal["float32", "float16", "bfloat16"]
Folder = Annotated[Path, Option("-o", "--output", metavar="FOLDER", help="where the files go")]


def calibrate(
    context: typer.Context,
    variant: Annotated[str | None, Option(help="such as sd35_medium; default: the usual one")] = None,
    scale: Annotated[Scale, Option(help="tiny runs on a CPU")] = "full",
    weights: Annotated[str, Option(help="random, a folder, or with --allow-hub a hub id")] = "random",
    allow_hub: Annotated[bool, Option("--allow-hub", help="let --weights be fetched from the hub")] = False,
    dtype: Annotated[
        Dtype | None,
        Option(help="default: float32 on a CPU; else float16 (sd15, sdxl) or bfloat16"),
    ] = None,
    device: Annotated[str | None, Option(help="cpu, cuda or cuda:N; default: cuda where there is one")] = None,
    sizes: Annotated[str | None, Option(metavar="N|WxH,...", help="pixels (512,768,1024; tiny: 64,128,256)")] = None,
    batches: Annotated[str | None, Option(metavar="N,...", help="images (1,2,4,8,16; tiny: 1,2,4)")] = None,
    controlnets: Annotated[str, Option(metavar="N,...", help="numbers of inline ControlNets")] = "0,1,3",
    controlnet_batches: Annotated[str | None, Option(metavar="N,...", help="of images (--batches)")] = None,
    apart: Annotated[bool, Option(help="measure ControlNets beside the encoder")] = True,
    loras: Annotated[bool, Option(help="measure a LoRA")] = True,
    lora_rank: Annotated[int, Option(min=1, help="its rank")] = 64,
    patches: Annotated[int | None, Option(metavar="SIDE", min=8, help="measure patches of so many pixels")] = None,
    patched_images: Annotated[int, Option(min=1, help="images in the largest batch of patches")] = 12,
    load_from_disk: Annotated[bool, Option("--load-from-disk", help="time reading saved weights")] = False,
    energy: Annotated[Literal["auto", "off"], Option(help="where the device counts it")] = "auto",
    steps_timed: Annotated[int, Option(min=1, help="steps per repeat")] = 5,
    warmup: Annotated[int, Option(min=0, help="untimed calls per cell")] = 2,
    repeats: Annotated[int, Option(min=1, help="repeats per cell")] = 5,
    gpu: Annotated[str | None, Option(help="as the profile's file spells it; default: from the device, h100")] = None,
    model: Annotated[str | None, Option(help="as the simulator spells it; default: from the variant, sdxl")] = None,
    output: Folder = OUTPUT,
    fresh: Annotated[bool, Option("--fresh", help="measure everything anew")] = False,
) -> int:
    """Measure a profile of a family of live models; every finished cell is kept, the same command goes on.

    Prints what was written and what could not be measured.
    """
    family = (context.info_name or "").split()[-1]
    _needs_live()
    import torch

    from mezzotint.backends.calibrate.machine import short_name
    from mezzotint.backends.calibrate.session import Interrupted, complete, unmeasured
    from mezzotint.backends.diffusers_ import ModelSpec
    from mezzotint.backends.diffusers_.networks.architectures import architecture

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    gpu = gpu or short_name(device)  # refuses a device that is not there, before torch does
    half: Dtype = "float16" if family in ("sd15", "sdxl") else "bfloat16"
    dtype = dtype or (half if torch.device(device).type == "cuda" else "float32")
    usual_sizes, usual_batches = GRIDS[scale]
    plan = Plan(
        ModelSpec(family, variant=variant, weights=weights, scale=scale, dtype=dtype, allow_hub=allow_hub),
        gpu=gpu,
        model=model or architecture(family, variant, scale).name,
        shapes=grid(_sizes(sizes or usual_sizes), _numbers("--batches", batches or usual_batches)),
        device=device,
        warmup=warmup,
        repeats=repeats,
        steps_timed=steps_timed,
        controlnets=_numbers("--controlnets", controlnets, minimum=0),
        controlnet_batches=_numbers("--controlnet-batches", controlnet_batches) if controlnet_batches else None,
        apart=apart,
        lora_rank=lora_rank if loras else None,
        patches=None if patches is None else (patches, patched_images),
        load_from_disk=load_from_disk,
        energy=energy,
    )
    try:
        done = complete(plan, output, fresh=fresh)
    except Interrupted as stopped:
        print(f"mezzotint: {stopped}", file=sys.stderr)
        return 130
    for line in unmeasured(done.entries):
        print(f"not measured: {line}")
    print(*done.files, sep="\n")
    return 0


def calibrate_sglang(
    path: Annotated[Path, Argument(metavar="FILE", help="such as perf_baselines/h100.json")],
    scenario: Annotated[str, Option(help="such as qwen_image_t2i")],
    gpu: Annotated[str, Option(help="the GPU, as cluster= calls it")],
    model: Annotated[str, Option(help="the model, as models= calls it")],
    size: Annotated[str, Option(metavar="WxH", help="of its images, which the file does not say")] = "1024x1024",
    output: Folder = OUTPUT,
) -> int:
    """Make a profile of one scenario in SGLang-Diffusion's performance baselines (JSON)."""
    file = output / file_name(gpu, model)
    one, *others = _sizes(size, "--size")
    if others:
        raise BackendError(f"--size: found {size!r}, expected one WIDTHxHEIGHT in pixels, such as 768x1024")
    profile = baselines.read(path, scenario, gpu, model, one)
    output_folder(output, BackendError)
    check_replaced(file)
    write(profile, file)
    print(file)
    return 0


def _needs_live() -> None:
    try:
        import mezzotint.backends.diffusers_  # noqa: F401
    except ImportError as absent:
        raise BackendError(str(absent)) from None


def _sizes(text: str, option: str = "--sizes") -> tuple[tuple[int, int], ...]:
    matches = [re.fullmatch(r"\s*([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?\s*", word) for word in text.split(",")]
    sizes = [(int(one[1]), int(one[2] or one[1])) for one in matches if one]
    if len(sizes) < len(matches):
        raise BackendError(f"{option}: found {text!r}, expected sides or WIDTHxHEIGHT in pixels, such as 512,768x1024")
    return tuple(sizes)


def _numbers(option: str, text: str, minimum: int = 1) -> tuple[int, ...]:
    words = text.split(",")
    if not all(re.fullmatch(r"\s*\d{1,9}\s*", word) and int(word) >= minimum for word in words):
        expected = f"whole numbers of {minimum} or more with commas between them, as 1,2,4"
        raise BackendError(f"{option}: found {text!r}, expected {expected}")
    return tuple(int(word) for word in words)
