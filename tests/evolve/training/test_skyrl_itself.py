"""SkyRL 0.4's own evaluator and trainer take what our generator returns. Skipped where SkyRL is not installed."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evolve.training.skyrl import ChainGenerator
from policies.rl.advantages.sage import sage
from policies.rl.skyrl_rows import ClientEngine, GivenAdvantages
from tests.evolve.training.clusters import SkyrlClient, rollouts, specs

evaluating: Any = pytest.importorskip("skyrl.train.evaluate", reason="SkyRL is not installed", exc_type=ImportError)
training: Any = pytest.importorskip("skyrl.train.trainer", reason="SkyRL is not installed", exc_type=ImportError)
SAMPLES = 2


class Remembering(ChainGenerator):
    """Keeps what it returned, to compare SkyRL's figures with."""

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> dict[str, Any]:
        self.output = await super().generate(input_batch, disable_tqdm)
        return dict(self.output)


def generator(client: SkyrlClient, split: str) -> Remembering:
    settings = rollouts(specs(split, 2), client.encoder)
    return Remembering(settings, lambda session, told: ClientEngine(client, 100_000, session, told), sage)


def batches(made: ChainGenerator, split: str, client: SkyrlClient, folder: Path) -> list[Any]:
    """Return the lines as SkyRL's own dataset reads them from a file: one batch."""
    file = folder / "lines.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in made.dataset(split)))
    lines = evaluating_dataset()(str(file), client.encoder.tokenizer, max_prompt_length=10_000, num_workers=1)
    return [lines.collate_fn([lines[at] for at in range(len(lines))])]


def evaluating_dataset() -> Any:
    from importlib import import_module

    return import_module("skyrl.train.dataset").PromptDataset


def config() -> Any:
    made = evaluating.SkyRLTrainConfig()
    made.generator.step_wise_trajectories = True
    made.generator.eval_n_samples_per_prompt = made.generator.n_samples_per_prompt = SAMPLES
    made.generator.eval_sampling_params = made.generator.sampling_params
    made.generator.eval_sampling_params.max_generate_length = 400
    made.trainer.print_example_interval = 0
    made.trainer.dump_eval_results = False
    made.trainer.algorithm.advantage_estimator = "grpo"
    made.trainer.train_batch_size = made.trainer.policy_mini_batch_size = 2
    return made


def paid(output: dict[str, Any]) -> list[float]:
    return [sum(each) for each, last in zip(output["rewards"], output["is_last_step"], strict=True) if last]


async def test_its_evaluator_finds_the_rewards_under_its_own_uids(tmp_path: Path) -> None:
    client = SkyrlClient()
    made = generator(client, "dev")
    figures = await evaluating.evaluate(
        batches(made, "dev", client, tmp_path), made, config(), None, client.encoder.tokenizer
    )
    rewards = paid(made.output)
    assert len(rewards) == 2 * SAMPLES
    assert len(set(rewards)) > 1, "all were paid alike: this shows nothing"
    assert figures["eval/office/avg_score"] == figures["eval/all/avg_score"] == pytest.approx(sum(rewards) / 4)
    passed = [any(each > 0 for each in rewards[at : at + SAMPLES]) for at in (0, SAMPLES)]
    assert figures[f"eval/office/pass_at_{SAMPLES}"] == sum(passed) / 2
    assert figures["eval/all/evolve/episodes"] == 4 * SAMPLES
    assert {each["session"] for each in client.asked} == {"0_0", "0_1", "1_0", "1_1"}


class Ours(GivenAdvantages, training.RayPPOTrainer):
    """Only what makes a batch of rows: no models and no cluster."""

    def __init__(self, client: SkyrlClient, cfg: Any, made: ChainGenerator) -> None:
        self.cfg, self.generator, self.tokenizer = cfg, made, client.encoder.tokenizer
        self.all_metrics: dict[str, float] = {}
        self.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 16)


async def test_its_trainer_reports_our_rewards_and_trains_on_our_advantages(tmp_path: Path) -> None:
    client = SkyrlClient()
    made = generator(client, "train")
    trainer = Ours(client, config(), made)
    told = evaluating.get_sampling_params_for_backend("vllm", trainer.cfg.generator.sampling_params)
    (lines,) = batches(made, "train", client, tmp_path)
    asked, _ = evaluating.prepare_generator_input(lines, SAMPLES, told, "evolve", "train", 1)
    output = await trainer.generate(asked)
    uids = [each.instance_id for each in output["trajectory_ids"]]
    given = output["advantages"]
    assert any(map(any, given)), "no advantages: this shows nothing"
    assert len([*groupby(output["trajectory_ids"])]) < len(given), "no trajectory of several rows: this shows nothing"
    output, uids = trainer.postprocess_generator_output(output, uids)
    rewards = paid(output)
    assert trainer.all_metrics["reward/avg_raw_reward"] == pytest.approx(sum(rewards) / len(rewards))
    batch = trainer.convert_to_training_input(output, uids)
    assert len(batch["rewards"]) > len(given), "nothing was padded"
    batch["values"] = None
    batch = trainer.compute_advantages_and_returns(batch)
    assert trainer.all_metrics["loss/avg_final_rewards"] == pytest.approx(sum(rewards) / len(rewards))
    for at, row in enumerate(given):
        assert torch.equal(batch["advantages"][at][-len(row) :], torch.tensor(row))
        assert not batch["advantages"][at][: -len(row)].any()
    assert not batch["advantages"][len(given) :].any()
