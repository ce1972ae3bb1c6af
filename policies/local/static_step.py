"""Decoding one token of every row with a cache of fixed size, on a GPU as one CUDA graph.

A step of a small model is some thousand kernels, and starting them takes ten times as long as computing them; a graph
starts them at once. It replays on the memory that it was recorded with, so the size of a batch and of its cache are
rounded up to sizes that come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StaticCache
from transformers.cache_utils import StaticLayer

ROWS, COLUMNS = 8, 256
"""Batches are rounded up to the next power of two from the first on, caches to multiples of the second."""
KEPT = 1 / 16
"""Share of a device's memory that recorded steps may hold while others are recorded, or weights are updated."""
WARM_UP = 3
"""Times that a step runs before it is recorded: some libraries set themselves up meanwhile."""
DYNAMIC_ROPES = ("dynamic", "longrope")
"""Kinds of rotary embeddings that look at the numbers of a batch, which a graph cannot."""


def fits(model: Any) -> bool:
    """Tell whether a model's step is the same kernels for all inputs, over a cache of fixed size."""
    if not getattr(model, "_can_compile_fullgraph", False):
        return False
    config = model.config.get_text_config()
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type") in DYNAMIC_ROPES:
        return False
    return all(type(layer) is StaticLayer for layer in StaticCache(config=config, max_cache_len=COLUMNS).layers)


def rows_for(count: int) -> int:
    """Return the size of batch that holds so many rows."""
    return max(ROWS, 1 << (count - 1).bit_length())


def columns_for(tokens: int) -> int:
    """Return the size of cache that holds so many tokens."""
    return -(-tokens // COLUMNS) * COLUMNS


class StaticStep:
    """A step of `rows` rows with a cache of `columns` tokens.

    `cache_name`: what the model calls its keys and values. Without a GPU it computes the same without a graph.
    """

    def __init__(self, model: Any, cache_name: str, rows: int, columns: int) -> None:
        self.rows, self._model, self._name = rows, model, cache_name
        self._cache = StaticCache(config=model.config, max_cache_len=columns)
        device = model.device
        self._ids = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._positions = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._mask = torch.zeros(rows, 1, 1, columns, dtype=torch.bool, device=device)
        self._graph: Any = None
        self._logits: Any = None
        self._column = 0

    @property
    def size(self) -> int:
        """Bytes of the cache."""
        layers: list[Any] = self._cache.layers
        return sum(each.nbytes for layer in layers for each in (layer.keys, layer.values))

    def load(self, cache: Any, at: Sequence[int], mask: Tensor) -> None:
        """Begin with prompts that were computed: `at[i]` is the row of `cache` and of `mask` that row i goes on from.

        `mask` [prompts, tokens] is False where a prompt, filled up from the left, has no token.
        """
        index = torch.tensor([*at, *[at[0]] * (self.rows - len(at))], device=mask.device)
        self._cache.reset()
        for number, layer in enumerate(cache.layers):
            self._cache.update(layer.keys[index], layer.values[index], number)
        self._column = mask.shape[1]
        self._mask.zero_()
        self._mask[:, 0, 0, : self._column] = mask[index]
        self._positions.copy_(mask[index].sum(-1, keepdim=True))

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """Take the next token of each row that was loaded; return the logits after it [rows, vocabulary]."""
        count = len(tokens)
        self._ids[:count] = torch.tensor(tokens, device=self._ids.device)[:, None]
        self._mask[..., self._column] = True
        if self._graph is None and self._ids.is_cuda:
            self._record()
        if self._graph is None:
            logits = self._forward()
        else:
            self._graph.replay()
            logits = self._logits
        self._column += 1
        self._positions += 1
        return logits[:count]

    def _forward(self) -> Tensor:
        out = self._model(
            input_ids=self._ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._name: self._cache},
        )
        return out.logits[:, -1]

    def _record(self) -> None:
        """Record the step. What runs for it writes one column too many at most, which the next step writes over."""
        layers: list[Any] = self._cache.layers
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._forward()
                for layer in layers:
                    layer.cumulative_length.fill_(self._column)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._logits = self._forward()
        self._graph = graph


class Steps:
    """The steps that were recorded, by their size."""

    def __init__(self, model: Any, cache_name: str) -> None:
        self._model, self._name = model, cache_name
        self._made: dict[tuple[int, int], StaticStep] = {}

    def at_most(self, columns: int) -> int:
        """Return how many rows may be decoded at once with caches of so many tokens.

        They take half of the memory that is free, that torch keeps for itself, or that recorded steps hold.
        """
        device = self._model.device
        if device.type != "cuda":
            return 1 << 30
        config = self._model.config.get_text_config()
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        row = 2 * config.num_hidden_layers * heads * head * columns * self._model.dtype.itemsize
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + kept + sum(step.size for step in self._made.values())
        rows = max(1, free // 2 // row)
        return max(ROWS, 1 << (rows.bit_length() - 1))

    def step(self, rows: int, columns: int) -> StaticStep:
        """Return the step of that size, recorded or new."""
        key = rows_for(rows), columns_for(columns)
        if key not in self._made:
            self.make_room()
            self._made[key] = StaticStep(self._model, self._name, *key)
        return self._made[key]

    def make_room(self) -> None:
        """Drop what was recorded where it takes more of the device's memory than may stay."""
        device = self._model.device
        whole = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else 0
        if sum(step.size for step in self._made.values()) > KEPT * whole:
            self._made.clear()

    def clear(self) -> None:
        """Drop what was recorded."""
        self._made.clear()
