"""Our own trainer: any advantage and any loss over rows of token ids, LoRA or full weights, on a CPU or GPUs.

It never learns which algorithm made its advantages. Rows that begin alike are computed together (`rl.packing`), and a
step sees its batch as a whole however that is cut into packs: the gradients of parts add up to that of the batch.

How token losses become one number. Every way is a weight for each token, so a batch can be cut into parts.

    token-mean               1 / T              T = trained tokens of the batch
    seq-mean-token-sum       1 / B              B = rows with a trained token
    seq-mean-token-mean      1 / (B T_i)        T_i = trained tokens of the row
    seq-mean-token-sum-norm  1 / (B L_max)      L_max = a constant of the run, `max_tokens`

The loss of a part is the sum of loss x weight, with the weights of the whole batch; then the gradients of the parts add
up to that of the batch. Sources: DAPO, arXiv 2503.14476 (token-mean); GRPO, arXiv 2402.03300 (seq-mean-token-mean);
Dr. GRPO, arXiv 2503.20783 (norm). Deviation: verl's norm divides by the padded length for L_max, and not by B.

Files that packages write: what they raise where the disk is full becomes the `OSError` that was behind it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from accelerate import Accelerator
from torch import Tensor

from memory.errors import BadInput
from policies.errors import PolicyError, PolicyRefused
from policies.generations.adapters import fingerprint, put_in_order
from policies.local.loading import computes_bfloat16, load_model, load_tokenizer, release_at_once
from policies.rl.batch import Batch, batch_of, filled, score, split
from policies.rl.optimising import OptimiserOptions, require_same
from policies.rl.packing import Pack, packable, packs
from policies.rl.protocols import Aggregation, Array, OffPolicyCorrection, PolicyLoss, aggregation_of
from policies.rl.ranks import rank, world_size
from policies.rl.ratios import LIMIT, effective_share, k3
from policies.rl.rows import TrainRow
from policies.rl.sharding import dealt, shard, share_of, whole, whole_of
from policies.rl.trained_model import held_in, optimizer_of, packed_to, precision, schedule_of, trainable

log = logging.getLogger(__name__)

ABOUT = "training.json"
"""Of saved weights: the settings that they were trained with."""
SUMS = ("loss", "echo")
"""Figures of a batch that are the sums over its packs."""
MOST = "_max"
"""How the name of a figure ends that is the largest of a batch; the others are means."""


class TrainingStopped(PolicyError):
    """Training could not go on; the last checkpoint and the policy it started from are untouched."""


class NothingToPublish(TrainingStopped):
    """A training ended without new weights; the same command would end alike."""


class Trainer:
    """The model under training, its optimiser, and how many updates it has seen.

    `start` is an adapter to go on from. Raises `PolicyRefused` where a model cannot be loaded.
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
        self.path, self.loss, self.settings, self.correction = str(model), loss, settings, correction
        torch.manual_seed(settings.seed)
        release_at_once(self.path)
        merged_in = None if settings.weights == "lora" else start and str(start)
        plain = load_model(self.path, merged_in, held_in(settings), device="cpu" if world_size() > 1 else None)
        made = trainable(plain, settings, start, widened=not computes_bfloat16())
        self._split = split(made)
        self._most = packed_to(settings) if packable(made) else 1
        """Tokens of a pack, at most; 1 = each row by itself."""
        if self._most == 1:
            log.warning("rows are computed one by one: the attention of %s knows no packs", self.path)
        self.accelerator: Any
        self.model: Any
        self.accelerator, self.model, self.optimizer = self._prepared(made.eval())
        self.schedule = schedule_of(self.optimizer, settings)
        self.updates = 0
        self._recomputed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Nothing more is trained."""

    def _prepared(self, model: Any) -> tuple[Any, Any, Any]:
        """Return the accelerator, the model as it computes with it, and the optimiser of its trained weights."""
        if world_size() == 1:
            accelerator = Accelerator(mixed_precision=precision(self.settings))
            return (accelerator, *accelerator.prepare(model, optimizer_of(model, self.settings)))
        accelerator = Accelerator(mixed_precision=precision(self.settings), cpu=not torch.cuda.is_available())
        shard(model, self._split)
        return accelerator, model, optimizer_of(model, self.settings)

    def step(self, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> dict[str, float]:
        """Learn from a batch of rows and return metrics; `advantages` has for each row one number per turn.

        Tokens of which nobody knows how likely they were when sampled count as sampled by the weights as they are, so
        that their weight in a correction is 1; `unscored` is how many there were, where there were any.

        A gradient or log-probabilities that are no numbers are computed once more, as a GPU may come to others;
        `recomputed` is how often that was so, where it was.

        Raises `BadInput` for rows without a trained token, and `TrainingStopped` where the loss is not finite.
        """
        began = time.perf_counter()
        settings = self.settings
        self._begin()
        batch = batch_of(rows, advantages, self.device, world=settings.echo > 0)
        order = torch.Generator().manual_seed(settings.seed + self.updates)
        unscored = int(batch.rollout_logp.isnan().sum())
        self._recomputed = 0
        batch, old = self._before(rows, batch)
        reference = {"reference_kl": self.reference_kl(rows, batch)} if settings.reference_kl else {}
        found: list[dict[str, float]] = []
        for _ in range(settings.epochs):
            shuffled = torch.randperm(len(rows), generator=order).tolist()
            for part in range(min(settings.minibatches, len(rows))):
                found.append(self._update(rows, batch, shuffled[part :: settings.minibatches], old))
        given = sum(len(row.prompt_ids) + len(row.completion_ids) for row in rows)
        seconds = time.perf_counter() - began
        return (
            _over_updates(found)
            | reference
            | ({"unscored": unscored} if unscored else {})
            | ({"recomputed": self._recomputed} if self._recomputed else {})
            | {
                "rows": len(rows),
                "tokens": int(batch.mask.sum()),
                "computed_share": self._computed(rows) / given,
                "seconds": seconds,
                "update_tokens_per_s": given * settings.epochs / seconds,
            }
        )

    @property
    def device(self) -> Any:
        """Where batches are held."""
        return self.accelerator.device

    def _begin(self) -> None:
        """Get ready for a step."""
        self.model.train()  # gradient checkpointing is off in a model that is evaluated

    def _before(self, rows: Sequence[TrainRow], batch: Batch) -> tuple[Batch, Tensor | None]:
        """Return a batch of which all log-probabilities are known, and those that the loss compares with [b, t].

        They are of the weights as they are; None where the only update begins there: unknown ones stay nan then.
        Without a correction those of a row that is reused are of the weights that sampled it, so that a clip bounds
        what all updates since have moved.
        """
        settings, unknown = self.settings, batch.rollout_logp.isnan()
        reused = [row.reused and self.correction is None for row in rows]
        once = settings.epochs * settings.minibatches == 1 and not (settings.reference_kl and unknown.any())
        if once and self.correction is None and not any(reused):
            return batch, None
        old = self.logprobs(rows, batch)
        if not old.isfinite().all():
            log.warning("a log-probability became no number, and they are computed once more")
            old = self.logprobs(rows, batch)
            self._recomputed += 1
        batch = replace(batch, rollout_logp=torch.where(unknown, old, batch.rollout_logp))
        old[reused] = batch.rollout_logp[reused]
        return batch, old

    def scored(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """Return the rows with the log-probabilities of the weights as they are where theirs are not known."""
        batch = batch_of(rows, device=self.device)
        return filled(rows, self.logprobs(rows, batch).tolist())

    def reference_kl(self, rows: Sequence[TrainRow], batch: Batch) -> float:
        """Estimate KL(sampler || base model) by k3, nats a token: one pass without gradient, with the adapter off."""
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            change = self.logprobs(rows, batch) - batch.rollout_logp
        return float(k3(change[batch.mask].double().clamp(-LIMIT, LIMIT)).mean())

    @torch.no_grad()
    def logprobs(self, rows: Sequence[TrainRow], batch: Batch) -> Tensor:
        """Return the log-probabilities of the trained tokens under the weights as they are [b, t]."""
        found = torch.zeros_like(batch.rollout_logp)
        for pack, counts in dealt(packs(rows, self._most)):
            logp, _ = self._scored(pack, rows, batch.part(pack.rows))
            if counts:
                found[list(pack.rows)] = logp
        return self.accelerator.reduce(found)

    def _scored(self, pack: Pack, rows: Sequence[TrainRow], part: Batch) -> tuple[Tensor, Tensor]:
        with self.accelerator.autocast():
            return score(self.model, pack, rows, part, self.settings.temperature, self._split)

    def _computed(self, rows: Sequence[TrainRow]) -> int:
        """Return how many tokens one pass over the rows computes."""
        return sum(pack.size for pack in packs(rows, self._most))

    def _update(
        self, rows: Sequence[TrainRow], batch: Batch, chosen: Sequence[int], old: Tensor | None
    ) -> dict[str, float]:
        """Make one update from some of the rows."""
        part, own = batch.part(chosen), [rows[at] for at in chosen]
        before = None if old is None else old[list(chosen)]
        weights, told = self._weights(part, before)
        totals, norm = self._gradient(own, part, before, weights)
        if not math.isfinite(norm):
            log.warning("the gradient of update %d became %s, and is computed once more", self.updates + 1, norm)
            self.optimizer.zero_grad()
            self._recomputed += 1
            totals, norm = self._gradient(own, part, before, weights)
        if not math.isfinite(norm):
            self.optimizer.zero_grad()
            raise stopped(norm, self.updates + 1)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.updates += 1
        totals = self._joined(totals)
        ess = effective_share(totals["ratio_mean"], totals.pop("ratio_square"))
        return told | totals | {"ess": ess, "gradient_norm": norm}

    def _weights(self, part: Batch, before: Tensor | None) -> tuple[Tensor, dict[str, float]]:
        """Return what each token's loss is multiplied by in an update [b, t], and figures of it."""
        weights = token_weights(part.mask, aggregation_of(self.loss), self.settings.max_tokens)
        told: dict[str, float] = {"learning_rate": self.optimizer.param_groups[0]["lr"]}
        if self.correction is not None and before is not None:
            corrected = self.correction(before, part.rollout_logp, part.mask)
            weights, applied = weights * corrected, corrected[part.mask].float()
            told |= {
                "masked_share": float((applied == 0).float().mean()),
                "correction_mean": float(applied.mean()),
                "correction_max": float(applied.max()),
            }
        if part.world is not None:
            weights = weights + part.world / part.world.sum().clamp(min=1)
        return weights, told

    def _gradient(
        self, rows: Sequence[TrainRow], batch: Batch, old: Tensor | None, weights: Tensor
    ) -> tuple[dict[str, float], float]:
        """Compute the gradient of the rows' loss; return figures of their tokens, and its norm before it is cut."""
        totals: dict[str, float] = {}
        for pack, counts in dealt(packs(rows, self._most)):
            at = list(pack.rows)
            piece = batch.part(at)
            found = self._backward(pack, rows, piece, None if old is None else old[at], weights[at] * counts)
            share = counts * float(piece.mask.sum() / batch.mask.sum())
            for name, value in found.items():
                if name.endswith(MOST):
                    totals[name] = max(totals.get(name, value), value)
                else:
                    totals[name] = totals.get(name, 0.0) + (value if name in SUMS else share * value)
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        return totals, float(whole(norm))

    def _joined(self, figures: dict[str, float]) -> dict[str, float]:
        """Return the sums of all processes' figures, and the largest of those that are maxima."""
        if world_size() == 1:
            return figures
        own = torch.tensor([[*figures.values()]], dtype=torch.float64).to(self.accelerator.device)
        every: Tensor = self.accelerator.gather(own)
        sums, most = every.sum(0).tolist(), every.amax(0).tolist()
        return {name: (most if name.endswith(MOST) else sums)[at] for at, name in enumerate(figures)}

    def _backward(
        self, pack: Pack, rows: Sequence[TrainRow], part: Batch, before: Tensor | None, weights: Tensor
    ) -> dict[str, float]:
        """Add a pack's gradients, and return its share of the loss and the means of its tokens."""
        logp, entropy = self._scored(pack, rows, part)
        total, figures = self._loss(logp, part, before, weights)
        self.accelerator.backward(total * world_size())  # of the gradients of several processes FSDP takes the mean
        return figures | {"entropy": float(entropy[part.mask].mean())}

    def _loss(
        self, logp: Tensor, part: Batch, before: Tensor | None, weights: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the sum of weighted token losses under log-probabilities [b, t], and figures of its tokens.

        `rollout_kl` estimates KL(sampler || trained) by k3. The importance ratio of a token is trained / sampled: it
        tells both how far updates moved the policy, and what engine and trainer compute differently.
        """
        loss, metrics = self.loss(logp, logp.detach() if before is None else before, part.advantages, part.mask)
        total = (loss.masked_fill(~part.mask, 0.0) * weights).sum()
        if part.world is not None:
            surprise = -(logp.masked_fill(~part.world, 0.0) * weights).sum()
            total = total + self.settings.echo * surprise
            metrics["echo"] = float(surprise.detach())
        drift = (logp.detach() - part.rollout_logp).masked_fill(part.rollout_logp.isnan(), 0.0)[part.mask].double()
        ratio = drift.clamp(-LIMIT, LIMIT).exp()
        return total, metrics | {
            "loss": float(total.detach()),
            "rollout_kl": float(k3(drift).mean()),
            "ratio_mean": float(ratio.mean()),
            "ratio_square": float(ratio.square().mean()),
            "ratio_max": float(ratio.max()),
        }

    def save(self, directory: Path) -> None:
        """Write the adapter, or the whole model with its tokenizer, into a new directory, all or nothing.

        Raises `OSError` where the disk is full.
        """
        if directory.exists():
            raise PolicyRefused(f"{directory} exists; a policy that was written is never written over, name another")
        made = self.accelerator.unwrap_model(self.model)
        full = self.settings.weights == "full"
        state = None
        if world_size() > 1:
            state = whole_of(made.state_dict(keep_vars=True) if full else dict(self._parameters()), "cpu")
        if rank() == 0:
            new = directory.with_name(f".{directory.name}.new")
            with writing(new):
                made.save_pretrained(str(new), state_dict=state)
                if full:
                    load_tokenizer(self.path).save_pretrained(str(new))
                else:
                    put_in_order(new)
            made_in = {"dtype": held_in(self.settings), "pack_tokens": packed_to(self.settings)}
            about = self.settings.model_dump() | made_in | {"updates": self.updates}
            (new / ABOUT).write_text(json.dumps(about, indent=2))
            new.replace(directory)
        self.accelerator.wait_for_everyone()

    def save_for_sampling(self, directory: Path) -> str:
        """Write what the engine of rollouts loads into a new directory, and return a name that equal weights share."""
        self.save(directory)
        return fingerprint(directory)[:8]

    def merged(self) -> Iterator[tuple[str, Tensor]]:
        """Give the weights of the whole model as they are now, by name, the adapter added in: one copy at a time.

        Of several processes the first gets them, all at once, and the others nothing.
        """
        return self._merged() if world_size() == 1 else iter(whole_of(dict(self._merged()), "cpu").items())

    def _merged(self) -> Iterator[tuple[str, Tensor]]:
        made = self.accelerator.unwrap_model(self.model)
        full = self.settings.weights == "full"
        base = made if full else made.get_base_model()
        adapted = {name: each for name, each in base.named_modules() if hasattr(each, "get_delta_weight")}
        for name, value in base.state_dict().items():
            layer, _, kind = name.rpartition(".base_layer.")
            if ".lora_" not in name:
                change = adapted[layer].get_delta_weight("default").detach() if kind == "weight" else 0.0
                yield name.replace(".base_layer", ""), value.detach() + change

    @property
    def acting(self) -> Any:
        """The model under training itself, for who computes with it between two steps."""
        return self.accelerator.unwrap_model(self.model)

    def checkpoint(self, path: Path, progress: Mapping[str, Any] | None = None) -> None:
        """Write what `resume` needs, all or nothing; `progress` is the caller's own and comes back from it."""
        optimizer = self.optimizer.state_dict()
        if world_size() > 1:
            optimizer["state"] = {at: whole_of(each, "cpu") for at, each in optimizer["state"].items()}
        state = {
            "trained": whole_of(dict(self._parameters()), "cpu"),
            "optimizer": optimizer,
            "updates": self.updates,
            "settings": self.settings.model_dump(),
            "progress": dict(progress or {}),
        }
        if rank() == 0:
            new = path.with_name(f"{path.name}.new")
            with writing(new), new.open("wb") as file:
                torch.save(state, file)
            new.replace(path)
        self.accelerator.wait_for_everyone()

    def resume(self, path: Path) -> dict[str, Any]:
        """Go on from a checkpoint and return its `progress`. Raises `PolicyRefused` where the settings are others.

        By how many processes it was written, and by how many it is read, does not matter.
        """
        state = torch.load(path, weights_only=True, map_location="cpu")
        require_same(path, state["settings"], self.settings)
        trained = self._parameters()
        with torch.no_grad():
            for name, value in trained:
                value.copy_(share_of(state["trained"][name], value))
        optimizer = state["optimizer"]
        if world_size() > 1:
            optimizer["state"] = {
                at: {name: share_of(value, trained[at][1]) for name, value in each.items()}
                for at, each in optimizer["state"].items()
            }
        self.optimizer.load_state_dict(optimizer)
        self.updates = self.schedule.last_epoch = int(state["updates"])
        return state["progress"]

    def _parameters(self) -> list[tuple[str, Any]]:
        named = self.accelerator.unwrap_model(self.model).named_parameters()
        return [(name, value) for name, value in named if value.requires_grad]


def _over_updates(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the figures of a batch's updates as one: the largest of a `_max`, the mean of all others."""
    every = {name: [each[name] for each in found] for name in found[0]}
    return {name: max(own) if name.endswith(MOST) else sum(own) / len(own) for name, own in every.items()}


def stopped(norm: float, update: int) -> TrainingStopped:
    """Return the error for a gradient that is no number."""
    return TrainingStopped(
        f"the gradient became {norm} at update {update}; lower learning_rate, or look at the rewards; nothing of this "
        "update was applied"
    )


WAYS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


def token_weights(mask: Tensor, way: Aggregation, max_tokens: int | None = None) -> Tensor:
    """Return a weight for each token [b, t], 0 where `mask` is False.

    Raises `BadInput` for an unknown way, a batch without trained tokens, and a norm without `max_tokens`.
    """
    if way not in WAYS:
        raise BadInput(f"got aggregation {way!r}; expected one of {', '.join(WAYS)}")
    if not mask.any():
        raise BadInput("got a batch without a trained token; drop it, or check the loss mask")
    weights = mask.float()
    tokens = weights.sum(-1, keepdim=True)
    if way == "token-mean":
        return weights / tokens.sum()
    weights = weights / (tokens > 0).sum()
    if way == "seq-mean-token-mean":
        return weights / tokens.clamp(min=1)
    if way == "seq-mean-token-sum":
        return weights
    if max_tokens is None or max_tokens < 1:
        raise BadInput(f"got max_tokens={max_tokens!r}; {way} expects the run's limit on trained tokens of a row")
    return weights / max_tokens


def aggregate(loss: Tensor, mask: Tensor, way: Aggregation, max_tokens: int | None = None) -> Tensor:
    """Return the sum of loss x weight over a whole batch [b, t]. Raises as `token_weights`."""
    return (loss.masked_fill(~mask, 0.0) * token_weights(mask, way, max_tokens)).sum()


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Raise `OSError`, with its number and `path`, where torch or safetensors could not write in this block."""
    try:
        yield
    except Exception as error:
        number = _number(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _number(error: BaseException | None) -> int | None:
    """Return the number of the system's error: of one in the chain, or told in a text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if told := re.search(r"\(os error (\d+)\)", str(error)):
            return int(told[1])
        error = error.__context__
    return None
