"""What a GGUF file says of itself, and that one that is not whole is noticed wherever it was cut."""

from __future__ import annotations

from pathlib import Path

import pytest

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
