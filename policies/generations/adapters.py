"""Check a directory of trained weights before it may be served: a plain LoRA, whole, for this base and server.

Or, where all weights were trained, a whole model (`whole_model`).

Follows what vLLM takes (`vllm.lora.peft_helper`) and TRL's checks before it syncs one. Reads no weight and loads no
package. A PEFT directory holds `adapter_config.json` and `adapter_model.safetensors`; ours also `base.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.records import Frozen
from policies.generations.base_model import Base, hash_files
from policies.generations.errors import AdapterRefused
from policies.generations.tensors import Shapes, model_shapes, shapes
from policies.generations.whole_model import ADAPTER_CONFIG, check_whole, is_whole, require_adapter, whole_files

CONFIG, WEIGHTS, BASE = ADAPTER_CONFIG, "adapter_model.safetensors", "base.json"
MAX_RANK = 16
"""Rank that servers are started for, unless told otherwise."""
PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
PLAIN_STARTS = frozenset({"gaussian", "eva", "orthogonal"})
"""Ways to begin a LoRA that leave the base model's weights alone."""
FANCY = (
    "modules_to_save",
    "use_dora",
    "lora_bias",
    "alora_invocation_tokens",
    "layer_replication",
    "use_bdlora",
    "use_qalora",
    "trainable_token_indices",
    "target_parameters",
    "megatron_config",
)
"""Keys of adapter_config.json that a plain LoRA leaves empty."""
NOT_ADAPTED = re.compile(r"(^|\.)(lm_head|embed_tokens|wte|wpe|embeddings?)$")
NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight")


class Adapter(Frozen):
    """What is known of an adapter, or of a whole model, that passed."""

    rank: int
    """0 = all weights were trained."""
    modules: tuple[str, ...]
    sha256: str
    """Of its configuration and its weights."""


def check_adapter(directory: Path, base: Base, *, max_rank: int = MAX_RANK) -> Adapter:
    """Return the facts of trained weights, or raise `AdapterRefused` with what was got, what was expected, what to do.

    Checks what `inspect_weights` does, that they were trained on this base, and the rank.
    """
    adapter = inspect_weights(directory, Path(base.model))
    if adapter.rank > max_rank:
        todo = "train with a lower r, or serve a higher rank"
        raise _refused(directory, f"rank {adapter.rank}", f"at most {max_rank}", todo)
    _check_base(directory, base)
    return adapter


def inspect_weights(directory: Path, model: Path | None) -> Adapter:
    """Return the facts of an adapter or of a whole model. Raises `AdapterRefused`, as `inspect_adapter`."""
    if not is_whole(directory):
        return inspect_adapter(directory, model)
    _check_files(directory)
    check_whole(directory, model)
    return Adapter(rank=0, modules=(), sha256=fingerprint(directory))


def inspect_adapter(directory: Path, model: Path | None) -> Adapter:
    """Return the facts of a plain, whole LoRA. Raises `AdapterRefused`.

    `model`: the base's directory; where that is here, the adapted modules must exist in it with these sizes. None =
    they are compared elsewhere.
    """
    require_adapter(directory)
    config = _config(directory)
    _check_files(directory)
    _check_plain(directory, config)
    rank = _rank(directory, config)
    modules = _modules(directory, shapes(directory / WEIGHTS))
    _check_modules(directory, modules, model_shapes(model) if model else {})
    return Adapter(rank=rank, modules=tuple(sorted(modules)), sha256=fingerprint(directory))


def put_in_order(directory: Path) -> None:
    """Write an adapter's configuration in one order, so that equal weights have one fingerprint.

    PEFT writes lists in the order of a set, which is another one in each process.
    """
    path = directory / CONFIG
    config = json.loads(path.read_text(encoding="utf-8"))
    ordered = {key: sorted(value, key=str) if isinstance(value, list) else value for key, value in config.items()}
    path.write_text(json.dumps(ordered, indent=2, sort_keys=True), encoding="utf-8")


def fingerprint(directory: Path) -> str:
    """Return the sha256 of the configuration and the weights of an adapter or a whole model."""
    return hash_files(whole_files(directory) if is_whole(directory) else (directory / CONFIG, directory / WEIGHTS))


