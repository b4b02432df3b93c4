"""A profile from SGLang-Diffusion's performance baselines, which its CI expects of one model on one machine."""

import re
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mezzotint.backends.base import BackendError
from mezzotint.backends.profile import Profile
from mezzotint.files.validation import first_error

MAX_BYTES = 1 << 26
"""Size limit of the file; SGLang's have 125,000 bytes."""

ARTEFACTS = 2
"""Leading steps to drop: they return before their work is done, so their times are launch artefacts."""

_PATTERNS = {
    "text_encode": re.compile(r"text.*encod", re.IGNORECASE),
    "vae_encode": re.compile(r"encod", re.IGNORECASE),
    "vae_decode": re.compile(r"decod", re.IGNORECASE),
}
"""Operation -> pattern of the names of SGLang's stages; the first match counts."""

Milliseconds = Annotated[float, Field(ge=0, lt=1e12)]


class Scenario(BaseModel):
    """Milliseconds of one scenario: of its stages, of each step by number, and of its load."""

    model_config = ConfigDict(strict=True)

    stages_ms: dict[str, Milliseconds]
    denoise_step_ms: Annotated[dict[str, Milliseconds], Field(min_length=1)]
    expected_load_ms: Annotated[float, Field(gt=0, lt=1e12)] | None = None


class Baselines(BaseModel):
    scenarios: dict[str, dict[str, Any]]


def read(path: Path, scenario: str, gpu: str, model: str, size: tuple[int, int]) -> Profile:
    """Return the profile of one scenario (qwen_image_t2i) of a baselines file (perf_baselines/h100.json).

    The step time is the median without the first two steps, which are launch artefacts. Stages other than text
    encoding, VAE encoding, denoising and decoding are left out; they take milliseconds.

    Args:
        size: width and height of the images in pixels, which the file does not say.

    Raises:
        BackendError: the file cannot be read, has no such scenario, or holds no times of steps for it.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BackendError(f"{path}: has over {MAX_BYTES:,} bytes; name SGLang's JSON file")
        scenarios = Baselines.model_validate_json(path.read_bytes()).scenarios
        if scenario not in scenarios:
            known = ", ".join(sorted(scenarios)[:40]) or "none"
            raise BackendError(f"{path}: found no scenario {scenario!r}, only {known}; name one with --scenario")
        times = Scenario.model_validate(scenarios[scenario])
    except OSError as error:
        raise BackendError(f"{path}: cannot be read ({error.strerror}); name SGLang's JSON file") from None
    except ValidationError as error:
        said = f"{path}: {scenario}: {first_error(error)}"
        raise BackendError(f"{said}; name SGLang's performance baselines, whole") from None
    steps = [ms for _, ms in sorted(times.denoise_step_ms.items(), key=lambda step: (len(step[0]), step[0]))]
    width, height = size
    stages_s = dict.fromkeys(_PATTERNS, 0.0)
    for name, value in times.stages_ms.items():
        stage = next((stage for stage, pattern in _PATTERNS.items() if pattern.search(name)), None)
        if stage is not None:
            stages_s[stage] += value / 1e3
    timed = {stage: [{"seconds": seconds}] for stage, seconds in stages_s.items() if seconds}
    for stage in timed.keys() & {"vae_encode", "vae_decode"}:
        timed[stage][0] |= {"width": width, "height": height}
    content = {
        "schema": 1,
        "model": model,
        "gpu": gpu,
        "source": f"SGLang-Diffusion, performance baselines of its CI: {path.name}, {scenario}",
        "basis": "published",
        "software": "SGLang-Diffusion",
        "notes": f"{len(steps)} steps; the median of all but the first {ARTEFACTS}. Size as given, {width}x{height}.",
        "step": [{"width": width, "height": height, "seconds": median(steps[ARTEFACTS:] or steps) / 1e3}],
        "load_s": None if times.expected_load_ms is None else times.expected_load_ms / 1e3,
    }
    try:
        return Profile.model_validate(content | timed)
    except ValidationError as error:  # a step of no time
        raise BackendError(f"{path}: {scenario}: {first_error(error)}; restore the file") from None
