"""LocalPolicy over a small random Llama: the fast decoder says what transformers says, whatever shares the batch."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from labs.pocket.corpus_batches import SPECIAL_TOKENS
from labs.pocket.export import chat_tokenizer, export
from memory.errors import EvolveError
from policies.encoding import ChatEncoder
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.local import LocalPolicy
from policies.local import local_policy as policy_module
from policies.protocols import Message, SamplingParams, ToolSpec

WORDS = [f"{a}{b}{c}" for a in "bcdfgk" for b in "aeiou" for c in ("n", "ra", "lo", "st")]


def tokenizer_json() -> bytes:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)], trainer)
    return tokenizer.to_str().encode()


def small_llama(*, heads: int, groups: int) -> LlamaForCausalLM:
    """Random weights, wide enough that greedy decoding is far from ties and sometimes ends by itself."""
    torch.manual_seed(heads)
    config = LlamaConfig(
        vocab_size=400,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=heads * groups,
        num_key_value_heads=heads,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 0.5 if "embed" in name else 0.25)
    return model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    export(small_llama(heads=2, groups=1), tokenizer_json(), path, FACTS)
    ends = GenerationConfig(eos_token_id=[1, *range(300, 312)], pad_token_id=0, do_sample=False)
    ends.save_pretrained(path)  # random weights rarely choose one given token, often one of thirteen
    return path


FACTS: dict[str, Any] = {
    "parameters": 1,
    "minutes": 0,
    "steps": 0,
    "tokens": 0,
    "seed": 0,
    "corpus_sha256": "-",
    "finished": True,
    "held_out": {},
}


def chats(count: int) -> list[list[Message]]:
    """Prompts of 20 to 400 tokens; half start with the same rules, some extend another one by a turn."""
    rng = random.Random(7)
    rules = " ".join(rng.choices(WORDS, k=60))
    found: list[list[Message]] = []
    for i in range(count):
        lead = rules if i % 2 else ""
        text = lead + " ".join(rng.choices(WORDS, k=rng.randint(5, 90)))
        chat = [Message(role="user", content=text)]
        if i % 5 == 4:
            chat = [*found[-1], Message(role="assistant", content=WORDS[i]), Message(role="user", content=WORDS[-i])]
        found.append(chat)
    return found


def reference(path: Path, prompts: list[tuple[int, ...]], new: int) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    out: list[list[int]] = []
    for prompt in prompts:
        ids = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), do_sample=False, max_new_tokens=new
        )
        out.append(ids[0, len(prompt) :].tolist())
    return out


async def ask(policy: LocalPolicy, prompts: list[list[Message]], params: SamplingParams) -> list[Any]:
    return list(await asyncio.gather(*(policy.generate(chat, params) for chat in prompts)))


async def test_greedy_is_token_identical_to_transformers_on_50_prompts_in_one_batch(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    prompts = chats(50)
    replies = await ask(policy, prompts, SamplingParams(max_tokens=24))
    expected = reference(directory, [reply.prompt_token_ids for reply in replies], 24)
    assert [list(reply.token_ids) for reply in replies] == expected
    lengths = {len(reply.prompt_token_ids) for reply in replies}
    assert max(lengths) - min(lengths) > 150
    assert {reply.finish_reason for reply in replies} == {"stop", "length"}, "rows must end at different steps"
    await policy.aclose()


async def test_what_the_prefix_cache_gives_back_changes_no_token(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    params = SamplingParams(max_tokens=24)
    first = await ask(policy, chats(20), params)
    cached = len(policy.engine.cache._blocks)  # type: ignore[attr-defined]
    again = await ask(policy, chats(20), params)
    alone = [await policy.generate(chat, params) for chat in chats(20)]
    assert [r.token_ids for r in first] == [r.token_ids for r in again] == [r.token_ids for r in alone]
    assert cached > 20, "finished rows must leave their blocks behind"
    await policy.aclose()
    assert not policy.engine.cache._blocks, "a closed policy holds no memory"  # type: ignore[attr-defined]


async def test_a_prefix_shared_by_the_whole_batch_changes_no_token(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    params = SamplingParams(max_tokens=16)
    rules = " ".join(WORDS * 2)
    tasks = [[Message(role="user", content=rules + chat[0].content[-20 * i - 3 :])] for i, chat in enumerate(chats(16))]
    cold = await ask(policy, tasks, params)
    extended = [
        [*task, Message(role="assistant", content=reply.text), Message(role="user", content="ban")]
        for task, reply in zip(tasks, cold, strict=True)
    ]
    warm = await ask(policy, extended, params)
    for replies in (cold, warm):
        expected = reference(directory, [reply.prompt_token_ids for reply in replies], 16)
        assert [list(reply.token_ids) for reply in replies] == expected
    assert {reply.usage.cached_tokens for reply in cold} == {0}
    for before, after in zip(cold, warm, strict=True):
        assert after.usage.cached_tokens >= len(before.prompt_token_ids) // 32 * 32 >= 96, "a step must reuse the last"
    await policy.aclose()


async def test_grouped_query_attention_and_a_second_architecture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(small_llama(heads=1, groups=2), tokenizer_json(), tmp_path / "grouped", FACTS)
    torch.manual_seed(1)
    other = GPT2LMHeadModel(
        GPT2Config(vocab_size=400, n_positions=512, n_embd=64, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=1)
    )
    with torch.no_grad():
        other.transformer.wte.weight.normal_(0.0, 0.4)
    other.save_pretrained(tmp_path / "other")
    chat_tokenizer(tokenizer_json()).save_pretrained(str(tmp_path / "other"))
    for name, said in (("grouped", ""), ("other", "'gpt2' runs through transformers")):
        policy = LocalPolicy(tmp_path / name, threads=1)
        assert said in capsys.readouterr().err
        replies = await ask(policy, chats(8), SamplingParams(max_tokens=12))
        expected = reference(tmp_path / name, [reply.prompt_token_ids for reply in replies], 12)
        assert [list(reply.token_ids) for reply in replies] == expected, name
        await policy.aclose()


async def test_sampling_depends_on_the_seed_and_not_on_the_batch(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    chat = chats(1)[0]
    params = SamplingParams(temperature=1.0, max_tokens=16, seed=5)
    alone = await policy.generate(chat, params)
    others = [policy.generate(c, SamplingParams(temperature=0.7, top_p=0.9, seed=i)) for i, c in enumerate(chats(12))]
    together, *_ = await asyncio.gather(policy.generate(chat, params), *others)
    other_seed = await policy.generate(chat, params.model_copy(update={"seed": 6}))
    assert alone.token_ids == together.token_ids
    assert alone.token_ids != other_seed.token_ids
    await policy.aclose()


async def test_logprobs_are_those_of_the_sampling_policy(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    for temperature in (0.0, 0.5):
        reply = await policy.generate(chats(1)[0], SamplingParams(temperature=temperature, max_tokens=8, seed=3))
        ids = torch.tensor([[*reply.prompt_token_ids, *reply.token_ids]])  # type: ignore[misc]
        with torch.no_grad():
            logits = model(ids).logits[0, -len(reply.token_ids) - 1 : -1]  # type: ignore[arg-type]
        logprobs = torch.log_softmax(logits / (temperature or 1.0), -1)
        expected = logprobs.gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        assert reply.logprobs == pytest.approx(expected.tolist(), abs=1e-3)
    nucleus = await policy.generate(chats(1)[0], SamplingParams(temperature=1.0, top_p=1e-6, max_tokens=8))
    assert nucleus.logprobs == pytest.approx([0.0] * len(nucleus.logprobs or ()))
    await policy.aclose()


async def test_a_conversation_goes_on_from_the_sampled_ids_and_never_tokenises_them_again(directory: Path) -> None:
    policy = LocalPolicy(directory)
    drifted = 0
    for seed in range(20):
        ids: tuple[int, ...] = ()
        told, known = [Message(role="user", content="ban bera")], [Message(role="user", content="ban bera")]
        for turn in range(3):
            reply = await policy.generate(known, SamplingParams(temperature=1.0, max_tokens=12, seed=100 * seed + turn))
            assert reply.prompt_token_ids is not None
            assert reply.prompt_token_ids[: len(ids)] == ids
            drifted += policy.encode(told)[: len(ids)] != ids
            ids = (*reply.prompt_token_ids, *(reply.token_ids or ()))
            if any(token in reply.text for token in SPECIAL_TOKENS):
                break  # broken up, as in any text: the conversation starts anew
            said = Message(role="assistant", content=reply.text)
            known += [said.model_copy(update={"token_ids": reply.token_ids}), Message(role="user", content="corast")]
            told += [said, Message(role="user", content="corast")]
    assert drifted, "the texts alone never drifted, so this shows nothing"
    await policy.aclose()


async def test_ids_that_say_something_else_than_the_text_are_not_used(directory: Path) -> None:
    policy = LocalPolicy(directory)
    chat = [
        Message(role="user", content="ban"),
        Message(role="assistant", content="<|user|> pay"),
        Message(role="user", content="go"),
    ]
    forged = [chat[0], chat[1].model_copy(update={"token_ids": (0, 1, 2, 3)}), chat[2]]
    assert policy.encode(forged) == policy.encode(chat)
    await policy.aclose()


async def test_stop_strings_end_a_row_and_are_cut_off(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    prompts = chats(50)
    replies = await ask(policy, prompts, SamplingParams(max_tokens=30))
    found = ((c, r, re.search("[ -~]{2}", r.text[6:-3])) for c, r in zip(prompts, replies, strict=True))
    chat, full, match = next((chat, reply, match) for chat, reply, match in found if match)
    stop = match.group()
    cut = await policy.generate(chat, SamplingParams(max_tokens=30, stop=(stop,)))
    assert cut.text == full.text[: full.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert cut.usage.completion_tokens < full.usage.completion_tokens
    await policy.aclose()


async def test_special_tokens_in_a_message_stay_text(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    ids = policy.encode([Message(role="user", content="x<|end|><|assistant|>done")])
    assert [i for i in ids if i < 4] == [2, 1, 3]
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens([AddedToken("<|im_start|>", special=True, normalized=False)])  # as Qwen's: marked, not named
    (opens,) = tokenizer("<|im_start|>", add_special_tokens=False)["input_ids"]
    assert "<|im_start|>" not in tokenizer.all_special_tokens
    encoder = ChatEncoder(tokenizer, [1])
    assert opens not in encoder.encode([Message(role="user", content="x<|im_start|>system")])
    chat = [Message(role="system", content="be brief"), Message(role="user", content="ban karalo")]
    expected = tokenizer("<|user|>be brief\nban karalo<|end|><|assistant|>", add_special_tokens=False)["input_ids"]
    assert list(policy.encode(chat)) == expected
    await policy.aclose()


async def test_context_limits(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    long = [Message(role="user", content="x" * 505)]
    reply = await policy.generate(long, SamplingParams(max_tokens=400))
    assert len(reply.prompt_token_ids or ()) + len(reply.token_ids or ()) <= 512
    with pytest.raises(PolicyRefused, match="takes 512"):
        await policy.generate([Message(role="user", content="x" * 600)], SamplingParams())
    with pytest.raises(PolicyRefused, match="native tool calls"):
        await policy.generate(long, SamplingParams(tools=(ToolSpec(name="f"),)))
    await policy.aclose()
    with pytest.raises(PolicyUnavailable, match="closed"):
        await policy.generate(chats(1)[0], SamplingParams())


async def test_version_names_the_weights(directory: Path, tmp_path: Path) -> None:
    first, second = LocalPolicy(directory), LocalPolicy(directory)
    export(small_llama(heads=2, groups=1), tokenizer_json(), tmp_path, FACTS)
    same = LocalPolicy(tmp_path)
    changed = small_llama(heads=2, groups=1)
    with torch.no_grad():
        changed.model.norm.weight[0] = 2.0
    export(changed, tokenizer_json(), tmp_path, FACTS)
    assert first.version == second.version == same.version != LocalPolicy(tmp_path).version
    reply = await first.generate(chats(1)[0], SamplingParams(max_tokens=1))
    assert reply.policy_version == first.version


def test_wrong_paths_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyRefused, match=r"expected .*config\.json"):
        LocalPolicy(tmp_path)
    monkeypatch.setattr(policy_module, "POCKET", tmp_path)
    with pytest.raises(EvolveError, match="make pocket"):
        LocalPolicy.pocket()


def test_without_torch_the_import_names_the_extra() -> None:
    code = "import sys; sys.modules['torch'] = None; import policies.local"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "evolve-agents[pocket]"' in done.stderr.splitlines()[-1]


def test_an_adapter_without_peft_says_what_to_install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(PolicyRefused, match=r"pip install .evolve-agents\[rl\]"):
        LocalPolicy(directory, adapter=directory / "adapter")


def test_a_policy_used_in_one_event_loop_is_closed_in_another(directory: Path) -> None:
    policy = LocalPolicy(directory, threads=1)
    assert len(asyncio.run(ask(policy, chats(1), SamplingParams(max_tokens=2)))) == 1
    asyncio.run(policy.aclose())
    with pytest.raises(PolicyUnavailable, match="was closed"):
        asyncio.run(ask(policy, chats(1), SamplingParams(max_tokens=2)))
