"""Loads a model, its tokenizer and an optional adapter, and names the weights by their hash."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import warnings
from collections.abc import Iterable
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from policies.encoding import ChatEncoder
from policies.errors import PolicyRefused
from policies.generations.tensors import model_shapes
from policies.generations.whole_model import is_whole
from policies.local.products import quicken
from policies.rl.optimising import Dtype

MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""
SMALL = 1 << 25
"""Numbers of a model (128 MiB in float32) below which freed memory may be held, and torch's own products do: oneDNN's
cost pocket 140 MiB and gain 4 % of a step (docs/LOG.md)."""


def computes_bfloat16() -> bool:
    """Return whether models computed here multiply bf16 matrices at full speed.

    A processor without instructions for it (avx512_bf16, AMX) needs about 35 times as long as for fp32.
    """
    return torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def release_at_once(model: str) -> None:
    """Have large blocks of memory given back to the system as soon as they are freed, from now on, in this process.

    glibc raises the size from which on it does so up to 32 MiB; a training then holds several times what it needs.
    Other C libraries are left as they are, and so is glibc where the model in this directory is small: what is held
    is little then, and asking for it anew each time takes 8 % of a step (docs/LOG.md).
    """
    numbers = sum(map(prod, model_shapes(Path(model)).values()))
    if platform.libc_ver()[0] == "glibc" and not 0 < numbers < SMALL:
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 20)


def load_tokenizer(path: str) -> Any:
    """Return the tokenizer of a model. Raises `PolicyRefused` where there is none or it has no chat template."""
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise _refusal(f"the tokenizer of {path!r}", path, error) from error
    if tokenizer.chat_template is None:
        raise PolicyRefused(f"the tokenizer of {path!r} has no chat template; use a chat model, or add one to it")
    return tokenizer


def load_encoder(path: str) -> ChatEncoder:
    """Return the encoder of a model without loading its weights. Raises as `load_tokenizer`."""
    tokenizer = load_tokenizer(path)
    try:
        generation: Any = GenerationConfig.from_pretrained(path)
    except OSError:  # a model without one: what its config says
        generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(path))
    return ChatEncoder(tokenizer, end_tokens(generation, tokenizer))


def context_of(path: str) -> int:
    """Return how many tokens a model takes, by its configuration."""
    return int(getattr(AutoConfig.from_pretrained(path).get_text_config(), "max_position_embeddings", 1 << 30))


def end_tokens(generation: Any, tokenizer: Any) -> list[int]:
    """Return the ids that end a turn: those of the generation config, else the tokenizer's."""
    ends = tokenizer.eos_token_id if generation.eos_token_id is None else generation.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def load_model(path: str, adapter: str | None, dtype: Dtype = "float32", device: str | None = None) -> Any:
    """Return the model, adapter merged, ready for inference, on a device (None: a GPU where there is one).

    Where all weights were trained, `adapter` is a whole model and is loaded in place of the base. Raises
    `PolicyRefused` if it cannot be loaded.
    """
    bar_was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        whole = adapter if adapter is not None and is_whole(Path(adapter)) else None
        model: Any = AutoModelForCausalLM.from_pretrained(whole or path, dtype=getattr(torch, dtype))
        if adapter is not None and whole is None:
            model = _merge(model, adapter)
    except (OSError, ValueError) as error:
        raise _refusal(f"{adapter or path!r}", adapter or path, error) from error
    finally:
        if bar_was_on:
            logging.enable_progress_bar()
    found = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(found).eval().requires_grad_(requires_grad=False)
    if found == "cpu" and model.num_parameters() >= SMALL:
        quicken(model)
    return model


def weights_hash(weights: Iterable[tuple[str, Any]]) -> str:
    """Return `sha256:` and 16 hex digits over the names, shapes and values of some weights."""
    digest = hashlib.sha256()
    for name, value in sorted(weights, key=lambda each: each[0]):
        digest.update(f"{name} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().numpy())
    return f"sha256:{digest.hexdigest()[:16]}"


def peft_package() -> Any:
    """Return the package peft. Raises `PolicyRefused` where it is not installed.

    Its warning about a name that transformers 5 renamed is not shown: peft 0.21 reads that name, users cannot help it.
    """
    try:
        peft: Any = import_module("peft")
    except ModuleNotFoundError as error:
        raise PolicyRefused("adapters need the package peft: pip install 'evolve-agents[rl]'") from error
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    return peft


def _merge(model: Any, adapter: str) -> Any:
    return peft_package().PeftModel.from_pretrained(model, adapter).merge_and_unload()


def _refusal(what: str, path: str, error: Exception) -> PolicyRefused:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    expected = "a directory with a model, or the name of one on the Hugging Face hub"
    if Path(path).is_dir():
        expected = "config.json, tokenizer.json and model.safetensors (or adapter files) in that directory"
    return PolicyRefused(f"cannot load {what}: {lines[0][:200]}; expected {expected}")
