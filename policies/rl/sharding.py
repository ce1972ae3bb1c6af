"""Weights and packs shared out among the processes of a training: FSDP2, by gloo on CPUs and by NCCL on GPUs.

Each process holds a share of every weight, of its gradient and of its state in the optimiser (ZeRO-3, arXiv
1910.02054); a layer is gathered while it is computed. Each process computes packs of its own, and an update is that of
one process: losses are sums with the weights of the whole batch, and so are gradients, of which FSDP takes the mean.

accelerate says which processes there are and on which devices. It takes FSDP for GPUs alone (1.15 makes DDP of several
CPUs without a word), so torch's `fully_shard` is called here: what is tested on CPUs is what GPUs compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from policies.rl.batch import IN_PARTS, Split
from policies.rl.packing import Pack
from policies.rl.ranks import rank, world_size


def shard(model: Any, parts: Split | None) -> None:
    """Share out the weights of a model in place, layer by layer; they go to this process's device.

    The layers are the model's `_no_split_modules`, as transformers names them. What computes logits in `parts` becomes
    a method of the model, so that its weights are gathered for that as they are for a forward.
    """
    names = getattr(model, "_no_split_modules", None) or ()
    for module in list(model.modules()):
        if type(module).__name__ in names:
            fully_shard(module)
    fully_shard(model)
    if parts is not None:
        setattr(model, IN_PARTS, parts.opinions)
        register_fsdp_forward_method(model, IN_PARTS)


def dealt(packs: Sequence[Pack]) -> list[tuple[Pack, bool]]:
    """Return this process's packs, the largest first, and whether each counts.

    Every process gets as many, since all have to gather a layer at the same time. Who would have fewer computes one of
    another's besides, which counts for nothing.
    """
    order = sorted(packs, key=lambda pack: -pack.size)
    end = world_size() * math.ceil(len(order) / world_size())
    return [(order[min(at, len(order) - 1)], at < len(order)) for at in range(rank(), end, world_size())]


def whole(tensor: Any) -> Any:
    """Return all of a tensor that is shared out, any other as it is. All processes call it together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_of(named: Mapping[str, Any], device: str | None = None) -> dict[str, Any]:
    """Return each tensor whole, on a device, in the first process; the others take part and get nothing.

    What is one tensor under two names (tied weights) stays one.
    """
    found: dict[str, Any] = {}
    once: dict[int, Any] = {}
    for name, value in named.items():
        if id(value) not in once:
            full = whole(value.detach())
            once[id(value)] = (full if device is None else full.to(device)) if rank() == 0 else None
        found[name] = once[id(value)]
    return found if rank() == 0 else {}


def share_of(value: Tensor, like: Any) -> Tensor:
    """Return this process's share of a tensor where it holds one of `like`; else the tensor. All call it together."""
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value, like.device_mesh, like.placements)
