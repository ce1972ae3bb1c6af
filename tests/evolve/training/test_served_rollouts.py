"""`evolve train` whose rollouts are sampled on a server: by the newest adapter, and whatever becomes of the server.

The server speaks as vLLM does and computes with peft in this process; vLLM itself is in claim train_3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.errors import ConfigError
from evolve.training import ledger
from evolve.training.rollout_policy import FOLDER, ServedRollouts
from evolve.training.training_session import resume, train
from policies import openai_transport
from policies.errors import PolicyUnavailable, TimedOut
from policies.generations.local_engine import LocalEngine
from policies.generations.vllm_engine import VllmEngine
from policies.local.loading import load_encoder
from policies.local.local_policy import POCKET
from policies.protocols import Message, SamplingParams
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer
from tests.evolve.training.served_office import Stopped, config_of, require_trained, stop
from tests.policies.generations.vllm_like import MODEL, VllmLike
from tests.policies.model_server import serving

pytestmark = pytest.mark.slow
UPDATES = 2
ASKED = ([Message(role="user", content="Book room 4.")], SamplingParams(max_tokens=4))


@pytest.fixture
def server() -> Iterator[VllmLike]:
    with serving(VllmLike(LocalEngine(POCKET, threads=1), slots=2)) as running:
        yield running


def rollouts_on(server: VllmLike, folder: Path, **settings: float) -> ServedRollouts:
    """Return a policy that waits for no server."""
    engine = VllmEngine([server.url], MODEL, **settings)
    return ServedRollouts(engine, load_encoder(str(POCKET)), folder / "grpo-1", patience_s=0.0)


def updates_of(server: VllmLike) -> list[int]:
    """Return of each request how many updates the adapter had seen that it asked for."""
    return [int(body["model"].rpartition("-u")[2].partition("-")[0]) for body in server.requests]


def test_each_batch_is_sampled_on_the_server_by_the_adapter_it_trains(server: VllmLike, tmp_path: Path) -> None:
    config = config_of(tmp_path, server.url, "torch", UPDATES)
    done = train(config, "grpo")
    told = ledger.lines(done.folder / ledger.METRICS)
    assert sorted(set(updates_of(server))) == [*range(UPDATES)]
    assert updates_of(server) == sorted(updates_of(server))
    assert not any("seed" in body for body in server.requests)
    assert server.most == server.slots, "no more is asked at once than is answered at once, and no less"
    for figures in told:
        assert figures["episodes"] == 4
        assert figures["broken_turns"] == 0
        assert 0 <= figures["rollout_kl"] < 1e-6, "the server computes what the trainer computes"
    assert [path.name.rpartition("-")[0] for path in (done.folder / FOLDER).iterdir()] == [f"{done.name}-u{UPDATES}"]
    assert server.adapters == {}, "who goes on with it loads it again"
    require_trained(config, done.generation)


def test_a_training_outlives_its_server_and_its_own_process(server: VllmLike, tmp_path: Path) -> None:
    config = config_of(tmp_path, server.url, "torch", UPDATES)

    server.gone = 1
    with pytest.raises(Stopped):
        train(config, "grpo", stop)
    assert server.adapters == {}
    asked = len(server.requests)
    with serving(VllmLike(LocalEngine(POCKET, threads=1), slots=2)) as elsewhere:
        done = resume(config_of(tmp_path, elsewhere.url, "torch", UPDATES))
    history = ledger.lines(done.folder / ledger.HISTORY)
    episodes = [name for line in history for name in line["episodes"]]
    assert done.updates == UPDATES
    assert len(episodes) == len(set(episodes)) == 4 * UPDATES
    assert len(server.requests) == asked, "its server is another one by now"
    assert updates_of(server)[-1] < updates_of(elsewhere)[-1] == UPDATES - 1


def test_a_turn_without_numbers_is_left_out_and_counted(server: VllmLike, tmp_path: Path) -> None:
    server.breaks = {0}
    done = train(config_of(tmp_path, server.url, "torch", UPDATES), "grpo")
    told = ledger.lines(done.folder / ledger.METRICS)
    assert [figures["broken_turns"] for figures in told] == [1, 0]
    assert done.updates == UPDATES


@pytest.mark.parametrize("name", ["scripted", "openai", "langchain"])
def test_a_policy_that_takes_no_weights_is_refused_by_name(name: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, "http://127.0.0.1:9/v1", "torch", UPDATES)
    changed = config.model_copy(update={"policy": config.policy.model_copy(update={"name": name})})
    with pytest.raises(ConfigError, match=f"got policy.name = '{name}', which cannot take new weights"):
        train(changed, "grpo")
    assert not (config.workspace / "policies").exists()


def test_the_wait_for_a_server_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_transport, "MAX_WAIT_S", 0.0)
    config = config_of(tmp_path, "http://127.0.0.1:9/v1", "torch", UPDATES)
    config = config.model_copy(update={"policy": config.policy.model_copy(update={"patience_s": 0.0})})
    with pytest.raises(PolicyUnavailable, match="start the server"):
        train(config, "grpo")


async def test_a_server_that_stays_away_ends_the_wait(
    server: VllmLike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_transport, "MAX_WAIT_S", 0.0)
    policy = rollouts_on(server, tmp_path)
    await policy.sync_weights(Trainer(POCKET, Ppo(), OptimiserOptions(rank=4)))
    assert (await policy.generate(*ASKED)).policy_version == policy.version
    server.adapters.clear()
    assert (await policy.generate(*ASKED)).policy_version == policy.version, "a server that was started again"
    server.gone = 999
    with pytest.raises(PolicyUnavailable, match="gave no answer"):
        await policy.generate(*ASKED)
    await policy.aclose()


async def test_a_slow_server_is_not_asked_as_one_that_was_gone(server: VllmLike, tmp_path: Path) -> None:
    policy = rollouts_on(server, tmp_path, timeout_s=3.0)
    await policy.sync_weights(Trainer(POCKET, Ppo(), OptimiserOptions(rank=4)))
    server.held.add(policy.version)
    with pytest.raises(TimedOut):
        await policy.generate(*ASKED)
    assert len(server.requests) == 2
    server.held.clear()
    await policy.aclose()


async def test_a_server_that_goes_before_the_old_adapter_is_off_it_ends_no_training(
    server: VllmLike, tmp_path: Path
) -> None:
    policy, trainer = rollouts_on(server, tmp_path), Trainer(POCKET, Ppo(), OptimiserOptions(rank=4))
    for trainer.updates, refused, kept in ((0, {}, 1), (1, {"/v1/unload_lora_adapter": 503}, 2), (2, {}, 1)):
        server.statuses = refused
        await policy.sync_weights(trainer)
        assert policy.version in server.adapters
        assert len(server.adapters) == kept
        assert {path.name for path in (tmp_path / "grpo-1" / FOLDER).iterdir()} == set(server.adapters)
    server.adapters.clear()
    trainer.updates = 3
    await policy.sync_weights(trainer)
    assert [path.name for path in (tmp_path / "grpo-1" / FOLDER).iterdir()] == list(server.adapters) == [policy.version]
    await policy.aclose()
