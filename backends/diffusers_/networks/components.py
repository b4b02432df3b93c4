"""Networks built from their configuration, with random weights drawn where they will live."""

from importlib import import_module
from typing import Any

import torch

from mezzotint.backends.diffusers_.networks.architectures import Part


def on_meta(part: Part) -> Any:
    """Build ``part`` without memory, to count its parameters."""
    with torch.device("meta"):
        return _construct(part)


def with_random_weights(part: Part, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    """Build ``part`` on ``device`` in ``dtype``, in evaluation mode; nothing larger is allocated on the way.

    Layers take their default initialisation, which keeps activations of order one in half precision. What starts at
    zero (the output convolutions of a ControlNet) is drawn from a narrow normal instead: a part that adds zeros would
    hide mistakes and be free to skip. ``seed`` decides every weight; the process's random state is left as it was.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.device(device):
            torch.manual_seed(seed)
            network = _construct(part)
            for weight in network.parameters():
                if weight.dim() > 1 and not weight.any():
                    torch.nn.init.normal_(weight, std=0.02)
    finally:
        torch.set_default_dtype(before)
    return network.to(device).eval().requires_grad_(False)


def _construct(part: Part) -> Any:
    package, name = part.class_name.split(".")
    network = getattr(import_module(package), name)
    if package == "transformers":
        return network(network.config_class(**part.config))
    return network(**part.config)