def _config(directory: Path) -> dict[str, Any]:
    missing = [name for name in (CONFIG, WEIGHTS) if not (directory / name).is_file()]
    if missing:
        raise _refused(directory, f"no {' and no '.join(missing)}", "a PEFT adapter", "write it with save_pretrained()")
    try:
        config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise _refused(directory, f"{CONFIG} that is no JSON", "a PEFT adapter", "write it again") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else config
        raise _refused(directory, f"peft_type {kind!r}", "'LORA'", "train a LoRA")
    return config


def _check_files(directory: Path) -> None:
    pickles = sorted(path.name for path in directory.rglob("*") if path.suffix in PICKLES)
    if pickles:
        raise _refused(directory, f"{', '.join(pickles)}", "no pickled files: they run code", "keep safetensors only")
    linked = sorted(path.name for path in directory.rglob("*") if path.is_symlink())
    if linked:
        raise _refused(directory, f"links ({', '.join(linked)})", "files that stay as they are", "copy them")


def _check_plain(directory: Path, config: Mapping[str, Any]) -> None:
    fancy = [f"{key} = {config[key]!r}" for key in FANCY if config.get(key)]
    fancy += [f"bias = {config['bias']!r}"] if config.get("bias", "none") != "none" else []
    start = config.get("init_lora_weights", True)
    fancy += [f"init_lora_weights = {start!r}"] if isinstance(start, str) and start.lower() not in PLAIN_STARTS else []
    if fancy:
        raise _refused(
            directory, ", ".join(fancy), "a plain LoRA", "train without it; a server would drop or refuse it"
        )


def _rank(directory: Path, config: Mapping[str, Any]) -> int:
    said = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    ranks = [rank for rank in said if isinstance(rank, int) and rank > 0]
    if len(ranks) < len(said):
        raise _refused(directory, f"ranks {said}", "whole numbers above 0", "write the adapter again")
    return max(ranks)


def _check_base(directory: Path, base: Base) -> None:
    try:
        written = json.loads((directory / BASE).read_text(encoding="utf-8"))
        got = (str(written["weights"]), str(written["tokenizer"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = "what it was trained on: weights and tokenizer by hash"
        raise _refused(directory, f"no readable {BASE}", expected, "publish it through the registry") from error
    for what, mine, wanted in zip(("base weights", "tokenizer"), got, (base.weights, base.tokenizer), strict=True):
        if mine != wanted:
            todo = f"train on {base.model!r}, or begin a workspace for the other base"
            raise _refused(directory, f"{what} {mine[:12]}", wanted[:12], todo)


def _modules(directory: Path, tensors: Shapes) -> dict[str, tuple[int, int]]:
    """Return (inputs, outputs) of every adapted module."""
    sides: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in tensors.items():
        found = NAME.fullmatch(name)
        if found is None or len(shape) != 2:
            expected = "base_model.model.<module>.lora_A.weight and lora_B.weight, two-dimensional"
            raise _refused(directory, f"tensor {name!r} of shape {list(shape)}", expected, "train a plain LoRA")
        if NOT_ADAPTED.search(found["module"]):
            raise _refused(
                directory, f"an adapted {found['module']!r}", "linear layers inside the blocks", "change target_modules"
            )
        sides.setdefault(found["module"], {})[found["side"]] = shape
    halves = sorted(module for module, pair in sides.items() if len(pair) != 2 or pair["A"][0] != pair["B"][1])
    if halves or not sides:
        got = f"no matching A and B for {', '.join(halves[:3])}" if halves else "no tensor at all"
        raise _refused(directory, got, "both halves of every module", "write the adapter again")
    return {module: (pair["A"][1], pair["B"][0]) for module, pair in sides.items()}


def _check_modules(directory: Path, modules: Mapping[str, tuple[int, int]], known: Shapes) -> None:
    for module, (inputs, outputs) in modules.items() if known else ():
        shape = known.get(f"{module}.weight") or known.get(f"{module.partition('.')[2]}.weight")
        if shape is None:
            todo = "a server would ignore it: train on this base, or rename the adapter's modules"
            raise _refused(directory, f"an adapted module {module!r}", "one that the base model has", todo)
        if sorted(shape) != sorted((outputs, inputs)):
            raise _refused(
                directory, f"{module!r} of {outputs} x {inputs}", f"{' x '.join(map(str, shape))}", "train on this base"
            )


def _refused(directory: Path, got: str, expected: str, todo: str) -> AdapterRefused:
    return AdapterRefused(f"adapter {str(directory)!r} cannot be served: got {got}, expected {expected}; {todo}")
