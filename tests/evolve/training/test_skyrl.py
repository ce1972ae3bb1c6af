"""SkyRL's generator: what it asks for comes back in its order, with our rewards and advantages, a row for everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evolve.config.model import Config, EnvironmentSection, PlaybookSection, RunSection
from evolve.environments.office.episode import OfficeEpisode
from evolve.errors import EnvironmentFailure
from evolve.loop.assembly import open_store
from evolve.training.batches import episodes_of
from evolve.training.cluster_rollouts import reward_of
from evolve.training.rollouts import ChainSpec, Sampling, roll
from evolve.training.skyrl import ChainGenerator, skyrl_generator
from memory.errors import BadInput
from memory.records import DeltaOp, Op, Outcome, Status
from policies.generations.token_policy import TokenPolicy
from policies.rl.advantages.sage import sage
from policies.rl.skyrl_rows import ClientEngine
from policies.rl.tracker import BetaTracker
from tests.evolve.training.clusters import ACTING, OFFICE, SAMPLING, SkyrlClient, rollouts, specs

TOLD = {"temperature": 1.3, "top_p": 0.9, "top_k": -1, "max_tokens": 400, "logprobs": 1, "stop": None}


@dataclass
class TrajectoryID:
    """SkyRL's."""

    instance_id: str
    repetition_id: int

    def to_string(self) -> str:
        return f"{self.instance_id}_{self.repetition_id}"


def generator(client: SkyrlClient, settings: list[ChainSpec]) -> ChainGenerator:
    def engine_of(session: str, told: Mapping[str, Any]) -> ClientEngine:
        return ClientEngine(client, 100_000, session, told, "adapter")

    return ChainGenerator(rollouts(settings, client.encoder), engine_of, sage)


def batch(made: ChainGenerator, members: int, step: int = 0) -> dict[str, Any]:
    """Return the input that SkyRL makes of a dataset, as its trainer repeats each line."""
    lines = [(at, line) for at, line in enumerate(made.dataset()) for _ in range(members)]
    return {
        "prompts": [line["prompt"] for _, line in lines],
        "env_classes": [line["env_class"] for _, line in lines],
        "env_extras": [line for _, line in lines],
        "sampling_params": TOLD,
        "trajectory_ids": [TrajectoryID(f"uid-{at}", n % members) for n, (at, _) in enumerate(lines)],
        "batch_metadata": SimpleNamespace(global_step=step, training_phase="train"),
    }


async def test_the_rows_are_those_of_our_own_rollouts() -> None:
    client, settings = SkyrlClient(), specs("train", 2)
    made = generator(client, settings)
    asked = batch(made, 3)
    output = await made.generate(asked)
    own = [ChainSpec(s.chain, s.environment, rollouts=3) for s in settings]
    policy = TokenPolicy(ClientEngine(SkyrlClient(), 100_000, "", TOLD), client.encoder, profile="compact")
    rolled = await roll(own, policy, ACTING, SAMPLING, 0)
    ids = output["trajectory_ids"]
    assert [each for at, each in enumerate(ids) if output["is_last_step"][at]] == asked["trajectory_ids"]
    assert {len(output[name]) for name in ("response_ids", "loss_masks", "rewards", "rollout_logprobs")} == {len(ids)}
    written = sum(link.trajectory.usage.completion_tokens for each in rolled for link in each.links)
    assert sum(map(sum, output["loss_masks"])) == written
    last = [rewards for rewards, ends in zip(output["rewards"], output["is_last_step"], strict=True) if ends]
    assert [rewards[-1] for rewards in last] == [reward_of(each) for each in rolled]
    assert sum(map(sum, output["rewards"])) == sum(reward_of(each) for each in rolled)
    paid = np.array([sum(episode.rewards.values()) for episode in episodes_of(rolled, BetaTracker())])
    groups = np.array([f"{each.chain_id}/{at}" for each in rolled for at in range(2)])
    expected = [reward - np.mean(paid[groups == group]) for reward, group in zip(paid, groups, strict=True)]
    assert np.any(expected), "all members of all groups ended alike: this shows nothing"
    found = {round(value, 9) for values in output["advantages"] for value in values if value}
    assert found == {round(float(value), 9) for value in expected if value}


