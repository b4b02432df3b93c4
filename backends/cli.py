"""`mezzotint calibrate`: the command line of the backends."""

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from backends import baselines
from backends.base import BackendError
from backends.calibrate import Plan, grid, likeness_cli, model_name

if TYPE_CHECKING:
    from argparse import _SubParsersAction

FAMILIES = {
    "sd15": "Stable Diffusion 1.5",
    "sdxl": "Stable Diffusion XL",
    "sd3": "Stable Diffusion 3 and 3.5",
    "flux": "FLUX.1",
    "sana": "SANA",
}
Dtype = Literal["float32", "float16", "bfloat16"]
OUTPUT = Path("results/calibration")
GRIDS = {"full": ("512,768,1024", "1,2,4,8,16"), "tiny": ("64,128,256", "1,2,4")}
"""Sizes and batches where none are given."""


def add_parser(
    subparsers: "_SubParsersAction[argparse.ArgumentParser]",
) -> "_SubParsersAction[argparse.ArgumentParser]":
    """Add `calibrate` to the verbs and give back its own subparsers, one for each family.

    What else can be calibrated is added to those. The parsed arguments carry `run` under `run`.
    """
    parser = subparsers.add_parser(
        "calibrate",
        help="measure a profile on the device at hand",
        description="Measure a profile of a live model: every finished cell is kept, the same command goes on.",
    )
    families = parser.add_subparsers(dest="family", required=True, metavar="FAMILY")
    options = _options()
    for family, name in FAMILIES.items():
        families.add_parser(family, help=name, description=f"Measure a profile of {name}.", parents=[options])
    baselines.add_parser(families)
    likeness_cli.add_parser(families)
    return families


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.set_defaults(run=run)
    model = options.add_argument_group("the model")
    model.add_argument("--variant", help="a model of the family, such as sd35_medium (default: the family's usual one)")
    model.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny runs on a CPU (default: full)")
    model.add_argument(
        "--weights", default="random", help="random, a pipeline folder, or with --allow-hub a hub id (default: random)"
    )
    model.add_argument("--allow-hub", action="store_true", help="let --weights be fetched from the hub")
    model.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        help="default: float32 on a CPU; on a GPU float16 for sd15 and sdxl, bfloat16 for the others",
    )
    model.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    cells = options.add_argument_group("what is measured")
    cells.add_argument("--sizes", metavar="N|WxH,...", help="pixels (default: 512,768,1024; tiny: 64,128,256)")
    cells.add_argument("--batches", metavar="N,...", help="images (default: 1,2,4,8,16; tiny: 1,2,4)")
    cells.add_argument("--controlnets", default="0,1,3", metavar="N,...", help="numbers in line (default: 0,1,3)")
    cells.add_argument("--controlnet-batches", metavar="N,...", help="batches to run them at (default: --batches)")
    cells.add_argument(
        "--apart", action=argparse.BooleanOptionalAction, default=True, help="measure ControlNets beside the encoder"
    )
    cells.add_argument("--loras", action=argparse.BooleanOptionalAction, default=True, help="measure a LoRA")
    cells.add_argument("--lora-rank", type=int, default=64, metavar="N", help="its rank (default: 64)")
    cells.add_argument("--load-from-disk", action="store_true", help="save random weights and read them back, timed")
    cells.add_argument("--energy", choices=("auto", "off"), default="auto", help="where the device counts it")
    often = options.add_argument_group("how often")
    often.add_argument("--steps-timed", type=int, default=5, metavar="N", help="steps per repeat (default: 5)")
    often.add_argument("--warmup", type=int, default=2, metavar="N", help="untimed calls per cell (default: 2)")
    often.add_argument("--repeats", type=int, default=5, metavar="N", help="repeats per cell (default: 5)")
    out = options.add_argument_group("what is written")
    out.add_argument("--gpu", metavar="NAME", help="as the profile's file spells it (default: from the device: h100)")
    out.add_argument("--model", metavar="NAME", help="as the simulator spells it (default: from the variant: sdxl)")
    out.add_argument("-o", "--output", type=Path, default=OUTPUT, metavar="FOLDER", help=f"default: {OUTPUT}")
    out.add_argument("--fresh", action="store_true", help="measure everything anew")
    return options


def run(args: argparse.Namespace) -> int:
    """Calibrate, and print what was written and what could not be measured. Returns the exit status.

    Raises:
        BackendError: something that the user can put right; the message says what.
    """
    try:
        import backends.diffusers_  # noqa: F401  (says which packages are missing, and what brings them)
        from backends.calibrate.session import Interrupted, complete, unmeasured
    except ImportError as absent:
        raise BackendError(str(absent)) from None
    try:
        done = complete(_plan(args), args.output, fresh=args.fresh)
    except Interrupted as stopped:
        print(f"mezzotint: {stopped}", file=sys.stderr)
        return 130
    for line in unmeasured(done.entries):
        print(f"not measured: {line}")
    for file in done.files:
        print(file)
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    import torch

    from backends.calibrate.machine import short_name
    from backends.diffusers_ import ModelSpec

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    gpu = args.gpu or short_name(device)  # refuses a device that is not there, before torch does
    half: Dtype = "float16" if args.family in ("sd15", "sdxl") else "bfloat16"
    dtype: Dtype = args.dtype or (half if torch.device(device).type == "cuda" else "float32")
    spec = ModelSpec(
        args.family,
        variant=args.variant,
        weights=args.weights,
        scale=args.scale,
        dtype=dtype,
        allow_hub=args.allow_hub,
    )
    sizes, batches = GRIDS[args.scale]
    return Plan(
        spec,
        gpu=gpu,
        model=args.model or model_name(args.family, args.variant, args.scale),
        shapes=grid(_sizes(args.sizes or sizes), _numbers("--batches", args.batches or batches)),
        device=device,
        warmup=args.warmup,
        repeats=args.repeats,
        steps_timed=args.steps_timed,
        controlnets=_numbers("--controlnets", args.controlnets),
        controlnet_batches=(
            _numbers("--controlnet-batches", args.controlnet_batches) if args.controlnet_batches else None
        ),
        apart=args.apart,
        lora_rank=args.lora_rank if args.loras else None,
        load_from_disk=args.load_from_disk,
        energy=args.energy,
    )


def _sizes(text: str) -> tuple[tuple[int, int], ...]:
    sizes = []
    for word in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:x(\d+))?\s*", word)
        if found is None:
            raise BackendError(
                f"--sizes: found {word!r}, expected a side or WIDTHxHEIGHT in pixels, such as 512,768x1024"
            )
        sizes.append((int(found[1]), int(found[2] or found[1])))
    return tuple(sizes)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(re.fullmatch(r"\s*\d+\s*", word) for word in words):
        raise BackendError(f"{option}: found {text!r}, expected whole numbers with commas between them, such as 1,2,4")
    return tuple(int(word) for word in words)
