"""Small GGUF files for tests: whole, and shaped like a language model's, but with nothing in them to run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter


def gguf_file(path: Path, *, template: str = "{{ messages }}", context: int = 512) -> Path:
    """Write a file with a vocabulary of three words and one tensor; return its path."""
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_context_length(context)
    writer.add_token_list(["a", "b", "<end>"])
    writer.add_token_scores([0.0, 0.0, 1.0])
    if template:
        writer.add_chat_template(template)
    writer.add_tensor("output.weight", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
