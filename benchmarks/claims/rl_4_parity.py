"""Claim rl_4: what is trained on is what was sampled, and our losses are TRL's on the same rows, to 1e-5.

Rows come from rollouts of chains by pocket at temperature 1 in an office of its training range: sampled ids, with the
world's tokens between. TRL 1.16 computes each loss from them as its GRPOTrainer does, ours as our trainer does, after a
few updates, so that ratios are not 1. Then: what text alone would have become, and what the world's tokens weigh.
`--quick`: one chain.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from benchmarks.claim import Row, at_least, at_most, begin, exactly
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.episode.rollout import RolloutConfig
from evolve.training.batches import ScoredEpisode, prepared
from evolve.training.chain_tasks import chains
from evolve.training.rollouts import ChainSpec, Sampling, roll
from policies.cache import CachedPolicy
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.recordings import Recordings
from policies.rl.advantages.grpo import grpo
from policies.rl.batch import batch_of
from policies.rl.losses.cispo import Cispo
from policies.rl.losses.gspo import Gspo
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Aggregation, Array, PolicyLoss
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer, aggregate

DEPLOYMENT, UPDATES, MOST = 640, 3, 512
CASES: dict[str, tuple[PolicyLoss, Aggregation, dict[str, Any]]] = {
    "grpo": (Ppo(dual_clip=None), "seq-mean-token-mean", {"loss_type": "grpo"}),
    "bnpo": (Ppo(high=0.28, dual_clip=None), "token-mean", {"loss_type": "bnpo", "epsilon_high": 0.28}),
    "dr_grpo": (Ppo(dual_clip=None), "seq-mean-token-sum-norm", {"loss_type": "dr_grpo"}),
    "cispo": (Cispo(low=1.0, high=0.28), "token-mean", {"loss_type": "cispo", "epsilon_high": 1.28}),
    "gspo": (
        Gspo(),
        "seq-mean-token-mean",
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
        },
    ),
}
"""Name -> our loss, its aggregation, and TRL's settings for the same."""


async def rows_of_pocket(most: int, folder: Path) -> tuple[list[TrainRow], list[Array], dict[str, int], LocalPolicy]:
    """Return rows of rollouts with their advantages, what was counted of them, and the policy that sampled them."""
    office, policy = Office(OfficeConfig(deployment=DEPLOYMENT)), LocalPolicy.pocket(threads=1)
    settings = [ChainSpec(each, office) for each in chains(office.tasks("train"), 2, seed=0)[:most]]
    replies = Recordings(folder / "replies.jsonl")
    acting = RolloutConfig(world="", max_steps=6, temperature=1.0, max_tokens=80, skills=True)
    rollouts = await roll(settings, CachedPolicy(policy, replies), acting, Sampling(rollouts=4), iteration=0)
    episodes = [
        ScoredEpisode(
            trajectory=link.trajectory, rewards={"steps": -float(len(link.trajectory.steps))}, group=str(position)
        )
        for rollout in rollouts
        for position, link in enumerate(rollout.links)
    ]
    batch = prepared(episodes, replies.get_reply)
    rows, advantages = batch.advantages(grpo(batch.episodes), np.ones(len(batch.episodes.rewards), dtype=bool))
    await policy.aclose()
    return rows, advantages, batch.counts, policy


def ours(trainer: Trainer, rows: Sequence[TrainRow], advantages: Sequence[Array], old: Tensor, case: str) -> float:
    """Return our loss of the rows as one batch."""
    loss, way, _ = CASES[case]
    batch = batch_of(rows, advantages)
    token_losses, _ = loss(trainer.logprobs(rows, batch), old, batch.advantages, batch.mask)
    return float(aggregate(token_losses, batch.mask, way, MOST))


