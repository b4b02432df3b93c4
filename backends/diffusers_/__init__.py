"""Real text-to-image pipelines behind the simulator: five families, run step by step and timed.

Needs the ``live`` extra. ``build(ModelSpec("sdxl", scale="tiny"))`` gives a :class:`LiveModel`; its methods
are the stages of serving (encode, denoise from any step, decode), each with the seconds it took.
"""

from importlib.util import find_spec

if _missing := [name for name in ("torch", "diffusers", "transformers") if find_spec(name) is None]:
    raise ImportError(f"the live backend needs {', '.join(_missing)}; install them with: pip install 'mezzotint[live]'")

from backends.diffusers_.addons.apart import Apart, Parts
from backends.diffusers_.addons.controlnet import (
    Control,
    ControlNet,
    ControlService,
    control,
    inline,
    open_controlnet,
    random_controlnet,
)
from backends.diffusers_.addons.in_place import InPlace
from backends.diffusers_.addons.lora import Loras, LoraWeights, read_lora, write_random_lora
from backends.diffusers_.addons.residuals import Residuals, ResidualSource, StepInput
from backends.diffusers_.conditioning import Conditioning, joined
from backends.diffusers_.denoise import DenoiseResult
from backends.diffusers_.device.memory import peak_bytes, reset_peak
from backends.diffusers_.device.resident import Load, Resident
from backends.diffusers_.errors import LiveError
from backends.diffusers_.model import Decoded, Encoded, LiveModel
from backends.diffusers_.networks.build import build
from backends.diffusers_.networks.spec import ModelSpec

__all__ = [
    "Apart",
    "Conditioning",
    "Control",
    "ControlNet",
    "ControlService",
    "Decoded",
    "DenoiseResult",
    "Encoded",
    "InPlace",
    "LiveError",
    "LiveModel",
    "Load",
    "LoraWeights",
    "Loras",
    "ModelSpec",
    "Parts",
    "Resident",
    "ResidualSource",
    "Residuals",
    "StepInput",
    "build",
    "control",
    "inline",
    "joined",
    "open_controlnet",
    "peak_bytes",
    "random_controlnet",
    "read_lora",
    "reset_peak",
    "write_random_lora",
]
