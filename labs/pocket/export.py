"""Writes a trained pocket model as a directory any Hugging Face tool loads: bf16 weights, tokenizer, model card."""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig, PreTrainedTokenizerFast

from labs.pocket.corpus_batches import END, PAD, SPECIAL_TOKENS, CorpusInvalid
from labs.pocket.shape import CONTEXT

CHAT_TEMPLATE = (
    "{%- set lead = namespace(text='') -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' -%}"
    "{%- set lead.text = lead.text + message['content'] + '\\n' -%}"
    "{%- elif message['role'] == 'assistant' -%}"
    "{{- '<|assistant|>' + message['content'] + '<|end|>' -}}"
    "{%- else -%}"
    "{{- '<|user|>' + lead.text + message['content'] + '<|end|>' -}}"
    "{%- set lead.text = '' -%}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def chat_tokenizer(tokenizer_json: bytes) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a corpus with the compact chat template. Raises `CorpusInvalid` on wrong special ids."""
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    ids = tuple(tokenizer.token_to_id(token) for token in SPECIAL_TOKENS)
    if ids != tuple(range(len(SPECIAL_TOKENS))):
        raise CorpusInvalid(
            f"special tokens {SPECIAL_TOKENS} have ids {ids}, expected 0 to 3; train the tokenizer again"
        )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL_TOKENS[PAD],
        eos_token=SPECIAL_TOKENS[END],
        additional_special_tokens=list(SPECIAL_TOKENS[2:]),
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def export(model: Any, tokenizer_json: bytes, directory: Path, facts: dict[str, Any]) -> None:
    """Write the model in bf16, its tokenizer, `training.json` and a model card generated from `facts`."""
    directory.mkdir(parents=True, exist_ok=True)
    state = {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(state, directory / "model.safetensors.new", metadata={"format": "pt"})
    (directory / "model.safetensors.new").chmod(0o644)
    (directory / "model.safetensors.new").replace(directory / "model.safetensors")
    config = model.config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    chat_tokenizer(tokenizer_json).save_pretrained(str(directory))
    GenerationConfig(eos_token_id=END, pad_token_id=PAD, do_sample=False, max_new_tokens=512).save_pretrained(directory)
    (directory / "training.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    (directory / "README.md").write_text(model_card(facts))


def model_card(facts: dict[str, Any]) -> str:
    """Return the model card: what the model is, how it was trained, what it can and cannot do."""
    rows = "\n".join(
        f"| {role} | {f['loss']:.4f} | {100 * f['exact_turns']:.1f} % | {f['documents']} |"
        for role, f in facts["held_out"].items()
    )
    template = Template((Path(__file__).parent / "card.md").read_text())
    return template.substitute({key: value for key, value in facts.items() if not isinstance(value, dict)}, rows=rows)
