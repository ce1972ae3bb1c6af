"""Optimisers and the learning-rate schedule: Muon for the matrices inside the layers, AdamW for everything else."""

from __future__ import annotations

from typing import Any

from torch.optim import AdamW, Muon, Optimizer

WARMUP_STEPS = 100
STABLE_SHARE = 0.4


def make_optimizers(model: Any, *, muon_lr: float, adam_lr: float) -> list[Optimizer]:
    """Return the optimisers of a Llama model. Each group keeps its peak rate under `peak`.

    Muon (Jordan et al. 2024) orthogonalises the momentum of each matrix. Here it learns to copy in about half the
    tokens AdamW needs. Embeddings (tied to the output) and norms are not such maps and stay with AdamW.
    """
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    fused = next(model.parameters()).device.type == "cuda"
    optimizers: list[Optimizer] = [
        Muon(matrices, lr=muon_lr, momentum=0.95, nesterov=True, weight_decay=0.02),
        AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=fused or None),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def rate(progress: float, step: int) -> float:
    """Return the share of the peak rate at `progress` in [0, 1]: 100 warm-up steps, stable to 0.4, linear to 0."""
    decay = min(1.0, max(0.0, (1.0 - progress) / (1.0 - STABLE_SHARE)))
    return min(1.0, (step + 1) / WARMUP_STEPS) * decay


def apply_step(optimizers: list[Optimizer], share: float) -> None:
    """Set every rate to `share` of its peak, step, and clear the gradients."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
