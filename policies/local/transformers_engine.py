"""Batched decoding of any causal language model transformers knows, with its own cache and left padding."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from policies.local.request import Completion, Request
from policies.local.sampling import advance


class TransformersEngine:
    """Runs batches through `model.forward`; slower than `LlamaEngine`, and every row stays until the last one ends."""

    def __init__(self, model: Any) -> None:
        self.model = model
        own = model.get_base_model() if hasattr(model, "get_base_model") else model  # peft's passes on what it gets
        self._cache = "cache" if "cache" in signature(own.forward).parameters else "past_key_values"
        """What the model calls its keys and values: transformers 5.24 renamed them, one architecture after another."""
        self.context = int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 30))

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in order."""
        results = [Completion(request) for request in requests]
        longest = max(len(request.prompt) for request in requests)
        missing = [longest - len(request.prompt) for request in requests]
        device = self.model.device
        ids = torch.tensor([[0] * m + list(r.prompt) for m, r in zip(missing, requests, strict=True)], device=device)
        mask = torch.arange(longest, device=device) >= torch.tensor(missing, device=device)[:, None]
        cache: Any = None
        while True:
            logits, cache = self._forward(ids, mask, cache)
            active = [i for i, row in enumerate(results) if not row.finish_reason]
            advance([results[i] for i in active], logits[active])
            if all(row.finish_reason for row in results):
                return results
            ids = torch.tensor([[row.tokens[-1]] for row in results], device=device)
            mask = torch.cat((mask, mask.new_ones(len(results), 1)), 1)

    def _forward(self, ids: Tensor, mask: Tensor, cache: Any) -> tuple[Tensor, Any]:
        positions = (mask.long().cumsum(-1) - 1).clamp_min(0)[:, -ids.shape[1] :]
        out = self.model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache: cache},
        )
        return out.logits[:, -1], out[self._cache]

    def forget(self) -> None:
        """Nothing is kept."""
