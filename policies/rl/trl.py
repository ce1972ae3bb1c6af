"""TRL 1.16 behind our trainer's protocol: the same rows and advantages in, the same files out, TRL's update between.

For parity (is our loss what everybody else's is?) and for scale: loss, gradients, clipping and the optimiser's step are
those of TRL's `GRPOTrainer`. It gets rows that were rolled out and advantages that were made already; its own rollouts,
rewards and group statistics are never asked.

    trl_sync    losses ppo and dapo (every aggregation), cispo (low >= 1, token-mean), gspo (one advantage a row)
    trl_async   `policies.rl.trl_async`

Everything else is refused by name. Only these two modules know TRL.
"""

from __future__ import annotations

import gc
import importlib
import math
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.local.loading import load_tokenizer
from policies.rl.batch import Batch
from policies.rl.losses.cispo import Cispo
from policies.rl.losses.dapo import Dapo
from policies.rl.losses.gspo import Gspo
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import OffPolicyCorrection, PolicyLoss, aggregation_of
from policies.rl.rows import TrainRow
from policies.rl.trained_model import optimizer_of, packed_to, precision
from policies.rl.trainer import Trainer, stopped

VERSION = "1.16"
LOSS_TYPES = {
    "token-mean": "dapo",
    "seq-mean-token-mean": "grpo",
    "seq-mean-token-sum": "luspo",
    "seq-mean-token-sum-norm": "dr_grpo",
}
"""Our aggregation -> TRL's `loss_type`, which names loss and aggregation in one."""
BY_TOKENS = ("dapo", "cispo")
"""The loss types that divide by the tokens of the whole batch; the others take a mean over rows."""
USE_TORCH = 'use train.backend = "torch", which computes every loss, aggregation and correction'


