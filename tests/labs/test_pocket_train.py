"""Training of the pocket model: corpus, batches, the fast forward pass, checkpoints, and what is written at the end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from labs.pocket.compiling import Compiling
from labs.pocket.corpus_batches import (
    ASSISTANT,
    END,
    SPECIAL_TOKENS,
    CorpusInvalid,
    Documents,
    batches,
    read_corpus,
)
from labs.pocket.forward import FastForward, causal_attention
from labs.pocket.initial import initialise
from labs.pocket.shape import CONTEXT, pocket_config
from labs.pocket.train import Settings, Trainer, exact_turns, main, make_optimizers, rate
from policies.errors import PolicyError
from policies.local import LocalPolicy
from policies.protocols import Message, SamplingParams


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Compiling, "on", False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def echo_chat(rng: random.Random) -> str:
    word = "".join(rng.choices("abcdefgh", k=rng.randint(2, 9)))
    return f"<|user|>say {word}<|end|><|assistant|>{word}<|end|>"


@pytest.fixture(scope="module")
def corpus_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """700 echo chats of role act, 40 held out."""
    rng = random.Random(0)
    texts = [echo_chat(rng) for _ in range(740)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=264, special_tokens=list(SPECIAL_TOKENS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["say"], trainer)
    encoded = [np.array(e.ids, np.uint16) for e in tokenizer.encode_batch(texts)]
    roles = np.zeros(740, np.uint8)
    arrays: dict[str, object] = {
        "tokenizer": np.frombuffer(tokenizer.to_str().encode(), np.uint8),
        "meta": np.frombuffer(json.dumps({"kind": "echo"}).encode(), np.uint8),
    }
    for prefix, part in (("", slice(0, 700)), ("val_", slice(700, 740))):
        arrays[prefix + "ids"] = np.concatenate(encoded[part])
        arrays[prefix + "lengths"] = np.array([len(e) for e in encoded[part]], np.uint32)
        arrays[prefix + "role"] = roles[part]
    path = tmp_path_factory.mktemp("corpus") / "echo.npz"
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def test_an_epoch_shows_every_document_once_in_batches_under_the_limit(corpus_path: Path) -> None:
    documents = read_corpus(corpus_path, context=CONTEXT).train
    epoch = batches(documents, tokens=256, seed=3, epoch=0)
    assert sorted(np.concatenate([rows for rows, _ in epoch])) == list(range(700))
    assert all(len(rows) * width <= 256 and documents.lengths[rows].max() <= width for rows, width in epoch)
    assert [r.tolist() for r, _ in epoch] == [r.tolist() for r, _ in batches(documents, tokens=256, seed=3, epoch=0)]
    assert [r.tolist() for r, _ in epoch] != [r.tolist() for r, _ in batches(documents, tokens=256, seed=3, epoch=1)]


def test_padding_and_first_tokens_weigh_nothing() -> None:
    weights = np.array([9, 0.5, 1, 9, 0.25], np.float16)
    documents = Documents(
        np.array([2, 5, 1, 2, 6], np.uint16), np.array([0, 3]), np.array([3, 2]), np.zeros(2, np.uint8), weights
    )
    batch = documents.padded(np.array([1, 0]), 4)
    assert batch.ids.tolist() == [[2, 6, 0, 0], [2, 5, 1, 0]]
    assert batch.weights.tolist() == [[0, 0.25, 0, 0], [0, 0.5, 1, 0]]


def test_bad_corpora_are_refused_with_the_fix(corpus_path: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusInvalid, match=r"labs\.pocket\.corpus"):
        read_corpus(tmp_path / "absent.npz", context=CONTEXT)
    with pytest.raises(CorpusInvalid, match="at most 8"):
        read_corpus(corpus_path, context=8)
    with np.load(corpus_path) as arrays:
        found = dict(arrays)
    for change, words in (({"tokenizer": None}, "'tokenizer'"), ({"lengths": found["lengths"][:-1]}, "lengths sum to")):
        broken = {name: array for name, array in (found | change).items() if array is not None}
        np.savez(tmp_path / "broken.npz", **broken)
        with pytest.raises(CorpusInvalid, match=words):
            read_corpus(tmp_path / "broken.npz", context=CONTEXT)


def random_llama(depth: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(pocket_config(depth=depth, vocab_size=264))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.1)
    return model


def test_the_fast_forward_equals_hugging_face_in_loss_and_gradient() -> None:
    model = random_llama()
    ids = torch.randint(4, 264, (3, 300))
    loss, hit = FastForward(model, dtype=torch.float32)(ids)
    loss.mean().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    logits = model(ids).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    expected.mean().backward()
    assert torch.allclose(loss, expected, atol=1e-4)
    assert torch.equal(hit, logits.argmax(-1) == ids[:, 1:])
    assert gradients.keys() == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        assert torch.allclose(gradients[name], parameter.grad, atol=1e-6, rtol=1e-3), name


def test_block_attention_is_causal_attention() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 2, 200, 32, requires_grad=True) for _ in range(3))
    mine = causal_attention(query, key, value)
    mine.square().sum().backward()
    gradients = [x.grad.clone() for x in (query, key, value)]
    query.grad = key.grad = value.grad = None
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    theirs.square().sum().backward()
    assert torch.allclose(mine, theirs, atol=1e-5)
    for gradient, tensor in zip(gradients, (query, key, value), strict=True):
        assert torch.allclose(gradient, tensor.grad, atol=1e-4)


def compiled_and_eager() -> bool:
    """Return whether the compiled forward pass gives what the one as written gives."""
    model = random_llama()
    ids = torch.randint(4, 264, (2, 160))
    forward = FastForward(model, dtype=torch.float32)
    with torch.no_grad():
        Compiling.on = False
        eager, _ = forward(ids)
        Compiling.on = True
        compiled, _ = forward(ids)
    return torch.allclose(eager, compiled, atol=1e-4)


@pytest.mark.slow
def test_compiling_changes_nothing_but_speed(root: Path) -> None:
    """In a process of its own: torch cannot compile the probes that coverage puts into functions here."""
    code = f"from {__name__} import compiled_and_eager; assert compiled_and_eager()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_exact_turns_wants_every_token_up_to_the_end() -> None:
    ids = np.array([[2, 9, END, ASSISTANT, 7, 8, END, 2, 9, END, ASSISTANT, 7, END, 0]])
    hit = np.ones((1, 13), bool)
    assert [x.tolist() for x in exact_turns(ids, hit)] == [[2], [2]]
    for position, expected in ((0, 2), (3, 1), (5, 1), (11, 1), (12, 2)):
        missed = hit.copy()
        missed[0, position] = False
        assert exact_turns(ids, missed)[0].tolist() == [expected], position


def test_the_rate_warms_up_holds_and_ends_at_zero() -> None:
    assert rate(0.0, 0) == pytest.approx(0.01)
    assert rate(0.4, 500) == 1.0
    assert rate(0.7, 500) == pytest.approx(0.5)
    assert rate(1.0, 500) == 0.0


def test_an_untrained_model_copies_what_it_has_seen_once() -> None:
    model = LlamaForCausalLM(pocket_config(depth=2, vocab_size=1024))
    initialise(model, 0)
    torch.manual_seed(0)
    once = torch.stack([torch.randperm(1020)[:60] + 4 for _ in range(4)])
    found = model(torch.cat((once, once), 1)).logits.argmax(-1)[:, 60:-1]
    assert (found == once[:, 1:]).float().mean() > 0.9


def test_one_layer_cannot_look_anything_up() -> None:
    with pytest.raises(PolicyError, match="at least 2 layers"):
        pocket_config(depth=1, vocab_size=264)


def test_every_parameter_has_one_optimizer() -> None:
    model = LlamaForCausalLM(pocket_config(depth=2, vocab_size=264))
    initialise(model, 0)
    muon, adam = make_optimizers(model, muon_lr=0.02, adam_lr=1e-3)
    held = [p for optimizer in (muon, adam) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, model.parameters()))
    assert all(p.shape[0] != 264 for group in muon.param_groups for p in group["params"])


def test_head_size_suits_served_attention_and_weights_stay_under_16_mb() -> None:
    config = pocket_config(depth=Settings().depth, vocab_size=2048)
    assert config.head_dim in (32, 64)
    assert config.max_position_embeddings >= 2048
    parameters = sum(p.numel() for p in LlamaForCausalLM(config).parameters())
    assert 2e6 < parameters < 7e6
    assert 2 * parameters < 16e6


async def test_training_learns_and_writes_what_hugging_face_loads(corpus_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [str(corpus_path), "--out", str(out), "--no-compile", "--steps", "6", "--batch-tokens", "512"]
    assert main([*arguments, "--depth", "2", "--threads", "1"]) == 0
    facts = json.loads((out / "training.json").read_text())
    assert facts["finished"]
    assert facts["steps"] == 6
    assert facts["corpus"] == {"kind": "echo"}
    assert facts["held_out"]["act"]["loss"] < 4.5, "an untrained model scores 5.6"
    stored = AutoModelForCausalLM.from_pretrained(out)
    assert {p.dtype for p in stored.parameters()} == {torch.bfloat16}
    tokenizer = AutoTokenizer.from_pretrained(out)
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "say ab"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|user|>s\nsay ab<|end|><|assistant|>"
    )
    assert f"{facts['parameters']} parameters" in (out / "README.md").read_text()
    policy = LocalPolicy(out, threads=1)
    reply = await policy.generate([Message(role="user", content="say fed")], SamplingParams(max_tokens=12))
    assert 0 < reply.usage.completion_tokens <= 12
    await policy.aclose()


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(corpus_path: Path, tmp_path: Path) -> None:
    corpus = read_corpus(corpus_path, context=CONTEXT)
    settings = Settings(steps=3, depth=2, batch_tokens=256)
    whole = Trainer(corpus, settings, tmp_path / "whole")
    whole.train()
    first = Trainer(corpus, settings, tmp_path / "parts")
    for (rows, width), _ in zip(first._order(), range(2), strict=False):
        first._step(rows, width)
        if first.step == 2:
            break
    first.save(finished=False)
    assert not json.loads((tmp_path / "parts" / "training.json").read_text())["finished"]
    second = Trainer(corpus, settings, tmp_path / "parts")
    second.resume()
    assert second.step == 2
    second.train()
    assert (second.step, second.tokens, second.position) == (whole.step, whole.tokens, whole.position)
    for ours, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_resuming_with_another_corpus_is_refused(
    corpus_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Trainer(read_corpus(corpus_path, context=CONTEXT), Settings(depth=2), tmp_path).save(finished=False)
    with np.load(corpus_path) as arrays:
        np.savez(tmp_path / "other.npz", **(dict(arrays) | {"role": arrays["role"][::-1]}))
    arguments = ["--out", str(tmp_path), "--no-compile", "--depth", "2"]
    assert main([str(tmp_path / "other.npz"), *arguments, "--resume"]) == 2
    assert "pass that corpus, or another --out" in capsys.readouterr().err
    assert main([str(tmp_path / "absent.npz"), *arguments]) == 2
    assert "no corpus at" in capsys.readouterr().err
