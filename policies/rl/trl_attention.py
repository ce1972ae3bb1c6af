"""What TRL 1.16's async trainer computes on a CUDA device alone, computed by torch, so that it also runs on a CPU.

TRL packs rows that begin alike into a tree: attention of each segment is over the path from the root to it, which TRL
leaves to FlashAttention 3, a kernel for GPUs. Here every segment is one call of torch's own attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface


def tree_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **tree: Any
) -> tuple[Tensor, None]:
    """Return the attention of a packed tree [1, n, h, d]; query [1, h, n, d], key and value [1, k, n, d], k heads.

    Segment i stands at `tree_cu_seqlens_q[i : i + 2]`; the positions of its path, itself at the end, are
    `tree_kv_index` between `tree_cu_seqlens_k[i]` and the next.
    """
    starts, paths = (tree[f"tree_cu_seqlens_{side}"].tolist() for side in "qk")
    window: int | None = tree.get("sliding_window")
    found = torch.empty_like(query)
    for at in range(len(starts) - 1):
        own, path = slice(starts[at], starts[at + 1]), tree["tree_kv_index"][paths[at] : paths[at + 1]]
        length, whole = own.stop - own.start, len(path)
        seen = torch.ones(length, whole, dtype=torch.bool, device=query.device).tril(whole - length)
        seen = seen if window is None else seen.triu(whole - length - window + 1)
        found[:, :, own] = scaled_dot_product_attention(
            query[:, :, own],
            key.index_select(2, path),
            value.index_select(2, path),
            attn_mask=seen,
            scale=tree.get("scaling"),
            enable_gqa=True,
        )
    return found.transpose(1, 2), None


def register(name: str) -> None:
    """Make this what models compute that ask for the attention `name`."""
    AttentionInterface.register(name, tree_attention)
