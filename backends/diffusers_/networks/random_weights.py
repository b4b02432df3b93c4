"""Networks with random weights, drawn where they will live, and tokenizers that need no vocabulary file."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel

from mezzotint.backends.diffusers_.networks.architectures import Part

_PRINTABLE = [chr(code) for code in range(33, 127)]


def count_parameters(part: Part) -> int:
    """Return the number of parameters of ``part``, built without memory."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in _construct(part).parameters())


def weight_bytes(parts: Iterable[Part], dtype: torch.dtype) -> int:
    """Return the bytes of the weights of ``parts`` in ``dtype``, a lower bound without activations."""
    millions = (part.parameters_millions or count_parameters(part) / 1e6 for part in parts)
    return sum(round(number * 1e6 * dtype.itemsize) for number in millions)


def build_part(part: Part, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
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


def build_tokenizer(kind: str, length: int) -> Any:
    """Build a tokenizer that spells words out in characters or bytes.

    Prompts are padded to the real lengths, so shapes and times are the real ones; only where a long prompt is cut
    differs.

    Args:
        kind: ``clip`` (byte-level, 514 ids), ``t5`` (98 ids) or ``gemma`` (bytes as fallback, 355 ids).
        length: tokens that T5 and Gemma prompts are padded to; CLIP's is always 77.
    """
    if kind == "t5":
        scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
        scored += [(letter, -3.0) for letter in _PRINTABLE]
        return transformers.T5Tokenizer(vocab=scored, extra_ids=0, model_max_length=length)
    if kind == "clip":
        letters = sorted(ByteLevel.alphabet())
        pieces = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
        tokenizer, length = transformers.CLIPTokenizer, 77
    else:
        coded = [f"<0x{byte:02X}>" for byte in range(256)]
        pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *coded, *_PRINTABLE]
        tokenizer = transformers.GemmaTokenizer
    return tokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], model_max_length=length)
