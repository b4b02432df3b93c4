"""`mezzotint calibrate likeness`: how alike blocks are from step to step, as a table for feature_cache=."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from backends.base import BackendError
from backends.likeness import Measured, write
from conf.atomic import check_ours

if TYPE_CHECKING:
    from argparse import _SubParsersAction

FAMILIES = ("sd15", "sdxl", "sd3")


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `likeness` to what `mezzotint calibrate` can do."""
    parser = subparsers.add_parser(
        "likeness",
        help="how alike a denoiser's blocks are from step to step, patch by patch",
        description="Measure the share of patch-blocks whose input is within a threshold (mean squared difference) of "
        "that of the step before, by size and step, for feature_cache=patch-level-measured.",
    )
    parser.add_argument("families", nargs="+", choices=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny runs on a CPU (default: full)")
    parser.add_argument("--weights", default="random", help="random or a pipeline folder (default: random)")
    parser.add_argument("--device", default=None, help="cpu, cuda or cuda:N (default: cuda where there is one)")
    parser.add_argument("--sizes", metavar="N,...", help="sides in pixels (default: 512,768,1024; tiny: 64,128,192)")
    parser.add_argument("--patch", type=int, metavar="N", help="side of a patch in pixels (default: 256; tiny: 64)")
    parser.add_argument("--threshold", type=float, default=0.1, help="PatchedServe's is 0.1 (default)")
    parser.add_argument("--steps", type=int, default=50, help="default: 50")
    parser.add_argument("--images", type=int, default=4, help="of each size (default: 4; the paper takes 1,000)")
    parser.add_argument("-o", "--output", type=Path, default=Path("likeness.json"), help="default: likeness.json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, write the table and print what was found.

    Raises:
        BackendError: something that the user can put right; the message says what.
    """
    if min(args.steps - 1, args.images) < 1 or not args.threshold > 0 or (args.patch or 1) < 1:
        raise BackendError("likeness: expected 2 or more steps, 1 or more images, and a threshold and patches over 0")
    check_ours(args.output, BackendError, "a table of likeness", b"{", b'"measured_on"')
    try:
        import backends.diffusers_  # noqa: F401  (its error says which extra brings what is missing)
    except ImportError as absent:
        raise BackendError(str(absent)) from None
    import torch

    from backends.calibrate.likeness import measure
    from backends.calibrate.plan import model_name
    from backends.diffusers_ import ModelSpec, build
    from backends.diffusers_.device.memory import usable_device

    tiny = args.scale == "tiny"
    words = (args.sizes or ("64,128,192" if tiny else "512,768,1024")).split(",")
    if not all(re.fullmatch(r"\d{1,5}", word) and int(word) for word in words):
        raise BackendError(f"--sizes: found {args.sizes!r}, expected sides in pixels with commas between them")
    patch = args.patch or (64 if tiny else 256)
    place = usable_device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    rows = []
    for family in args.families:
        half = place.type == "cuda" and not tiny
        dtype = ("bfloat16" if family == "sd3" else "float16") if half else "float32"
        model = build(ModelSpec(family, weights=args.weights, scale=args.scale, dtype=dtype), place)  # type: ignore[arg-type]
        name = model_name(family, None, args.scale)
        for side in map(int, words):
            rows.append(measure(model, name, side, side, patch, args.threshold, args.steps, args.images))
            found = rows[-1]
            mean, whole = (sum(shares[1:]) / (args.steps - 1) for shares in (found.patch_share, found.image_share))
            print(f"{name} {side}x{side}: {mean:.1%} of patch-blocks, {whole:.1%} of whole blocks within the threshold")
    weights = (
        "random weights, whose activations are not a trained model's" if args.weights == "random" else args.weights
    )
    said = f"{', '.join(args.families)} ({args.scale}, {weights}) on {place}, {args.images} images of each size"
    try:
        write(Measured(measured_on=said, threshold=args.threshold, rows=rows), args.output)
    except OSError as error:
        raise BackendError(f"{args.output}: {error.strerror or error}") from None
    print(args.output)
    return 0
