"""TRL 1.16's AsyncGRPOTrainer behind our trainer's files: rollouts go on while the weights are changed.

A worker of ours rolls out on a vLLM server and brings rows with their advantages; TRL trains on them in the order they
come and publishes the adapter to that server after each update, under a new name each. Computed as TRL does it:

    loss    ppo and dapo, token-mean, one advantage a row, one pass over a row; old = the version that sampled it
    rest    refused by name: other losses and aggregations, corrections, epochs, minibatches

Added to it: dual clip, which TRL has not, and a mean over the tokens of the whole update, not of each part of it. Rows
older than `MAX_STALENESS` updates are left out. One process.

TRL packs rows that begin alike into a tree: attention of each segment is over the path from the root to it, which TRL
leaves to FlashAttention 3, a kernel for GPUs. So that it also runs without CUDA, every segment is there one call of
torch's own attention (`tree_attention`).
"""

from __future__ import annotations

import importlib
import math
import shutil
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.utils import logging

from policies.errors import PolicyRefused, PolicyUnavailable
from policies.local.loading import load_tokenizer, peft_package
from policies.rl.losses.dapo import Dapo
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Array, OffPolicyCorrection, PolicyLoss, aggregation_of
from policies.rl.rows import TrainRow
from policies.rl.trained_model import held_in, lora, optimizer_of, precision, schedule_of
from policies.rl.trainer import Trainer, stopped
from policies.rl.trl import USE_TORCH, VERSION, one_advantage, package
from policies.rl.trl_server import adapter_name, require_server, version_of

MAX_STALENESS = 2
"""Updates between the version that sampled a row and the one that it trains. A server holds two adapters more
(`--max-loras`): `evolve policy serve` has room for four."""
FIGURES = {
    "loss": "loss",
    "grad_norm": "gradient_norm",
    "entropy": "entropy",
    "kl": "rollout_kl",
    "clip_ratio/region_mean": "clip_fraction",
    "sample/staleness_mean": "staleness",
    "batch/trained_tokens_per_step": "tokens",
    "perf/rollout_wait_s": "waited_s",
    "perf/weight_sync_s": "published_s",
}
"""TRL's names -> ours; `rollout_kl` counts how old the rows are, too."""


@dataclass(frozen=True)
class Portions:
    """How many rows an update is made of, and how many are computed at a time."""

    rows: int
    part: int


