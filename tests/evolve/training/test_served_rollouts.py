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
from policies.errors import PolicyUnavailable
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


@pytest.fixture
def server() -> Iterator[VllmLike]:
    with serving(VllmLike(LocalEngine(POCKET, threads=1), slots=2)) as running:
        yield running


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
    assert [name.rpartition("-")[0] for name in server.adapters] == [f"{done.name}-u{UPDATES}"]
    assert [path.name for path in (done.folder / FOLDER).iterdir()] == list(server.adapters)
    require_trained(config, done.generation)


def test_a_training_outlives_its_server_and_its_own_process(server: VllmLike, tmp_path: Path) -> None:
    config = config_of(tmp_path, server.url, "torch", UPDATES)

    server.gone = 1
    with pytest.raises(Stopped):
        train(config, "grpo", stop)
    server.adapters.clear()
    done = resume(config)
    history = ledger.lines(done.folder / ledger.HISTORY)
    episodes = [name for line in history for name in line["episodes"]]
    assert done.updates == UPDATES
    assert len(episodes) == len(set(episodes)) == 4 * UPDATES
    assert updates_of(server) == sorted(updates_of(server))


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


async def test_a_server_that_stays_away_ends_the_wait(
    server: VllmLike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_transport, "MAX_WAIT_S", 0.0)
    policy = ServedRollouts(
        VllmEngine([server.url], MODEL), load_encoder(str(POCKET)), tmp_path / "grpo-1", patience_s=0.0
    )
    await policy.sync_weights(Trainer(POCKET, Ppo(), OptimiserOptions(rank=4)))
    asked = ([Message(role="user", content="Book room 4.")], SamplingParams(max_tokens=4))
    assert (await policy.generate(*asked)).policy_version == policy.version
    server.adapters.clear()
    assert (await policy.generate(*asked)).policy_version == policy.version, "a server that was started again"
    server.gone = 999
    with pytest.raises(PolicyUnavailable, match="gave no answer"):
        await policy.generate(*asked)
    await policy.aclose()
