"""A lean decoder for Llama models: fp32, batched, with keys and values reused across rows and across calls.

Rows of a batch that start alike share one copy of that prefix (computed once, attended to by one matrix product);
what earlier calls computed comes out of a `BlockCache`; finished rows leave the batch. A test holds it
token-identical to `transformers.generate`. Only plain Llama: default rotary embedding, no biases, SiLU.

A least-recently-used cache of attention keys and values, in blocks of 32 tokens that know their prefix.

Prompts of one episode extend each other and prompts of one deployment start alike; what was computed once is copied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from policies.local.products import left_to_onednn, packed, times
from policies.local.request import Completion, Request
from policies.local.sampling import advance

CHUNK_TOKENS = 4096
CHUNK_SCORES = 16_000_000
CACHE_BYTES = 1 << 30
PACKED_BYTES = 1 << 30
"""Of the matrices of a model that are packed, at most: packed ones are a copy."""


def is_plain_llama(config: Any) -> bool:
    """True for the Llama variants this file computes."""
    return (
        config.model_type == "llama"
        and not config.attention_bias
        and not config.mlp_bias
        and config.hidden_act == "silu"
        and config.rope_parameters.get("rope_type", "default") == "default"
    )


class State:
    """Keys and values of a batch: `shared` [layers, 2, heads, prefix, size] once, `own` [layers, 2, heads, rows, room,
    size] after it. `length` [rows] counts the own tokens."""

    def __init__(self, shared: Tensor, own: Tensor, length: Tensor) -> None:
        self.shared, self.own, self.length = shared, own, length

    @property
    def prefix(self) -> int:
        """Tokens before every row's own."""
        return self.shared.shape[3]

    def rows(self, begin: int, end: int) -> State:
        """A view of some rows."""
        return State(self.shared, self.own[:, :, :, begin:end], self.length[begin:end])

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.own, self.length = self.own.index_select(3, rows), self.length[rows]

    def make_room(self, tokens: int) -> None:
        """Make `own` hold at least `tokens` tokens a row."""
        missing = tokens - self.own.shape[4]
        if missing > 0:
            self.own = functional.pad(self.own, (0, 0, 0, max(missing, self.own.shape[4] // 2)))


class LlamaEngine:
    """Runs batches over the weights of a transformers `LlamaForCausalLM`, as they are when a batch begins.

    Call `forget` after a change of the weights.
    """

    def __init__(self, model: Any) -> None:
        config = model.config
        self.context = int(config.max_position_embeddings)
        self.heads, self.groups = (
            int(config.num_key_value_heads),
            config.num_attention_heads // config.num_key_value_heads,
        )
        self.size, self.eps = int(config.head_dim), float(config.rms_norm_eps)
        self.embedding, self.output = model.model.embed_tokens.weight, model.lm_head.weight
        self.final = model.model.norm.weight
        self.layers = [_layer_weights(layer) for layer in model.model.layers]
        self.device = self.embedding.device
        inverse = config.rope_parameters["rope_theta"] ** (-torch.arange(0, self.size, 2).float() / self.size)
        angles = torch.arange(self.context)[:, None] * inverse
        self.cos, self.sin = angles.cos().to(self.device), angles.sin().to(self.device)
        self.cache = BlockCache(CACHE_BYTES // (len(self.layers) * 2 * self.heads * self.size * 4))
        self._matrices = (self.layers, self.output)

    def make_room(self) -> None:
        """Drop the cached prefixes and packed matrices, which an update outdates anyway."""
        self.forget()

    def renew(self) -> None:
        """Drop the cached prefixes and packed matrices."""
        self.forget()

    def forget(self) -> None:
        """Drop the cached prefixes and packed matrices."""
        self.cache.clear()
        self._matrices = (self.layers, self.output)

    def _pack(self) -> None:
        """Lay out the matrices for fast products, where this processor gains by it and a copy of them is small."""
        if self._matrices[1] is not self.output or not left_to_onednn(self.output):
            return
        held = [matrix for layer in self.layers for matrix in layer] + [self.output]
        if 4 * sum(matrix.numel() for matrix in held) > PACKED_BYTES:
            return
        layers = [tuple(packed(each) if each.ndim == 2 else each for each in layer) for layer in self.layers]
        self._matrices = (layers, packed(self.output))

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in order."""
        self._pack()
        results = [Completion(request) for request in requests]
        prefix = _common_blocks([request.prompt for request in requests])
        cached = [self.cache.lookup(request.prompt[:-1]) for request in requests]
        for row, blocks in zip(results, cached, strict=True):
            row.cached = BLOCK * len(blocks)
        shared = self._shared(requests[0].prompt[:prefix])
        order = sorted(range(len(results)), key=lambda i: len(requests[i].prompt) - max(prefix, results[i].cached))
        rows = [results[i] for i in order]
        state, logits = self._prefill(rows, [cached[i][prefix // BLOCK :] for i in order], shared)
        advance(rows, logits)
        self._decode(rows, state)
        return results

    def _decode(self, rows: list[Completion], state: State) -> None:
        """Generate until every row is finished, dropping finished rows when they are a quarter of the batch."""
        while rows:
            active = [i for i, row in enumerate(rows) if not row.finish_reason]
            if len(active) <= len(rows) * 3 // 4:
                self._remember(rows, state)
                rows = [rows[i] for i in active]
                state.keep(torch.tensor(active, device=self.device, dtype=torch.long))
                continue
            state.make_room(int(state.length.max()) + 1)
            last = torch.tensor([[row.tokens[-1]] for row in rows], device=self.device)
            logits = self._forward(last, state)[:, 0]
            state.length += torch.tensor([not row.finish_reason for row in rows], device=self.device)
            if len(active) < len(rows):
                logits = logits[torch.tensor(active, device=self.device)]
            advance([rows[i] for i in active], self._logits(logits))

    def _shared(self, tokens: tuple[int, ...]) -> Tensor:
        """Keys and values of a prefix [layers, 2, heads, length, size], from the cache as far as it goes."""
        blocks = self.cache.lookup(tokens)
        own = self._room(1, len(tokens))
        done = _paste(own, 0, blocks)
        if done < len(tokens):
            state = State(own[:, :, :, 0, :0], own, torch.tensor([done], device=self.device))
            self._forward(torch.tensor([tokens[done:]], device=self.device), state)
            self.cache.store(tokens, own[:, :, :, 0], 0)
        return own[:, :, :, 0]

    def _prefill(self, rows: list[Completion], cached: list[list[Tensor]], shared: Tensor) -> tuple[State, Tensor]:
        """Compute what no cache holds of every prompt (rows sorted by how much); return the state and last logits."""
        prefix = shared.shape[3]
        prompts = [row.request.prompt[prefix:] for row in rows]
        own = self._room(len(rows), max(map(len, prompts)) + 2 * BLOCK)
        done = [_paste(own, i, blocks) for i, blocks in enumerate(cached)]
        state = State(shared, own, torch.tensor(done, device=self.device))
        fresh = [prompt[n:] for prompt, n in zip(prompts, done, strict=True)]
        last: list[Tensor] = []
        begin = 0
        while begin < len(rows):
            end = self._chunk_end(begin, fresh, prefix + own.shape[4])
            width = max(len(tokens) for tokens in fresh[begin:end])
            padded = [[*tokens, *[0] * (width - len(tokens))] for tokens in fresh[begin:end]]
            part = state.rows(begin, end)
            hidden = self._forward(torch.tensor(padded, device=self.device), part)
            counts = torch.tensor([len(tokens) for tokens in fresh[begin:end]], device=self.device)
            last.append(hidden[torch.arange(end - begin, device=self.device), counts - 1])
            part.length += counts
            begin = end
        return state, self._logits(torch.cat(last))

    def _chunk_end(self, begin: int, fresh: list[tuple[int, ...]], keys: int) -> int:
        end = begin + 1
        while end < len(fresh):
            tokens = (end + 1 - begin) * len(fresh[end])
            if tokens > CHUNK_TOKENS or tokens * keys * self.heads * self.groups > CHUNK_SCORES:
                break
            end += 1
        return end

    def _forward(self, tokens: Tensor, state: State) -> Tensor:
        """Run tokens [rows, n] that follow each row's own ones; write keys and values; return hidden [rows, n, hidden].

        Rows shorter than n are padded on the right: what padding writes lies past `length`, is never seen by a real
        token, and is overwritten later.
        """
        rows, n = tokens.shape
        at = (state.length[:, None] + torch.arange(n, device=self.device)).clamp_max(state.own.shape[4] - 1)
        width = int(at[:, -1].max()) + 1
        position = (state.prefix + at).clamp_max(self.context - 1)
        rope = (self.cos[position], self.sin[position])
        unseen = torch.arange(width, device=self.device) > at[:, :, None]
        row = torch.arange(rows, device=self.device)[:, None]
        x = functional.embedding(tokens, self.embedding).flatten(0, 1)
        for index, (norm, qkv, out, norm2, gate_up, down) in enumerate(self._matrices[0]):
            joined = times(self._norm(x, norm), qkv).view(rows, n, -1, self.size).permute(2, 0, 1, 3)
            query, key, value = joined.split((self.heads * self.groups, self.heads, self.heads))
            keys, values = state.own[index, 0], state.own[index, 1]
            keys[:, row, at], values[:, row, at] = _rotate(key, *rope), value
            own = (keys[:, :, :width], values[:, :, :width])
            mixed = self._attend(_rotate(query, *rope), state.shared[index], own, unseen)
            x = x + times(mixed, out)
            opened, content = times(self._norm(x, norm2), gate_up).chunk(2, -1)
            x = x + times(functional.silu(opened).mul_(content), down)
        return x.view(rows, n, -1)

    def _attend(self, query: Tensor, shared: Tensor, own: tuple[Tensor, Tensor], unseen: Tensor) -> Tensor:
        """Attention of query [all heads, rows, n, size] over shared and own keys: [rows * n, all heads * size]."""
        _, rows, n, size = query.shape
        prefix, per_row = shared.shape[2], self.groups * n
        grouped = query.view(self.heads, self.groups, rows, n, size).transpose(1, 2) * size**-0.5
        flat = grouped.reshape(self.heads * rows, per_row, size)
        keys, values = (x.flatten(0, 1) for x in own)
        scores = torch.bmm(flat, keys.transpose(1, 2)).view(self.heads, rows, self.groups, n, -1)
        scores.masked_fill_(unseen[None, :, None], float("-inf"))
        scores = scores.view(self.heads, rows * per_row, -1)
        if prefix:
            before = torch.bmm(flat.view(self.heads, rows * per_row, size), shared[0].transpose(1, 2))
            scores = torch.cat((before, scores), -1)
        probs = scores.softmax(-1)
        mixed = torch.bmm(probs[:, :, prefix:].reshape(self.heads * rows, per_row, -1), values)
        mixed = mixed.view(self.heads, rows * per_row, size)
        if prefix:
            mixed = mixed + torch.bmm(probs[:, :, :prefix], shared[1])
        return mixed.view(self.heads, rows, self.groups, n, size).permute(1, 3, 0, 2, 4).reshape(rows * n, -1)

    def _remember(self, rows: list[Completion], state: State) -> None:
        """Put the finished rows' keys and values into the cache."""
        lengths: list[int] = state.length.tolist()
        for i, row in enumerate(rows):
            if row.finish_reason:
                tokens = (*row.request.prompt, *row.tokens)[: state.prefix + lengths[i]]
                self.cache.store(tokens, state.own[:, :, :, i], state.prefix)

    def _logits(self, hidden: Tensor) -> Tensor:
        return times(self._norm(hidden, self.final), self._matrices[1])

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight

    def _room(self, rows: int, tokens: int) -> Tensor:
        shape = (len(self.layers), 2, self.heads, rows, tokens, self.size)
        return torch.zeros(shape, device=self.device)


def _layer_weights(layer: Any) -> tuple[Tensor, ...]:
    att, mlp = layer.self_attn, layer.mlp
    return (
        layer.input_layernorm.weight,
        _joined(att.q_proj, att.k_proj, att.v_proj),
        att.o_proj.weight,
        layer.post_attention_layernorm.weight,
        _joined(mlp.gate_proj, mlp.up_proj),
        mlp.down_proj.weight,
    )


def _joined(*layers: Any) -> Tensor:
    """Return the weights of layers as one matrix, and make each layer's a part of it: there is one copy, and who
    changes a layer's weights changes the matrix."""
    whole = torch.cat([layer.weight.detach() for layer in layers])
    for layer, part in zip(layers, whole.split([len(layer.weight) for layer in layers]), strict=True):
        layer.weight.data = part
    return whole


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _common_blocks(prompts: Sequence[tuple[int, ...]]) -> int:
    """Length of the prefix all prompts share, in whole blocks, at least one token short of the shortest prompt."""
    limit = min(map(len, prompts)) - 1
    first, last = min(prompts), max(prompts)
    common = next((i for i in range(limit) if first[i] != last[i]), limit)
    return common // BLOCK * BLOCK if len(prompts) > 1 else 0


def _paste(own: Tensor, row: int, blocks: list[Tensor]) -> int:
    """Copy cached blocks to the start of a row; return how many tokens they hold."""
    if blocks:
        own[:, :, :, row, : BLOCK * len(blocks)] = torch.cat(blocks, 3)
    return BLOCK * len(blocks)


BLOCK = 32
Key = tuple[int, tuple[int, ...]]


class BlockCache:
    """Blocks keyed by (id of the preceding block, tokens); holds at most `tokens` tokens."""

    def __init__(self, tokens: int) -> None:
        self.capacity = tokens // BLOCK
        self._blocks: OrderedDict[Key, tuple[int, Tensor]] = OrderedDict()
        self._ids = count(1)

    def lookup(self, tokens: Sequence[int]) -> list[Tensor]:
        """Return the longest run of cached blocks that starts `tokens`; each block is [layers, 2, heads, 32, size]."""
        found: list[Tensor] = []
        parent = 0
        for begin in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = (parent, tuple(tokens[begin : begin + BLOCK]))
            if key not in self._blocks:
                break
            self._blocks.move_to_end(key)
            parent, block = self._blocks[key]
            found.append(block)
        return found

    def store(self, tokens: Sequence[int], state: Tensor, first: int) -> None:
        """Keep the whole blocks of `tokens` that begin at or after `first`; `state` [layers, 2, heads, n, size] starts
        at token `first` rounded down to a block. Blocks before it must be cached, else nothing is kept."""
        parent = 0
        origin = first // BLOCK * BLOCK
        for begin in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = (parent, tuple(tokens[begin : begin + BLOCK]))
            if key in self._blocks:
                self._blocks.move_to_end(key)
                parent = self._blocks[key][0]
                continue
            if begin < origin:
                return
            block = state[:, :, :, begin - origin : begin - origin + BLOCK].clone()
            parent = next(self._ids)
            self._blocks[key] = (parent, block)
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()
