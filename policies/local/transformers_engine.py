"""Batched decoding of any causal language model transformers knows, with its own cache and left padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from policies.local.request import Completion, Request
from policies.local.sampling import advance
from policies.local.static_step import Steps, fits

AT_ONCE = 16_384
"""Tokens of all prompts that are computed together: what a forward pass makes on the way grows with them."""


class TransformersEngine:
    """Runs batches through `model.forward`, a prompt that several rows share once; every row stays until the last ends.

    `static`: decode with caches of fixed size; None = on a GPU, where the model can (`static_step`).
    """

    def __init__(self, model: Any, *, static: bool | None = None) -> None:
        self.model = model
        own = model.get_base_model() if hasattr(model, "get_base_model") else model  # peft's passes on what it gets
        self._cache = "cache" if "cache" in signature(own.forward).parameters else "past_key_values"
        """What the model calls its keys and values: transformers 5.24 renamed them, one architecture after another."""
        self.context = int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 30))
        wanted = model.device.type == "cuda" if static is None else static
        self._steps = Steps(model, self._cache) if wanted and fits(own) else None

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in order."""
        if self._steps is None:
            return self._completed(requests)
        most = self._steps.at_most(_columns(requests))
        return [done for at in range(0, len(requests), most) for done in self._completed(requests[at : at + most])]

    def _completed(self, requests: Sequence[Request]) -> list[Completion]:
        results = [Completion(request) for request in requests]
        places: dict[tuple[int, ...], int] = {}
        at = [places.setdefault(request.prompt, len(places)) for request in requests]
        prompts = list(places)
        longest = max(map(len, prompts))
        missing = [longest - len(prompt) for prompt in prompts]
        device = self.model.device
        ids = torch.tensor([[0] * m + list(p) for m, p in zip(missing, prompts, strict=True)], device=device)
        mask = torch.arange(longest, device=device) >= torch.tensor(missing, device=device)[:, None]
        logits, cache = self._read(ids, mask)
        logits = logits[at]
        step = self._next_step(cache, at, mask, _columns(requests))
        while True:
            active = [i for i, row in enumerate(results) if not row.finish_reason]
            advance([results[i] for i in active], logits[active])
            if all(row.finish_reason for row in results):
                return results
            logits = step([row.tokens[-1] for row in results])

    def _read(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Any]:
        """Compute prompts [prompts, tokens], some columns at a time; return the logits after them and the cache."""
        width = max(1, AT_ONCE // len(ids))
        logits, cache = self._forward(ids[:, :width], mask[:, :width], None)
        for at in range(width, ids.shape[1], width):
            logits, cache = self._forward(ids[:, at : at + width], mask[:, : at + width], cache)
        return logits, cache

    def _next_step(
        self, cache: Any, at: Sequence[int], mask: Tensor, columns: int
    ) -> Callable[[Sequence[int]], Tensor]:
        """Return what takes the next token of every row and gives the logits after it."""
        if self._steps is not None:
            step = self._steps.step(len(at), columns)
            step.load(cache, at, mask)
            return step
        index = torch.tensor(at, device=mask.device)
        cache.reorder_cache(index)
        seen = mask[index]

        def grown(tokens: Sequence[int]) -> Tensor:
            nonlocal cache, seen
            seen = torch.cat((seen, seen.new_ones(len(tokens), 1)), 1)
            logits, cache = self._forward(torch.tensor(tokens, device=seen.device)[:, None], seen, cache)
            return logits

        return grown

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

    def make_room(self) -> None:
        """Drop recorded steps, where they take much memory."""
        if self._steps is not None:
            self._steps.make_room()

    def renew(self) -> None:
        """Drop nothing: recorded steps compute with new weights."""

    def forget(self) -> None:
        """Drop recorded steps."""
        if self._steps is not None:
            self._steps.clear()


def _columns(requests: Sequence[Request]) -> int:
    """Return how many tokens a row of these has at most."""
    return max(len(request.prompt) for request in requests) + max(request.max_tokens for request in requests)
