"""Rollouts in the process of a training: the model under training computes them, and there is one copy of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from evolve.config.model import Config
from evolve.training.rollout_policy import rollout_policy
from labs.pocket.export import chat_tokenizer, export
from policies.local import LocalPolicy
from policies.protocols import Message, SamplingParams
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.rows import Span, TrainRow
from policies.rl.trainer import Trainer
from tests.policies.test_local_policy import FACTS, small_llama, tokenizer_json

CHAT = [Message(role="user", content="ban karalo")]
GREEDY = SamplingParams(max_tokens=8)
ROW = TrainRow(
    trajectory_id="t",
    prompt_ids=(5, 6, 7),
    completion_ids=(11, 12, 13),
    sampling_logprobs=(-1.0, -1.0, -1.0),
    spans=(Span(start=0, stop=3, step=0, policy_version="v"),),
)


def qwen(path: Path) -> None:
    torch.manual_seed(3)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=400,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            eos_token_id=1,
        )
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 0.5 if "embed" in name else 0.25)
    model.save_pretrained(path)
    chat_tokenizer(tokenizer_json()).save_pretrained(str(path))


def llama(path: Path) -> None:
    export(small_llama(heads=2, groups=1), tokenizer_json(), path, FACTS)


@pytest.mark.parametrize(("make", "copies"), [(qwen, 1), (llama, 2)])
async def test_the_policy_answers_as_one_with_the_adapter_that_is_trained(
    make: Any, copies: int, tmp_path: Path
) -> None:
    make(tmp_path / "model")
    config = Config.model_validate({"policy": {"name": "local", "model": str(tmp_path / "model")}, "root": tmp_path})
    trainer = Trainer(
        tmp_path / "model", Ppo(), OptimiserOptions(learning_rate=0.1, rank=4, gradient_checkpointing=True)
    )
    policy: Any = rollout_policy(config, tmp_path / "training", trainer)
    assert isinstance(policy, LocalPolicy)
    assert (policy._model is trainer.acting) == (copies == 1)
    seen: list[Any] = []
    for update in range(3):
        if update:
            trainer.step([ROW], [np.array([1.0])])
        await policy.sync_weights(trainer)
        trainer.save(tmp_path / f"adapter{update}")
        loaded = LocalPolicy(tmp_path / "model", tmp_path / f"adapter{update}", threads=1)
        mine, theirs = await policy.generate(CHAT, GREEDY), await loaded.generate(CHAT, GREEDY)
        assert mine.token_ids == theirs.token_ids
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
        assert mine.policy_version == policy.version
        seen.append((policy.version, mine.logprobs))
        await loaded.aclose()
    assert len({version for version, _ in seen}) == len({logprobs for _, logprobs in seen}) == 3
    named = policy.version
    await policy.sync_weights(trainer)
    assert policy.version == named, "the same weights have the same name"
    await policy.aclose()


def test_the_fast_decoder_holds_each_matrix_once(tmp_path: Path) -> None:
    llama(tmp_path)
    policy: Any = LocalPolicy(tmp_path)
    held = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in policy._model.parameters()}
    engine = {each.untyped_storage().data_ptr() for layer in policy.engine.layers for each in layer}
    assert engine <= held.keys()
    numbers = sum(each.numel() for each in policy._model.parameters())
    assert sum(held.values()) == 4 * numbers


async def test_what_answering_faster_takes_is_given_up_for_an_update(tmp_path: Path) -> None:
    llama(tmp_path)
    policy: Any = LocalPolicy(tmp_path, threads=1)
    long = [Message(role="user", content="ban karalo " * 40)]
    before = await policy.generate(long, GREEDY)
    assert (await policy.generate(long, GREEDY)).usage.cached_tokens > 0
    await policy.make_room()
    after = await policy.generate(long, GREEDY)
    assert (after.usage.cached_tokens, after.token_ids) == (0, before.token_ids)
    await policy.aclose()


async def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    llama(tmp_path / "a")
    qwen(tmp_path / "b")
    policy = LocalPolicy(tmp_path / "a")
    with pytest.raises(Exception, match=r"no weights of 'a'"):
        await policy.sync_weights(Trainer(tmp_path / "b", Ppo(), OptimiserOptions()))
    await policy.aclose()
