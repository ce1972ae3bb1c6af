"""Check a directory whose weights were all trained: a model of the base's architecture, in safetensors alone.

It stands where an adapter would. Only a process that loads it answers with it: servers take adapters.
"""

from __future__ import annotations

import json
from pathlib import Path

from policies.generations.errors import AdapterRefused
from policies.generations.tensors import model_shapes

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
OUTPUT = "lm_head.weight"
"""Not written where it is the same matrix as that of the embeddings."""


def is_whole(directory: Path) -> bool:
    """Tell whether a directory holds a whole model, and no adapter."""
    return (directory / CONFIG).is_file() and not (directory / ADAPTER_CONFIG).is_file()


def whole_files(directory: Path) -> tuple[Path, ...]:
    """Return the configuration of a whole model and its weights."""
    return (directory / CONFIG, *sorted(directory.glob("*.safetensors")))


def check_whole(directory: Path, model: Path | None) -> None:
    """Raise `AdapterRefused` for weights that are damaged, none, or not those of the base `model` by name and shape."""
    found, known = model_shapes(directory), model_shapes(model) if model else {}
    tied = json.loads((directory / CONFIG).read_text(encoding="utf-8")).get("tie_word_embeddings", False)
    wanted = {name: shape for name, shape in known.items() if name != OUTPUT or not tied or OUTPUT in found}
    wrong = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name)) if known else []
    if wrong or not found:
        got = f"{wrong[0]!r} of shape {found.get(wrong[0])}" if wrong else "no weights"
        expected = f"{wanted.get(wrong[0])}, as the base has it" if wrong else "model.safetensors"
        raise AdapterRefused(
            f"model {str(directory)!r} cannot answer here: got {got}, expected {expected}; train this base again"
        )


def require_adapter(directory: Path) -> None:
    """Raise `AdapterRefused` for a whole model, where only an adapter can be loaded."""
    if is_whole(directory):
        raise AdapterRefused(
            f"{str(directory)!r} holds a whole model (no adapter_config.json), servers take adapters beside a base; "
            "answer with it in process (policy.name = 'local' or 'pocket'), or serve that folder as a base of its own"
        )
