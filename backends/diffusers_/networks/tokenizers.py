"""Tokenizers built in code, so that a model with random weights needs no vocabulary file.

They spell words out in characters or bytes. Prompts are padded to the lengths of the real ones, so the shapes
that reach the networks, and with them the times, are the real ones; only where a long prompt is cut differs.
"""

from typing import Any

import transformers
from tokenizers.pre_tokenizers import ByteLevel

from backends.diffusers_.errors import LiveError

_PRINTABLE = [chr(code) for code in range(33, 127)]


def spelled(kind: str, length: int) -> Any:
    """Build a tokenizer of ``kind``.

    Args:
        kind: ``clip`` (byte-level, 514 ids), ``t5`` (98 ids) or ``gemma`` (bytes as fallback, 355 ids).
        length: tokens that T5 and Gemma prompts are padded to; CLIP's is always 77.

    Raises:
        LiveError: unknown kind.
    """
    if kind == "clip":
        letters = sorted(ByteLevel.alphabet())
        pieces = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
        return transformers.CLIPTokenizer(
            vocab={piece: index for index, piece in enumerate(pieces)}, merges=[], model_max_length=77
        )
    if kind == "t5":
        scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
        scored += [(letter, -3.0) for letter in _PRINTABLE]
        return transformers.T5Tokenizer(vocab=scored, extra_ids=0, model_max_length=length)
    if kind == "gemma":
        pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁"]
        pieces += [f"<0x{byte:02X}>" for byte in range(256)]
        pieces += _PRINTABLE
        return transformers.GemmaTokenizer(
            vocab={piece: index for index, piece in enumerate(pieces)}, merges=[], model_max_length=length
        )
    raise LiveError(f"no tokenizer of kind {kind!r}; there are clip, t5 and gemma")
