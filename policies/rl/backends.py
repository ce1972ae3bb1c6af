"""Which trainer runs an update: our own, or TRL's behind the same protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from policies.errors import PolicyRefused
from policies.rl.protocols import OffPolicyCorrection, PolicyLoss
from policies.rl.trainer import Optimising, Trainer

Backend = Literal["torch", "trl_sync", "trl_async"]


def make_trainer(
    backend: Backend,
    model: str | Path,
    loss: PolicyLoss,
    settings: Optimising,
    *,
    start: Path | None = None,
    correction: OffPolicyCorrection | None = None,
) -> Trainer:
    """Return the trainer of a backend: `step`, `checkpoint`, `resume`, `save` and `merged` are the same for all.

    Raises `PolicyRefused` for what the backend does not compute, `PolicyUnavailable` where its packages are missing.
    """
    if backend == "torch":
        return Trainer(model, loss, settings, start=start, correction=correction)
    if backend == "trl_async":
        raise PolicyRefused(
            "trl_async: TRL 1.16's AsyncGRPOTrainer computes attention with FlashAttention 3 on a GPU and takes its "
            'rollouts from a vLLM server; `evolve train` drives neither; use train.backend = "torch" or "trl_sync"'
        )
    from policies.rl.trl import TrlTrainer

    return TrlTrainer(model, loss, settings, start=start, correction=correction)
