"""Encoded prompts: the tensors that the denoiser is conditioned on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Conditioning:
    """Encoded prompts of a batch, one row each.

    Attributes:
        positive: name to (batch, ...) tensors of the prompts.
        negative: the same of the negative prompts, or None without classifier-free guidance.
        guidance: guidance scale.
        encode_s: seconds of the text encoders.
    """

    positive: Tensors
    negative: Tensors | None
    guidance: float
    encode_s: float

    @property
    def guided(self) -> bool:
        """True if every step runs the denoiser on twice the batch (classifier-free guidance)."""
        return self.negative is not None

    def stacked(self) -> dict[str, torch.Tensor]:
        """Return the denoiser's input rows: negative rows first, then positive ones."""
        if self.negative is None:
            return dict(self.positive)
        return {name: torch.cat([self.negative[name], rows]) for name, rows in self.positive.items()}

    def select(self, rows: Sequence[int]) -> "Conditioning":
        """Return the prompts at ``rows``, in that order."""

        def pick(half: Tensors) -> Tensors:
            return {name: each[list(rows)] for name, each in half.items()}

        negative = None if self.negative is None else pick(self.negative)
        return Conditioning(pick(self.positive), negative, self.guidance, self.encode_s)


def joined(parts: Sequence[Conditioning]) -> Conditioning:
    """Concatenate batches encoded by the same model."""

    def cat(halves: Sequence[Tensors]) -> Tensors:
        return {name: torch.cat([half[name] for half in halves]) for name in halves[0]}

    negatives = [part.negative for part in parts if part.negative is not None]
    return Conditioning(
        positive=cat([part.positive for part in parts]),
        negative=cat(negatives) if negatives else None,
        guidance=parts[0].guidance,
        encode_s=sum(part.encode_s for part in parts),
    )
