"""Trainers of an update behind one protocol: our own, one of TRL's, or a service that speaks Tinker's API."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from policies.errors import PolicyRefused
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import OffPolicyCorrection, PolicyLoss
from policies.rl.ranks import world_size
from policies.rl.trainer import Trainer

Backend = Literal["torch", "trl_sync", "trl_async", "tinker"]


def make_trainer(
    backend: Backend,
    model: str | Path,
    loss: PolicyLoss,
    settings: OptimiserOptions,
    *,
    start: Path | None = None,
    correction: OffPolicyCorrection | None = None,
) -> Trainer:
    """Return the trainer of a backend: `checkpoint`, `resume`, `save` and `merged` are the same for all, and so is
    `step` but for `trl_async`, which takes its rows from a worker (`connect`, `run`).

    Where `torchrun` started several processes, the first makes the trainer, and the others are in `processes.follow`.
    Raises `PolicyRefused` for what the backend does not compute, `PolicyUnavailable` where its packages are missing.
    """
    if world_size() > 1 and backend != "torch":
        raise PolicyRefused(
            f"train.backend = {backend!r} trains in one process, got {world_size()}; start it without torchrun, or set "
            'train.backend = "torch"'
        )
    if backend != "torch" and (settings.weights, settings.optimizer) != ("lora", "adamw"):
        raise PolicyRefused(
            f"train.backend = {backend!r} trains an adapter with AdamW, got train.weights = {settings.weights!r} and "
            f'train.optimizer = {settings.optimizer!r}; set train.backend = "torch" for these'
        )
    if world_size() > 1 and settings.optimizer != "adamw":
        raise PolicyRefused(
            f"train.optimizer = {settings.optimizer!r} trains in one process, got {world_size()}; leave it out: each "
            "process has its share of the moments"
        )
    if world_size() > 1:
        from policies.rl.processes import LeadingTrainer

        return LeadingTrainer(model, loss, settings, start=start, correction=correction)
    if backend == "torch":
        return Trainer(model, loss, settings, start=start, correction=correction)
    if backend == "tinker":
        from policies.rl.tinker import TinkerTrainer

        return TinkerTrainer(model, loss, settings, start=start, correction=correction)
    if backend == "trl_async":
        from policies.rl.trl_async import TrlAsyncTrainer

        return TrlAsyncTrainer(model, loss, settings, start=start, correction=correction)
    from policies.rl.trl import TrlTrainer

    return TrlTrainer(model, loss, settings, start=start, correction=correction)
