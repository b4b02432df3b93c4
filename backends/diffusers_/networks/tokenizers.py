"""Tokenizers that spell words out in characters or bytes, so that random weights need no vocabulary file.

Prompts are padded to the real lengths, so shapes and times are the real ones; only where a long prompt is cut differs.
"""

from typing import Any

import transformers
from tokenizers.pre_tokenizers import ByteLevel

_PRINTABLE = [chr(code) for code in range(33, 127)]


def spelled(kind: str, length: int) -> Any:
    """Build a tokenizer of ``kind``.

    Args:
        kind: ``clip`` (byte-level, 514 ids), ``t5`` (98 ids) or ``gemma`` (bytes as fallback, 355 ids).
        length: tokens that T5 and Gemma prompts are padded to; CLIP's is always 77.
    """
    if kind == "clip":
        letters = sorted(ByteLevel.alphabet())
        pieces = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
        vocabulary = {piece: index for index, piece in enumerate(pieces)}
        return transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
    if kind == "t5":
        scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
        scored += [(letter, -3.0) for letter in _PRINTABLE]
        return transformers.T5Tokenizer(vocab=scored, extra_ids=0, model_max_length=length)
    pieces = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        "<mask>",
        "▁",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *_PRINTABLE,
    ]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    return transformers.GemmaTokenizer(vocab=vocabulary, merges=[], model_max_length=length)