class TrlTrainer(Trainer):
    """`Trainer` whose updates TRL makes. Their metrics: loss, entropy, clip_fraction and gradient_norm.

    Raises `PolicyRefused` for what TRL does not compute, and `PolicyUnavailable` where TRL 1.16 is missing.
    """

    def __init__(
        self,
        model: str | Path,
        loss: PolicyLoss,
        settings: OptimiserOptions,
        *,
        start: Path | None = None,
        correction: OffPolicyCorrection | None = None,
    ) -> None:
        if correction is not None:
            raise PolicyRefused(f"trl_sync got {correction!r}; TRL corrects nothing but rollouts of vLLM; {USE_TORCH}")
        if settings.echo:
            raise PolicyRefused(f"trl_sync got echo {settings.echo}; TRL learns nothing of the world; {USE_TORCH}")
        self._wanted = grpo_settings(loss, settings)
        super().__init__(model, loss, settings, start=start)
        self._trl.lr_scheduler = self.schedule

    def _prepared(self, model: Any) -> tuple[Any, Any, Any]:
        optimizer = optimizer_of(model, self.settings)
        self._trl = _grpo_trainer(model, optimizer, load_tokenizer(self.path), self._wanted, self.settings)
        return self._trl.accelerator, model, optimizer

    def _computed(self, rows: Sequence[TrainRow]) -> int:
        return sum(len(part) * sum(_widths([rows[at] for at, _ in part])) for part in self._parts(rows))

    def _update(
        self, rows: Sequence[TrainRow], batch: Batch, chosen: Sequence[int], old: Tensor | None
    ) -> dict[str, float]:
        part, own = batch.part(chosen), [rows[at] for at in chosen]
        if isinstance(self.loss, Gspo):
            for row, advantages, mask in zip(own, part.advantages, part.mask, strict=True):
                one_advantage("trl_sync with the loss gspo", row, advantages[mask].tolist())
        before = None if old is None else old[list(chosen)]
        parts = self._parts(own)
        scale = 1.0
        if self._wanted["loss_type"] not in BY_TOKENS:
            scale = sum(map(len, parts)) / sum(row.trained > 0 for row in own)
        given = [tensors(own, each, part, before) for each in parts]
        for each in given:
            each["advantages"] *= scale
            each["num_items_in_batch"] = part.mask.sum().cpu()
        rate = self.optimizer.param_groups[0]["lr"]
        figures = self._trl.learn(given, self.updates + 1)
        self.updates += 1
        return {
            "loss": figures["train_loss"],
            "entropy": figures["entropy"],
            "clip_fraction": figures.get("clip_ratio/region_mean", figures.get("cispo_clip_ratio", 0.0)),
            "gradient_norm": figures["gradient_norm"],
            "learning_rate": rate,
        }

    def _parts(self, rows: Sequence[TrainRow]) -> list[list[tuple[int, bool]]]:
        """Return parts of one size, alike in length and within `pack_tokens`: which row, and whether it counts.

        TRL takes the mean over parts, so they must be of one size: rows that do not count fill up the last.
        """
        order = sorted(range(len(rows)), key=lambda at: len(rows[at].prompt_ids) + len(rows[at].completion_ids))
        count = math.ceil(len(rows) / max(1, packed_to(self.settings) // sum(_widths(rows))))
        size = math.ceil(len(rows) / count)
        filled = [(at, True) for at in order] + [(order[-1], False)] * (size * count - len(rows))
        return [filled[first : first + size] for first in range(0, size * count, size)]


def grpo_settings(loss: PolicyLoss, settings: OptimiserOptions) -> dict[str, Any]:
    """Return TRL's settings for a loss of ours. Raises `PolicyRefused` for one that it does not compute."""
    way = aggregation_of(loss)
    found: dict[str, Any] | None = None
    if type(loss) in (Ppo, Dapo) and isinstance(loss, Ppo):
        if loss.dual_clip is None or loss.dual_clip > 1 + loss.high:
            found = {"loss_type": LOSS_TYPES[way], "epsilon": loss.low, "delta": loss.dual_clip}
            found["epsilon_high"] = loss.high
    elif isinstance(loss, Cispo) and loss.low >= 1 and way == "token-mean":
        found = {"loss_type": "cispo", "epsilon_high": 1 + loss.high}
    elif isinstance(loss, Gspo):
        found = {"loss_type": "grpo", "epsilon": loss.low, "epsilon_high": loss.high}
        found["importance_sampling_level"] = "sequence"
    if found is None:
        raise PolicyRefused(
            f"trl_sync got the loss {loss!r} with the aggregation {way}; TRL {VERSION} computes ppo and dapo "
            f"(dual_clip above 1 + high), cispo (low at least 1, token-mean) and gspo; {USE_TORCH}"
        )
    return found | {"max_completion_length": settings.max_tokens, "temperature": settings.temperature}


def tensors(
    rows: Sequence[TrainRow], chosen: Sequence[tuple[int, bool]], batch: Batch, old: Tensor | None
) -> dict[str, Tensor]:
    """Return some rows as GRPOTrainer takes them: prompts padded on the left, completions on the right.

    `chosen` says which rows [b], and whether each counts; `batch` and `old` [rows, t] hold what their tokens weigh.
    """
    prompt, completion = _widths([rows[at] for at, _ in chosen])
    made = {
        name: torch.zeros(len(chosen), width, dtype=torch.long)
        for name, width in (("prompt_ids", prompt), ("prompt_mask", prompt), ("completion_ids", completion))
    }
    made["completion_mask"], made["tool_mask"] = (torch.zeros_like(made["completion_ids"]) for _ in range(2))
    weights = {"advantages": batch.advantages} | ({} if old is None else {"old_per_token_logps": old})
    made |= {name: torch.zeros(len(chosen), completion) for name in weights}
    for n, (at, counts) in enumerate(chosen):
        row = rows[at]
        made["prompt_ids"][n, prompt - len(row.prompt_ids) :] = torch.tensor(row.prompt_ids)
        made["prompt_mask"][n, prompt - len(row.prompt_ids) :] = 1
        made["completion_ids"][n, : len(row.completion_ids)] = torch.tensor(row.completion_ids)
        made["completion_mask"][n, : len(row.completion_ids)] = 1
        mask = torch.tensor(row.loss_mask, dtype=torch.bool)
        made["tool_mask"][n, : len(mask)] = mask.long() * counts
        for name, values in weights.items():
            made[name][n, : len(mask)][mask] = values[at, : row.trained].cpu()
    return made


def one_advantage(backend: str, row: TrainRow, advantages: Sequence[float]) -> float:
    """Return the one advantage of a row's turns or tokens. Raises `BadInput` where there are several."""
    if len(set(advantages)) > 1:
        raise BadInput(
            f"{backend} takes one advantage a row, got {sorted(set(advantages))} in that of {row.trajectory_id!r}; "
            f"choose train.advantages that are the same for all steps of a trajectory (not gigpo), or {USE_TORCH}"
        )
    return advantages[0] if advantages else 0.0


def _widths(rows: Sequence[TrainRow]) -> tuple[int, int]:
    """Return the length of the longest prompt, and of the longest completion."""
    return max(len(row.prompt_ids) for row in rows), max(len(row.completion_ids) for row in rows)


def package(module: str = "trl") -> Any:
    """Return a module of TRL. Raises `PolicyUnavailable` where there is none, or another version."""
    try:
        found = importlib.import_module("trl")
    except ModuleNotFoundError as missing:
        raise PolicyUnavailable("the backend needs TRL: pip install 'evolve-agents[trl]'") from missing
    if not found.__version__.startswith(f"{VERSION}."):
        raise PolicyUnavailable(f"got TRL {found.__version__}, expected {VERSION}: pip install 'evolve-agents[trl]'")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are importing from 'trl.experimental'")
        return importlib.import_module(module)


def _grpo_trainer(
    model: Any, optimizer: Any, tokenizer: Any, wanted: dict[str, Any], settings: OptimiserOptions
) -> Any:
    """Return TRL's trainer over a model and its optimiser. It writes nothing and reports to nobody."""
    datasets, callbacks = (importlib.import_module(name) for name in ("datasets", "transformers.trainer_callback"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers 5 renames what TRL 1.16 sets
        config = package().GRPOConfig(
            output_dir=str(Path(tempfile.gettempdir()) / "trl-writes-nothing-here"),
            use_cpu=not torch.cuda.is_available(),
            bf16=precision(settings) == "bf16",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            logging_nan_inf_filter=False,
            disable_tqdm=True,
            gradient_checkpointing=settings.gradient_checkpointing,
            lr_scheduler_type="constant",
            learning_rate=settings.learning_rate,
            max_grad_norm=settings.max_grad_norm,
            seed=settings.seed,
            beta=0.0,
            per_device_train_batch_size=2,
            num_generations=2,
            max_steps=1,
            **wanted,
        )
        made = _updater()(
            model,
            reward_funcs=_unasked,
            args=config,
            train_dataset=datasets.Dataset.from_list([{"prompt": ""}] * 2),
            processing_class=tokenizer,
            optimizers=(optimizer, None),
        )
    made.remove_callback(callbacks.PrinterCallback)
    return made


def _unasked(completions: Sequence[Any], **_: Any) -> list[float]:
    raise BadInput(f"TRL asked for the reward of {len(completions)} completions; rows bring their advantages with them")


@cache
def _updater() -> Any:
    """Return GRPOTrainer with one thing changed: what it trains on is given to `learn`."""

    class Updater(package().GRPOTrainer):  # pyright: ignore[reportUntypedBaseClass]
        """Trains on given parts of one batch, and stops before a gradient that is no number is applied."""

        def learn(self, parts: list[dict[str, Tensor]], update: int) -> dict[str, float]:
            """Make one update and return TRL's metrics."""
            self.given, self.update = parts, update
            self.args.gradient_accumulation_steps = self.args.steps_per_generation = len(parts)
            gc.freeze()  # accelerate collects garbage before each training: seconds, over all that torch has loaded
            try:
                self.train()
            finally:
                gc.unfreeze()
            return self.state.log_history[-1] | {"gradient_norm": self.norm}

        def get_train_dataloader(self) -> list[dict[str, Tensor]]:
            return self.given

        def _prepare_inputs(self, generation_batch: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: value.to(self.accelerator.device) for name, value in generation_batch.items()}

        def _clip_grad_norm(self, model: Any) -> Any:
            found = super()._clip_grad_norm(model)
            self.norm = float(found)
            if not math.isfinite(self.norm):
                raise stopped(self.norm, self.update)
            return found

    return Updater