class TrlAsyncTrainer(Trainer):
    """A `Trainer` whose updates are made by `run`; the model is there after `connect`.

    Raises `PolicyRefused` for what TRL does not compute.
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
        self._clipped, self._start = _computed(loss, settings, correction), start
        self.path, self.loss, self.settings, self.correction = str(model), loss, settings, correction
        self.updates = 0

    def connect(self, url: str, worker: Any, folder: Path, portions: Portions) -> None:
        """Load the model, and see that the server at `url` (.../v1) can take its adapters.

        `worker` is a `RolloutWorkerProtocol` of TRL; the server reads what is published from `folder`. Raises
        `PolicyUnavailable` where no server answers or TRL is missing, `PolicyRefused` for one without room or support.
        """
        package()
        root = url.rstrip("/").removesuffix("/v1")
        newest = require_server(root)
        with _said_by_the_server(root), _quiet():
            config = _config(self._clipped, self.settings, root, folder, portions)
            self._trl = _async_trainer(self.path, config, worker, self._adapter())
        if not self._trl._lora_sync:
            raise PolicyRefused(f"TRL would publish whole models to {root}, not adapters; serve on one replica")
        self._trl.dual_clip = self._clipped.dual_clip
        self.model, self.accelerator = self._trl.model, self._trl.accelerator
        if self._start is not None:
            peft = peft_package()
            peft.set_peft_model_state_dict(self.model, peft.load_peft_weights(str(self._start)))
        self.optimizer = self._trl.optimizer = optimizer_of(self.model, self.settings)
        self.schedule = schedule_of(self.optimizer, self.settings)
        self._trl.model_version = newest

    def run(self, updates: int, told: Callable[[dict[str, float]], bool]) -> None:
        """Make so many updates; `told` gets the figures of each, with the weights as they are, and says whether to end.

        Raises what the worker's `check_health` and `told` raise, `TrainingStopped` for a gradient that is no number,
        and `PolicyUnavailable` where the server is gone.
        """

        def note(logs: dict[str, float]) -> bool:
            self.updates += 1
            return told({ours: float(logs[theirs]) for theirs, ours in FIGURES.items() if theirs in logs})

        trl = self._trl
        trl.args.max_steps, trl.note, trl.made = updates, note, self.updates
        with _said_by_the_server(trl.args.vllm_server_base_url):
            trl.train()
            for version in range(trl.model_version - MAX_STALENESS, trl.model_version + 1):
                trl.vllm_client.unload_lora_adapter(adapter_name(version))
        shutil.rmtree(trl.args.output_dir, ignore_errors=True)

    def step(self, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> dict[str, float]:
        """Refuse: rows come from a worker."""
        raise PolicyRefused(f"trl_async trains on rollouts as they come, got {len(rows)} rows at once; {USE_TORCH}")

    def _adapter(self) -> Any:
        if self._start is None:
            return lora(self.settings)
        found = peft_package().LoraConfig.from_pretrained(str(self._start))
        found.inference_mode = False
        return found


def samples(rows: Sequence[TrainRow], advantages: Sequence[Array]) -> list[Any]:
    """Return rows as TRL's `RolloutSample`s, each with the version that sampled it, the oldest where there are several.

    Raises `BadInput` where the turns of a row have different advantages (`gigpo` makes such).
    """
    sample = package(f"{ASYNC}.async_rollout_worker").RolloutSample
    return [
        sample(
            prompt=[],
            completion=[],
            input_ids=np.array([*row.prompt_ids, *row.completion_ids]),
            completion_mask=np.array([0] * len(row.prompt_ids) + [*row.loss_mask]),
            old_log_probs=np.array([0.0] * len(row.prompt_ids) + [*row.sampling_logprobs], dtype=np.float32),
            advantage=one_advantage("trl_async", row, own.tolist()),
            model_version=min(version_of(span.policy_version) for span in row.spans),
            group_id=zlib.crc32(row.group.encode()),
            metrics={"reward": row.reward},
        )
        for row, own in zip(rows, advantages, strict=True)
    ]


def _computed(loss: PolicyLoss, settings: OptimiserOptions, correction: OffPolicyCorrection | None) -> Ppo:
    """Return the loss as the one that TRL computes. Raises `PolicyRefused` where it is another."""
    way = aggregation_of(loss)
    if settings.schedule != "constant" or settings.warmup_updates:
        raise PolicyRefused(
            f"trl_async got schedule {settings.schedule!r} and warmup_updates {settings.warmup_updates}, and keeps the "
            f"rate constant: TRL begins its schedule anew whenever a training goes on; {USE_TORCH}"
        )
    once = settings.epochs == settings.minibatches == 1 and correction is None
    once &= not settings.reference_kl and not settings.echo
    if isinstance(loss, Ppo) and type(loss) in (Ppo, Dapo) and once and way == "token-mean":
        above = loss.dual_clip is None or loss.dual_clip > 1 + loss.high
        if above:
            return loss
    raise PolicyRefused(
        f"trl_async got {loss!r}, {way}, correction {correction!r}, epochs "
        f"{settings.epochs}, minibatches {settings.minibatches}, reference_kl {settings.reference_kl}, echo "
        f"{settings.echo}; the async trainer of TRL {VERSION} computes ppo and dapo (dual_clip above 1 + high), "
        f"token-mean, no correction, 1, 1, no reference_kl and no echo; {USE_TORCH}"
    )


@contextmanager
def _said_by_the_server(root: str) -> Generator[None]:
    """Turn what TRL raises for a server into errors of ours."""
    requests = importlib.import_module("requests")
    try:
        yield
    except requests.RequestException as error:
        raise PolicyUnavailable(f"the vLLM server at {root} is gone ({type(error).__name__}); start it again") from None
    except Exception as error:
        if type(error) not in (Exception, ValueError):  # TRL has none of its own
            raise
        raise PolicyRefused(f"TRL cannot train with the server at {root}: {error}") from error


@contextmanager
def _quiet() -> Generator[None]:
    """Say nothing of a model that loads, nor that TRL adds two callbacks of one kind."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _config(loss: Ppo, settings: OptimiserOptions, root: str, folder: Path, portions: Portions) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers 5 renames what TRL 1.16 sets
        return package(ASYNC).AsyncGRPOConfig(
            output_dir=str(folder),
            use_cpu=not torch.cuda.is_available(),
            bf16=precision(settings) == "bf16",
            report_to=[],
            save_strategy="no",
            logging_nan_inf_filter=False,
            disable_tqdm=True,
            gradient_checkpointing=settings.gradient_checkpointing,
            dtype=held_in(settings),
            learning_rate=settings.learning_rate,
            max_grad_norm=settings.max_grad_norm,
            seed=settings.seed,
            temperature=settings.temperature,
            epsilon=loss.low,
            epsilon_high=loss.high,
            per_device_train_batch_size=portions.part,
            gradient_accumulation_steps=portions.rows // portions.part,
            token_budget=0,
            max_staleness=MAX_STALENESS,
            max_steps=1,
            vllm_server_base_url=root,
        )


def _async_trainer(model: str, config: Any, worker: Any, adapter: Any) -> Any:
    """Return TRL's trainer over a model of its own. It saves nothing and reports to nobody."""
    datasets, callbacks = (importlib.import_module(name) for name in ("datasets", "transformers.trainer_callback"))
    module = package(f"{ASYNC}.async_grpo_trainer")
    if not torch.cuda.is_available():
        module.get_peak_flops_per_device = _unknown
    made = updater()(
        model,
        args=config,
        train_dataset=datasets.Dataset.from_list([{"prompt": ""}]),
        processing_class=load_tokenizer(model),
        peft_config=adapter,
        rollout_worker=worker,
    )
    if not torch.cuda.is_available():
        register(module.TREE_ATTENTION)
    made.remove_callback(callbacks.PrinterCallback)
    return made


def _unknown(*_: object) -> None:
    """Return what a CPU computes a second: TRL asks CUDA for it."""


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
