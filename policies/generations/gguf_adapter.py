"""A LoRA adapter of PEFT as llama.cpp takes it: one GGUF file, served beside the GGUF file of its base model.

Facts of the format (ggml-org/llama.cpp, `src/llama-adapter.cpp`): `general.type` is `adapter`, `general.architecture`
that of the base, `adapter.type` is `lora`. A base tensor `X.weight` is adapted by `X.weight.lora_a` and
`X.weight.lora_b`, and what they add is scaled by `adapter.lora.alpha` / rank. In architecture `llama` the rows of q and
k stand in another order than in transformers: the two that a rotation turns together lie beside each other.
Why adapters are not merged: docs/decisions/025-adapters-stay-beside-the-base.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from memory.errors import BadInput
from policies.generations.adapters import CONFIG, WEIGHTS, inspect_adapter
from policies.generations.errors import AdapterRefused
from policies.generations.tensors import Floats, values
from policies.gguf_file import GgufFile, inspect

ARCHITECTURES = ("llama", "qwen2")
"""Architectures whose names and orders are known here."""
TURNED = {"blk.attn_q": "attention.head_count", "blk.attn_k": "attention.head_count_kv"}
"""Tensor of architecture `llama` whose rows are reordered -> the fact that counts its heads."""
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Linear layer of a block in transformers -> in GGUF."""
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
"""Vectors of a block that GGUF files hold unquantised, likewise."""
ROUNDING = 2**-7
"""Relative; twice what bfloat16 rounds off."""
_IN_BLOCK = re.compile(r"(?:.*\.)?layers\.(?P<block>\d+)\.(?P<part>.+)")


def to_gguf(adapter: Path, base: Path, target: Path) -> Path:
    """Write the adapter of a PEFT directory for the GGUF file `base`, all or nothing; return `target`.

    Raises `AdapterRefused` for a directory that is no plain LoRA and for one that does not fit the base, `BadInput` for
    a base that is damaged or of another architecture.
    """
    from gguf import GGUFWriter, Keys

    model = _model(base)
    inspect_adapter(adapter, None)
    config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    if config.get("alpha_pattern"):
        raise _refused(adapter, "an alpha_pattern", "one lora_alpha for all modules", "train without it")
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.new")
    writer = GGUFWriter(new, model.architecture)
    writer.add_string(Keys.General.TYPE, "adapter")
    writer.add_string(Keys.General.NAME, target.stem)
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, float(config.get("lora_alpha", 8)))
    for name, value in values(adapter / WEIGHTS):
        module, side = name.removeprefix("base_model.model.").removesuffix(".weight").rsplit(".lora_", 1)
        first = side == "A"
        tensor = _fitting(adapter, base, model, module, value, first=first)
        made = value if first else _ordered(tensor, value, model) * _scale(config, value)
        writer.add_tensor(f"{tensor}.weight.lora_{'a' if first else 'b'}", np.ascontiguousarray(made, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    new.replace(target)
    return target


def check_fits(adapter: Path, base: Path) -> None:
    """Raise `BadInput` unless `adapter` is a GGUF adapter of the GGUF model `base`, by architecture and shapes."""
    model, found = _model(base), inspect(adapter)
    if not found.is_adapter:
        raise BadInput(f"{str(adapter)!r} is a GGUF file, and no adapter of one (general.type); give a LoRA adapter")
    if found.architecture != model.architecture:
        raise _another(adapter, base, f"the adapter is of architecture {found.architecture!r}", model.architecture)
    for name, tensor in found.tensors.items():
        part, _, side = name.rpartition(".lora_")
        known = model.tensors.get(part)
        if known is None or tensor.shape[side == "b"] != known.shape[side == "b"]:
            there = " x ".join(map(str, known.shape)) if known else "missing"
            raise _another(adapter, base, f"{name!r} is {' x '.join(map(str, tensor.shape))}", f"{part!r} is {there}")


def check_same_weights(folder: Path, base: Path) -> None:
    """Raise `BadInput` where a model's folder and a GGUF file hold other weights, by the vectors that no quantisation
    touches; a fine-tuning of the same base shows in them. A folder without safetensors is not compared."""
    model = _model(base)
    with base.open("rb") as file:
        for path in sorted(folder.glob("*.safetensors")):
            for name, value in values(path):
                found = _IN_BLOCK.fullmatch(name.removesuffix(".weight"))
                part = NORMS.get(found["part"]) if found else None
                known = model.tensors.get(f"blk.{found['block']}.{part}.weight") if found and part else None
                if known is None or known.kind:
                    continue
                file.seek(known.at)
                there = np.frombuffer(file.read(4 * known.shape[0]), dtype="<f4")
                if there.shape != value.shape or not np.allclose(there, value, rtol=ROUNDING, atol=1e-6):
                    raise BadInput(
                        f"{str(base)!r} and {str(folder)!r} are not the same model: {name!r} differs; serve the GGUF "
                        "file of the weights that the adapter was trained on"
                    )


def _model(base: Path) -> GgufFile:
    found = inspect(base)
    if found.is_adapter:
        raise BadInput(f"{str(base)!r} is an adapter; expected the GGUF file of its base model")
    if found.architecture not in ARCHITECTURES:
        raise BadInput(
            f"{str(base)!r} is of architecture {found.architecture!r}; adapters are converted for "
            f"{' and '.join(ARCHITECTURES)}: serve its folder through vLLM"
        )
    return found


def _fitting(adapter: Path, base: Path, model: GgufFile, module: str, value: Floats, *, first: bool) -> str:
    """Return what GGUF calls the module of a tensor, `blk.0.attn_q`. Raises where the base has none of that size."""
    place = _IN_BLOCK.fullmatch(module)
    if place is None or place["part"] not in PARTS:
        expected = f"modules of a block: {', '.join(PARTS)}"
        raise _refused(adapter, f"an adapted {module!r}", expected, "change target_modules")
    name = f"blk.{place['block']}.{PARTS[place['part']]}"
    known = model.tensors.get(f"{name}.weight")
    outer, side = (value.shape[1], "inputs") if first else (value.shape[0], "outputs")
    if known is None or known.shape[not first] != outer:
        there = f"{known.shape[not first]} {side}" if known else "no such module"
        raise _another(adapter, base, f"{module!r} has {outer} {side}", there)
    return name


def _ordered(name: str, value: Floats, model: GgufFile) -> Floats:
    """Return `lora_B` [out, rank] with its rows as the base's architecture has them."""
    fact = TURNED.get(re.sub(r"\.\d+", "", name)) if model.architecture == "llama" else None
    if fact is None:
        return value
    key = f"{model.architecture}.{fact}"
    heads = int(model.facts.get(key, model.facts[f"{model.architecture}.attention.head_count"]))
    rows, rank = value.shape
    return value.reshape(heads, 2, rows // heads // 2, rank).swapaxes(1, 2).reshape(rows, rank)


def _scale(config: Mapping[str, Any], value: Floats) -> float:
    """Return by what `lora_B` is multiplied, since llama.cpp divides by the rank and rsLoRA by its root."""
    return math.sqrt(value.shape[1]) if config.get("use_rslora") else 1.0


def _another(adapter: Path, base: Path, got: str, there: str) -> BadInput:
    return BadInput(
        f"adapter {str(adapter)!r} does not fit {str(base)!r}: {got}, there it is {there}; it was trained on another "
        "base model: serve the GGUF file of that one"
    )


def _refused(directory: Path, got: str, expected: str, todo: str) -> AdapterRefused:
    return AdapterRefused(f"adapter {str(directory)!r} cannot be converted: got {got}, expected {expected}; {todo}")
