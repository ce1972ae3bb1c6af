"""What a GGUF file says of itself, and that one that is not whole is noticed wherever it was cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from memory.errors import BadInput
from policies.gguf_file import GgufFile, inspect
from tests.policies.gguf_files import gguf_file


def test_a_whole_file_tells_its_name_context_and_chat_template(tmp_path: Path) -> None:
    assert inspect(gguf_file(tmp_path / "a.gguf")) == GgufFile("Tiny", "llama", 512, chat_template=True)
    assert not inspect(gguf_file(tmp_path / "b.gguf", template="")).chat_template


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = gguf_file(tmp_path / "whole.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(4, len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(BadInput, match=r"cut\.gguf' is cut short.*get it again"):
            inspect(cut)


@pytest.mark.parametrize("odd", [0, "wide", -1])
def test_a_file_that_says_something_odd_is_refused(tmp_path: Path, odd: Any) -> None:
    writer = GGUFWriter(tmp_path / "odd.gguf", "llama")
    if isinstance(odd, str):
        writer.add_string("llama.context_length", odd)
    elif odd:
        writer.add_array("llama.context_length", [1, 2])
    else:
        writer.add_uint32("general.alignment", odd)
    writer.add_tensor("output.weight", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BadInput, match=r"odd\.gguf' is cut short or damaged"):
        inspect(tmp_path / "odd.gguf")


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"PK\x03\x04 a zip", "is no GGUF file"), (b"", "is no GGUF file"), (None, "there is no file")],
)
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, data: bytes | None, said: str) -> None:
    path = tmp_path / "model.gguf"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadInput, match=said):
        inspect(path)
