"""SGLang-Diffusion's performance baselines as a profile: what its CI expects of one model on one machine."""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from backends.base import BackendError
from backends.profile import Point, Profile, Timing, write
from conf.atomic import check_ours, output_folder

if TYPE_CHECKING:
    from argparse import _SubParsersAction

LARGEST = 1 << 26
"""Bytes of the file, at most; theirs have an eighth of a million."""

ARTEFACTS = 2
"""Steps at the beginning that are launch artefacts: they return before their work is done."""

_PATTERNS = {
    "text_encode": re.compile(r"text.*encod", re.IGNORECASE),
    "vae_encode": re.compile(r"encod", re.IGNORECASE),
    "vae_decode": re.compile(r"decod", re.IGNORECASE),
}
"""Which of our operations a stage is, by its name; the first that fits."""


def read(path: Path, scenario: str, gpu: str, model: str, size: tuple[int, int]) -> Profile:
    """The profile of one scenario of a baselines file.

    A step takes the median of those after the first two, which are launch artefacts. Stages that are neither text
    encoding, VAE encoding, denoising nor decoding are left out; they take milliseconds.

    Args:
        path: the JSON file (perf_baselines/h100.json and its like).
        scenario: such as qwen_image_t2i.
        gpu, model: what the profile is of, as configurations call them.
        size: width and height of the scenario's images, which the file does not say.

    Raises:
        BackendError: the file cannot be read, has no such scenario, or holds no times of steps for it.
    """
    scenarios = _scenarios(path)
    if scenario not in scenarios:
        known = ", ".join(sorted(scenarios)[:40]) or "none"
        raise BackendError(f"{path}: found no scenario {scenario!r}, only {known}; name one of them with --scenario")
    said = scenarios[scenario]
    steps_ms = _mapping(path, scenario, said, "denoise_step_ms")
    stages_ms = _mapping(path, scenario, said, "stages_ms")
    steps = [steps_ms[name] for name in sorted(steps_ms, key=lambda name: (len(name), name))]
    if not steps:
        raise BackendError(f"{path}: {scenario}: denoise_step_ms: found no step; choose another scenario")
    width, height = size
    stages = dict.fromkeys(_PATTERNS, 0.0)
    for name, value in stages_ms.items():
        stage = next((stage for stage, pattern in _PATTERNS.items() if pattern.search(name)), None)
        if stage is not None:
            stages[stage] += value / 1e3
    load_ms = said.get("expected_load_ms")
    try:
        return Profile(
            schema=1,
            model=model,
            gpu=gpu,
            source=f"SGLang-Diffusion, performance baselines of its CI: {path.name}, {scenario}",
            basis="published",
            notes=f"{len(steps)} steps; the median of all but the first {ARTEFACTS}. Size as given, {width}x{height}.",
            step=[Point(width=width, height=height, seconds=median(steps[ARTEFACTS:] or steps) / 1e3)],
            text_encode=[Timing(seconds=stages["text_encode"])] if stages["text_encode"] else [],
            vae_encode=_points(stages["vae_encode"], size),
            vae_decode=_points(stages["vae_decode"], size),
            load_s=None if load_ms is None else load_ms / 1e3,
        )
    except (ValidationError, TypeError) as error:
        told = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise BackendError(f"{path}: {scenario}: holds times that cannot be ({told}); restore the file") from None


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `sglang` to what `mezzotint calibrate` can do."""
    parser = subparsers.add_parser(
        "sglang",
        help="a profile of SGLang-Diffusion's performance baselines",
        description="Make a profile of one scenario in SGLang-Diffusion's performance baselines (JSON).",
    )
    parser.add_argument("path", type=Path, metavar="FILE", help="such as perf_baselines/h100.json")
    parser.add_argument("--scenario", required=True, metavar="NAME", help="such as qwen_image_t2i")
    parser.add_argument("--gpu", required=True, metavar="NAME", help="the GPU, as cluster= calls it")
    parser.add_argument("--model", required=True, metavar="NAME", help="the model, as models= calls it")
    parser.add_argument(
        "--size",
        default="1024x1024",
        metavar="WxH",
        help="of its images, which the file does not say (default: 1024x1024)",
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("results/calibration"), metavar="DIR")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the profile and print its path. Raises BackendError as ``read``, or where it cannot be written."""
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", args.size)
    if found is None:
        raise BackendError(f"--size: found {args.size!r}, expected width x height in pixels, such as 1024x1024")
    for name in (args.gpu, args.model):
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise BackendError(f"--gpu, --model: found {name!r}, expected letters, digits, dots and dashes")
    profile = read(args.path, args.scenario, args.gpu, args.model, (int(found[1]), int(found[2])))
    output_folder(args.output, BackendError)
    path = args.output / f"{profile.gpu}_{profile.model}.yaml"
    check_ours(path, BackendError, "a profile", b"", b"gpu:", b"schema:")
    write(profile, path)
    print(path)
    return 0


def _scenarios(path: Path) -> Mapping[str, Mapping[str, Any]]:
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"over {LARGEST:,} bytes")
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise BackendError(f"{path}: cannot be read as baselines ({reason}); name SGLang's JSON file") from None
    found = content.get("scenarios") if isinstance(content, dict) else None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise BackendError(f"{path}: scenarios: expected a mapping of scenarios; name SGLang's performance baselines")
    return found


def _mapping(path: Path, scenario: str, said: Mapping[str, Any], key: str) -> dict[str, float]:
    found = said.get(key)
    if not isinstance(found, dict):
        raise BackendError(f"{path}: {scenario}: {key}: expected a mapping to milliseconds; restore the file")
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            where = f"{path}: {scenario}: {key}.{name[:60]}"
            raise BackendError(f"{where}: found {str(value)[:60]!r}, expected milliseconds; restore the file")
    return found


def _points(seconds: float, size: tuple[int, int]) -> list[Point]:
    return [Point(width=size[0], height=size[1], seconds=seconds)] if seconds else []


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
