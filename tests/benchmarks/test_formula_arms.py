"""The arms of a real model on Formula, with a tiny random one: what is measured stays, and the control does no more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.formula_arms import GREEDY, GRPO, SAGE, SAMPLED, SHUFFLED, START, FormulaSize, measure
from benchmarks.real.files import DATA
from policies.local.local_policy import POCKET

SIZE = FormulaSize(chains=2, rollouts=2, questions=3, samples=2, max_tokens=8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A random model with the shipped tokenizer."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    vocabulary = json.loads((POCKET / "config.json").read_text())["vocab_size"]
    made = Qwen2ForCausalLM(Qwen2Config(vocab_size=vocabulary, num_hidden_layers=1, **size))
    made.save_pretrained(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(POCKET / name, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, lines in (("formula_train_subset_500.jsonl", 6), ("formula_val_subset_300.jsonl", 104)):
        told = [
            {
                "context": f'Use formula SUM to answer the question. Question: "What is {n} and 1?". Answer: ',
                "target": n,
            }
            for n in range(lines)
        ]
        (tmp_path / name).write_text("".join(json.dumps(each) + "\n" for each in told))
    monkeypatch.setenv(DATA, str(tmp_path))


def test_arms_are_measured_once_and_the_control_does_no_more_than_grpo(
    files: None, model: Path, tmp_path: Path
) -> None:
    told = tmp_path / "formula.json"
    found = measure(model, tmp_path / "one", {START: 0, GRPO: 0, SHUFFLED: 1e9}, SIZE, told)
    assert [len(found[arm]["batches"]) for arm in (START, GRPO, SHUFFLED)] == [0, 1, 1]
    for arm in found.values():
        assert [len(arm[way]) for way in (GREEDY, SAMPLED)] == [3, 3]
    assert json.loads(told.read_text()) == found
    again = measure(model, tmp_path / "two", {GRPO: 0, SAGE: 0}, SIZE, told)
    assert again[GRPO] == found[GRPO]
    assert len(again[SAGE]["batches"]) == 1
    assert not (tmp_path / "two" / GRPO).exists()
