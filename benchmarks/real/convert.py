"""A model as a Hugging Face folder in bfloat16, its tokenizer beside it: of a GGUF file, or with an adapter merged in.

transformers reads GGUF and undoes the quantisation, but keeps a note of it in the configuration, and would not save.
So the weights go into a fresh model of the same shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory.errors import BadInput


def to_folder(source: Path, target: Path) -> None:
    """Write `target`, a folder that transformers, PEFT, TRL and vLLM load. Takes about three times the memory of the
    result. Raises `BadInput` for a model whose tokenizer has no chat template."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    place, name = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    if not tokenizer.chat_template:
        raise BadInput(f"{str(source)!r} has no chat template; expected an instruct model")
    weights = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.bfloat16).state_dict()
    config: Any = AutoConfig.from_pretrained(place, gguf_file=name)
    config.dtype = torch.bfloat16
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(weights, assign=True)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def merged(base: Path, adapter: Path, place: Path) -> Path:
    """Write a model with an adapter merged in, in bfloat16; return its folder, in `place`."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = place / "merged"
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="float32"), str(adapter))
    model.merge_and_unload().bfloat16().save_pretrained(target)
    AutoTokenizer.from_pretrained(base).save_pretrained(target)
    return target
