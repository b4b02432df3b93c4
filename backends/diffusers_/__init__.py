"""Live text-to-image pipelines of five families, run step by step and timed. Needs the ``live`` extra."""

from importlib.util import find_spec

from mezzotint.extras import remedy

if _missing := [
    name for name in ("torch", "diffusers", "transformers", "peft", "psutil", "pynvml") if find_spec(name) is None
]:
    raise ImportError(f"the live backend needs {', '.join(_missing)}; {remedy('live')}")

from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.backends.diffusers_.networks.architectures import ModelSpec
from mezzotint.backends.diffusers_.networks.build import build

__all__ = ["LiveModel", "ModelSpec", "build"]
