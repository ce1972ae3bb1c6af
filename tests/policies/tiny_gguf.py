"""Random models of some thousand parameters: a Hugging Face folder, and the same weights in GGUF for llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

CONTEXT, HEADS, GROUPS, WIDTH = 512, 4, 2, 64
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 2
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""That of both real models, without their standing system message."""
BLOCK = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def tiny_model(architecture: str, folder: Path, seed: int = 0, *, width: int = WIDTH) -> tuple[Path, Path]:
    """Write a random model of `llama` or `qwen2`; return its folder and its GGUF file."""
    tokenizer = _tokenizer()
    common = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "initializer_range": 0.15,
        "eos_token_id": END,
        "bos_token_id": None,
    }
    torch.manual_seed(seed)
    config = LlamaConfig(**common) if architecture == "llama" else Qwen2Config(**common)
    model: Any = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("bias", "norm.weight", "layernorm.weight")):
                weight.add_(torch.randn_like(weight), alpha=0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, _gguf(architecture, model, tokenizer, folder.with_suffix(".gguf"))


def _tokenizer() -> PreTrainedTokenizerFast:
    """Return one that knows ASCII, three special tokens and one pair: whatever is sampled is text by itself, since
    llama.cpp reports no probabilities of tokens that end in the middle of a character."""
    words = {word: at for at, word in enumerate((*SPECIAL, *map(chr, range(33, 127)), "\u0120", "\u010a", "ab"))}
    core = Tokenizer(BPE(words, [("a", "b")]))
    core.pre_tokenizer, core.decoder = ByteLevel(add_prefix_space=False), Decoder()
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=SPECIAL[END], pad_token=SPECIAL[0])
    made.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    made.chat_template = TEMPLATE
    return made


def _gguf(architecture: str, model: Any, tokenizer: PreTrainedTokenizerFast, target: Path) -> Path:
    config = model.config
    writer = GGUFWriter(target, architecture)
    writer.add_string("general.type", "model")
    writer.add_name("Tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // HEADS)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    writer.add_token_list([word for word, _ in words])
    writer.add_token_types([3 if word in SPECIAL else 1 for word, _ in words])  # control, normal
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, value in model.state_dict().items():
        writer.add_tensor(_named(name), _turned(architecture, name, value.numpy().astype(np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _named(name: str) -> str:
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    module, _, kind = name.rpartition(".")
    if module in top:
        return f"{top[module]}.{kind}"
    _, _, block, part = module.split(".", 3)
    return f"blk.{block}.{BLOCK[part]}.{kind}"


def _turned(architecture: str, name: str, value: Any) -> Any:
    """Return q and k of `llama` with the two rows that a rotation turns together side by side."""
    heads = {"q_proj": HEADS, "k_proj": GROUPS}.get(name.split(".")[-2])
    if architecture != "llama" or heads is None:
        return value
    half = value.shape[0] // heads // 2
    order = [head * 2 * half + part * half + at for head in range(heads) for at in range(half) for part in (0, 1)]
    return np.ascontiguousarray(value[order])


def change(adapter: Path, **settings: Any) -> None:
    """Write other settings into an adapter's configuration."""
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