async def test_each_trajectory_is_a_session_sampled_as_skyrl_says() -> None:
    client = SkyrlClient()
    made = generator(client, specs("train", 2))
    told = TOLD | {"temperature": 0.0, "max_tokens": 30, "top_k": 20}
    await made.generate(batch(made, 2) | {"sampling_params": told})
    sessions = {f"uid-{at}_{member}" for at in range(2) for member in range(2)}
    assert {each["session"] for each in client.asked} == sessions
    assert sorted(client.finished) == sorted(sessions)
    assert {each["model"] for each in client.asked} == {"adapter"}
    wanted = {"temperature": 0.0, "top_p": 0.9, "top_k": 20, "max_tokens": 30, "logprobs": 0}
    assert all({name: each["told"].get(name) for name in wanted} == wanted for each in client.asked)


async def test_another_global_step_is_another_sample() -> None:
    client = SkyrlClient()
    made = generator(client, specs("train", 1))
    seeds: list[set[int]] = []
    for step in (1, 1, 2):
        client.asked.clear()
        await made.generate(batch(made, 2, step))
        seeds.append({each["told"]["seed"] for each in client.asked})
    assert seeds[0] == seeds[1]
    assert not seeds[0] & seeds[2]


async def test_who_could_not_be_graded_gets_a_row_that_trains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(episode: OfficeEpisode) -> Outcome:
        raise EnvironmentFailure("the office burned down")

    monkeypatch.setattr(OfficeEpisode, "grade", broken)
    made = generator(SkyrlClient(), specs("train", 1))
    output = await made.generate(batch(made, 2))
    assert output["loss_masks"] == [[0], [0]]
    assert output["rewards"] == output["advantages"] == [[0.0], [0.0]]
    assert output["rollout_metrics"]["evolve/not_graded"] == 4.0


async def test_what_no_generator_can_do_is_refused() -> None:
    client = SkyrlClient()
    made = generator(client, specs("train", 1))
    with pytest.raises(BadInput, match="ch-other"):
        await made.generate({"env_extras": [{"chain": "ch-other"}], "trajectory_ids": [TrajectoryID("0", 0)]})
    with pytest.raises(BadInput, match="got none"):
        await made.generate({"env_extras": None, "trajectory_ids": []})
    with pytest.raises(BadInput, match=r"'dev' has no chains; expected one of \['train'\]"):
        made.dataset("dev")
    with pytest.raises(BadInput, match="'own' libraries"):
        type(rollouts([], client.encoder))([], client.encoder, "compact", ACTING, Sampling(libraries="one"))


def of_office(root: Path, **sections: Any) -> Config:
    office = EnvironmentSection.model_validate({"name": "office", "deployment": 3})
    return Config(root=root, environment=office, run=RunSection(seed=0), **sections)


def learned(config: Config, texts: Sequence[str]) -> None:
    """Let a workspace know rules."""
    ops = [DeltaOp(op=Op.ADD, payload={"content": each}, status=Status.ACTIVE) for each in texts]
    with open_store(config, len) as store:
        assert all(result.applied for result in store.commit("default", ops, actor="test").results)


async def prompts(made: ChainGenerator, client: SkyrlClient) -> list[str]:
    """Return the prompts of a batch of one chain, a turn each."""
    client.asked.clear()
    one = {name: found[:1] if isinstance(found, list) else found for name, found in batch(made, 1).items()}
    await made.generate(one)
    return [client.encoder.tokenizer.decode(each["ids"]) for each in client.asked]


async def test_rollouts_are_shown_what_the_workspace_knew_when_they_began(tmp_path: Path) -> None:
    config, client, (first, later, *_) = of_office(tmp_path), SkyrlClient(), OFFICE.oracle
    learned(config, [first])
    made = skyrl_generator(client, config, context=100_000)
    shown = await prompts(made, client)
    assert shown
    assert all(first in each for each in shown)
    learned(config, [later])
    assert await prompts(made, client) == shown
    unshown = skyrl_generator(client, of_office(tmp_path, playbook=PlaybookSection(enabled=False)), context=100_000)
    assert not any(first in each for each in await prompts(unshown, client))


async def test_a_workspace_that_is_not_there_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    client = SkyrlClient()
    made = skyrl_generator(client, of_office(tmp_path), context=100_000)
    assert await prompts(made, client)
    assert await prompts(made, client)
    (said,) = caplog.messages
    assert f"shown no knowledge: there is no workspace in {tmp_path}" in said
    assert not any(tmp_path.iterdir())


def test_a_configuration_has_chains_to_train_on_and_held_out_ones() -> None:
    office = EnvironmentSection.model_validate({"name": "office", "deployment": 3})
    made = skyrl_generator(None, Config(environment=office, run=RunSection(seed=0)))
    train, held_out = [{line["chain"] for line in made.dataset(split)} for split in ("train", "dev")]
    assert train
    assert held_out
    assert not train & held_out