def theirs(model: Path, rows: Sequence[TrainRow], advantages: Sequence[Array], old: Tensor, case: str) -> float:
    """Return TRL's loss of the rows, computed by its GRPOTrainer over the model in a directory."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    with tempfile.TemporaryDirectory() as out:
        settings: dict[str, Any] = {"epsilon": 0.2, "epsilon_high": 0.2, "beta": 0.0} | CASES[case][2]
        config = GRPOConfig(
            output_dir=out,
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=MOST,
            **settings,
        )
        data = Dataset.from_list([{"prompt": "x"}] * 2)
        made: Any = GRPOTrainer(str(model), reward_funcs=cast("Any", _nothing), args=config, train_dataset=data)
        made.model.eval()
        made.current_gradient_accumulation_steps = 1
        with torch.no_grad():
            return float(made._compute_loss(made.model, _inputs(rows, advantages, old)))


def _nothing(completions: Sequence[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


def _inputs(rows: Sequence[TrainRow], advantages: Sequence[Array], old: Tensor) -> dict[str, Tensor]:
    """Return rows as TRL takes them: prompts padded on the left, completions on the right, and masks."""
    prompt, completion = (max(len(getattr(row, name)) for row in rows) for name in ("prompt_ids", "completion_ids"))
    made = {
        "prompt_ids": torch.zeros(len(rows), prompt, dtype=torch.long),
        "prompt_mask": torch.zeros(len(rows), prompt, dtype=torch.long),
        "completion_ids": torch.zeros(len(rows), completion, dtype=torch.long),
        "completion_mask": torch.zeros(len(rows), completion, dtype=torch.long),
        "tool_mask": torch.zeros(len(rows), completion, dtype=torch.long),
        "advantages": torch.zeros(len(rows), completion),
        "old_per_token_logps": torch.zeros(len(rows), completion),
    }
    for at, (row, own) in enumerate(zip(rows, advantages, strict=True)):
        made["prompt_ids"][at, prompt - len(row.prompt_ids) :] = torch.tensor(row.prompt_ids)
        made["prompt_mask"][at, prompt - len(row.prompt_ids) :] = 1
        length, mask = len(row.completion_ids), torch.tensor(row.loss_mask, dtype=torch.bool)
        made["completion_ids"][at, :length] = torch.tensor(row.completion_ids)
        made["completion_mask"][at, :length] = 1
        made["tool_mask"][at, :length] = mask.long()
        made["old_per_token_logps"][at, :length][mask] = old[at, : row.trained]
        for span, advantage in zip(row.spans, own, strict=True):
            made["advantages"][at, span.start : span.stop] = float(advantage)
    made["num_items_in_batch"] = made["tool_mask"].sum()
    return made


def drift(rows: Sequence[TrainRow], policy: LocalPolicy) -> tuple[int, int]:
    """Return how many turns would be other tokens if their text were tokenised again, and how many turns there are."""
    said = [row.completion_ids[span.start : span.stop] for row in rows for span in row.spans]
    again = [tuple(policy.encoder.tokens(policy.tokenizer.decode(ids))) for ids in said]
    return sum(a != b for a, b in zip(said, again, strict=True)), len(said)


def masked(trainer: Trainer, rows: Sequence[TrainRow], advantages: Sequence[Array], old: Tensor) -> float:
    """Return the largest change of a loss when what is not trained gets other log-probabilities."""
    batch = batch_of(rows, advantages)
    logp = trainer.logprobs(rows, batch)
    other = logp.masked_fill(~batch.mask, -3.0)
    found: list[float] = []
    for loss, way, _ in CASES.values():
        a, b = (
            aggregate(loss(each, old, batch.advantages, batch.mask)[0], batch.mask, way, MOST) for each in (logp, other)
        )
        found.append(float((a - b).abs()))
    return max(found)


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("rl_4_parity", __doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, advantages, counts, policy = asyncio.run(rows_of_pocket(1 if claim.quick else 4, folder))
        trainer = Trainer(POCKET, Ppo(), OptimiserOptions(weights="full", learning_rate=2e-5))
        old = trainer.logprobs(rows, batch_of(rows, advantages))
        for _ in range(UPDATES):
            trainer.step(rows, advantages)
        trainer.save(folder / "model")
        trainer.model.eval()
        made: list[Row] = []
        for case in CASES:
            pair = ours(trainer, rows, advantages, old, case), theirs(folder / "model", rows, advantages, old, case)
            print(f"{case}: ours {pair[0]:.7f}, TRL {pair[1]:.7f}", flush=True)
            made.append(Row(f"loss {case}: |ours - TRL|", abs(pair[0] - pair[1]), at_most(1e-5), n=len(rows), seed=0))
        batch = batch_of(rows, advantages)
        gap = float((old - batch.rollout_logp)[batch.mask].abs().max())
        drifted, turns = drift(rows, policy)
        made += [
            Row("log-probabilities of sampled tokens: largest |trainer - engine|", gap, at_most(1e-3), n=turns, seed=0),
            Row("turns whose text would be other tokens", drifted, at_least(1), n=turns, seed=0),
            Row("rows that broke off because a prompt was other tokens", counts["forked_rows"], exactly(0), n=turns),
            Row("losses: largest change by what is masked", masked(trainer, rows, advantages, old), exactly(0), n=5),
        ]
        claim.conclude(made)


if __name__ == "__main__":
    main()
