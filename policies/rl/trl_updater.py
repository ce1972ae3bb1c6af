"""TRL 1.16's AsyncGRPOTrainer with what our training adds to it: see `policies.rl.trl_async`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from policies.rl.trainer import stopped
from policies.rl.trl import package

ASYNC = "trl.experimental.async_grpo"


@cache
def updater() -> Any:
    """Return AsyncGRPOTrainer with dual clip, a mean over the update's tokens, and figures told as they come."""

    class Updater(package(ASYNC).AsyncGRPOTrainer):  # pyright: ignore[reportUntypedBaseClass]
        """Stops before a gradient that is no number is applied."""

        def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[Any, Any]:
            parts, items = super().get_batch_samples(epoch_iterator, num_batches, device)
            each = sum(part["global_n_tokens"] for part in parts) / max(1, len(parts))
            for part in parts:
                part["global_n_tokens"] = each
            return parts, items

        def compute_loss(self, model: Any, inputs: dict[str, Tensor], *others: Any, **named: Any) -> Any:
            if self.dual_clip is not None:
                model, inputs = _bounded(model, dict(inputs), math.log(self.dual_clip))
            return super().compute_loss(model, inputs, *others, **named)

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            super().log(logs, start_time)
            if "loss" in logs and self.note(logs):
                self.control.should_training_stop = True

        def _clip_grad_norm(self, model: Any) -> Any:
            found = super()._clip_grad_norm(model)
            if not math.isfinite(float(found)):
                raise stopped(float(found), self.made + self.state.global_step + 1)
            return found

    return Updater


def _bounded(model: Any, inputs: dict[str, Tensor], most: float) -> tuple[Callable[..., Any], dict[str, Tensor]]:
    """Return the model, and inputs for its loss, with log-probabilities at most `most` nats above the old ones.

    Where A < 0 that is dual clip: the loss stays at -c A with no gradient. Where A > 0 they are clipped before. A token
    that rows share is scored once and weighed for each: the model then gives one number for each, and not for a place.
    """
    chosen = inputs["token_index"] >= 0
    at, limit = inputs["token_index"][chosen], inputs["old_log_probs"][chosen] + most

    def scored(**given: Any) -> Any:
        outputs = model(**given)
        outputs.log_probs = torch.minimum(outputs.log_probs.flatten()[at], limit)
        outputs.entropy = outputs.entropy.flatten()[at]
        return outputs

    return scored, inputs | {"token_index": torch.where(chosen, chosen.cumsum(-1) - 1, -1)}
