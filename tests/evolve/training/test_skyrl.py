"""SkyRL's generator: what it asks for comes back in its order, with our rewards and advantages, a row for everybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.episode import OfficeEpisode
from evolve.episode.rollout import RolloutConfig
from evolve.errors import EnvironmentFailure
from evolve.training.batches import episodes_of
from evolve.training.chain_tasks import chains
from evolve.training.rollouts import ChainSpec, Sampling, roll
from evolve.training.skyrl import ChainGenerator
from memory.errors import BadInput
from memory.records import Outcome
from policies.generations.local_engine import LocalEngine
from policies.generations.token_policy import TokenPolicy
from policies.local.loading import load_encoder
from policies.local.local_policy import POCKET
from policies.protocols import SamplingParams
from policies.rl.advantages.sage import sage
from policies.rl.skyrl_rows import ClientEngine
from policies.rl.tracker import BetaTracker

ACTING = RolloutConfig(world="", max_steps=6, max_tokens=80, skills=True, temperature=1.3)
SAMPLING = Sampling(seed=3)


class Client:
    """The pocket model as SkyRL's `InferenceEngineClient` offers a model."""

    def __init__(self) -> None:
        self.engine = LocalEngine(POCKET, threads=1)

    async def generate(self, input_batch: Mapping[str, Any]) -> Mapping[str, Any]:
        told = input_batch["sampling_params"]
        params = SamplingParams(
            **{name: told[name] for name in ("temperature", "max_tokens", "seed", "stop") if name in told}
        )
        done = [await self.engine.sample(ids, params, None) for ids in input_batch["prompt_token_ids"]]
        return {
            "response_ids": [list(each.token_ids) for each in done],
            "stop_reasons": [each.finish_reason for each in done],
            "response_logprobs": [list(each.logprobs) for each in done],
        }


@pytest.fixture
def policy() -> TokenPolicy:
    return TokenPolicy(ClientEngine(Client(), context=2048), load_encoder(POCKET), name="pocket", profile="compact")


@pytest.fixture
def settings() -> list[ChainSpec]:
    office = Office(OfficeConfig(deployment=3))
    return [ChainSpec(each, office) for each in chains(office.tasks("train"), 2, seed=0)[:2]]


def batch(generator: ChainGenerator, members: int, step: int = 0) -> dict[str, Any]:
    """Return the input that SkyRL makes of a dataset, as its trainer repeats each line."""
    lines = [line for line in generator.dataset() for _ in range(members)]
    return {
        "prompts": [line["prompt"] for line in lines],
        "env_classes": [line["env_class"] for line in lines],
        "env_extras": lines,
        "sampling_params": {"temperature": 1.3, "max_tokens": 80},
        "trajectory_ids": None,
        "batch_metadata": SimpleNamespace(global_step=step, training_phase="train"),
    }


async def test_the_rows_are_those_of_our_own_rollouts(policy: TokenPolicy, settings: list[ChainSpec]) -> None:
    settings = settings[1:]
    generator = ChainGenerator(settings, policy, sage, ACTING, SAMPLING)
    output = await generator.generate(batch(generator, 3))
    rollouts = await roll(
        [ChainSpec(s.chain, s.environment, rollouts=3) for s in settings], policy, ACTING, SAMPLING, 0
    )
    ids = [(each.instance_id, each.repetition_id) for each in output["trajectory_ids"]]
    assert list(dict.fromkeys(ids)) == [(each.chain.id, member) for each in settings for member in range(3)]
    assert sum(output["is_last_step"]) == 3
    assert {len(output[name]) for name in ("response_ids", "loss_masks", "rewards", "rollout_logprobs")} == {len(ids)}
    written = sum(link.trajectory.usage.completion_tokens for each in rollouts for link in each.links)
    assert sum(map(sum, output["loss_masks"])) == written
    paid = [sum(episode.rewards.values()) for episode in episodes_of(rollouts, BetaTracker())]
    groups = np.array([f"{each.chain_id}/{at}" for each in rollouts for at in range(2)])
    expected = np.array(
        [reward - np.mean(np.array(paid)[groups == own]) for reward, own in zip(paid, groups, strict=True)]
    )
    assert expected.any(), "all members of all groups ended alike: this shows nothing"
    found = {round(value, 9) for values in output["rewards"] for value in values if value}
    assert found == {round(float(value), 9) for value in expected if value}


async def test_another_global_step_is_another_sample(policy: TokenPolicy, settings: list[ChainSpec]) -> None:
    acting = replace(ACTING, max_steps=3)
    generator = ChainGenerator(settings[:1], policy, sage, acting, SAMPLING)
    first, again, later = [(await generator.generate(batch(generator, 2, step)))["response_ids"] for step in (1, 1, 2)]
    assert first == again
    assert first != later


async def test_who_could_not_be_graded_gets_a_row_that_trains_nothing(
    policy: TokenPolicy, settings: list[ChainSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(episode: OfficeEpisode) -> Outcome:
        raise EnvironmentFailure("the office burned down")

    monkeypatch.setattr(OfficeEpisode, "grade", broken)
    generator = ChainGenerator(settings[:1], policy, sage, ACTING, SAMPLING)
    output = await generator.generate(batch(generator, 2))
    assert output["loss_masks"] == [[0], [0]]
    assert output["rewards"] == [[0.0], [0.0]]
    assert output["rollout_metrics"]["evolve/not_graded"] == 4.0


async def test_a_chain_of_nobody_is_refused(policy: TokenPolicy, settings: list[ChainSpec]) -> None:
    generator = ChainGenerator(settings, policy, sage, ACTING, SAMPLING)
    with pytest.raises(BadInput, match="ch-other"):
        await generator.generate({"env_extras": [{"chain": "ch-other"}]})
    with pytest.raises(BadInput, match="without env_extras"):
        await generator.generate({"env_extras": None})
