"""Embedders without their model: stable hashing, and clear refusals long before any network could be tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.embedders.sentence import SentenceEmbedder
from memory.errors import BadInput

GOLDEN = [-0.2993, -0.1663, 0.0, -0.582, 0.1455, -0.1164, -0.1663, 0.0]
GOLDEN += [0.3326, -0.1663, 0.1758, 0.0, 0.4781, 0.0, 0.0, -0.2898]


def test_hashing_gives_these_numbers_in_every_process(root: Path) -> None:
    """Golden: stored vectors stay valid across processes, machines and releases (`PYTHONHASHSEED` must not matter)."""
    code = (
        "from memory.embedders.hashing import HashingEmbedder as H; v = H(16).embed(['Confirm the payment_token.'])[0];"
    )
    code += "print([round(float(x), 4) for x in v])"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert [json.loads(numbers) for numbers in seen] == [GOLDEN]


def test_hashing_ranks_by_shared_words_and_spelling() -> None:
    query, same, spelt, other = HashingEmbedder().embed(
        [
            "send the invoice to accounting",
            "invoices are sent to accounting",
            "acounting invoise",
            "feed the cat at noon",
        ]
    )
    assert query @ same > query @ spelt > query @ other
    assert abs(query @ other) < 0.25


def test_hashing_splits_identifiers() -> None:
    one, two, three = HashingEmbedder().embed(["sendMessage", "send_message", "send message"])
    assert one @ three > 0.9
    assert two @ three > 0.9


def test_hashing_falls_back_to_characters_and_refuses_a_tiny_dimension() -> None:
    marks = HashingEmbedder().embed(["?", "!", "?!"])
    assert np.allclose(np.linalg.norm(marks, axis=1), 1.0)
    assert abs(float(marks[0] @ marks[1])) < 0.5
    with pytest.raises(BadInput, match="dim=4"):
        HashingEmbedder(4)


def test_a_missing_hub_model_fails_at_once_and_says_what_to_do(tmp_path: Path, root: Path) -> None:
    """A fresh process, an empty cache, downloads allowed but HF_HUB_OFFLINE set: an 81-second hang elsewhere."""
    code = (
        "import time; from memory.embedders.sentence import SentenceEmbedder as S; from memory.errors import BadInput\n"
        "start = time.monotonic()\n"
        "for local in (True, False):\n"
        "    try: S('all-MiniLM-L6-v2', local_files_only=local).dim\n"
        "    except BadInput as e: print(e)\n"
        "print(time.monotonic() - start)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )
    *messages, seconds = done.stdout.splitlines()
    assert len(messages) == 2
    for message in messages:
        assert "all-MiniLM-L6-v2" in message
        assert "hashing" in message
    assert float(seconds) < 60, "it tried the hub"


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c", "bad name!/x y"])
def test_a_wrong_name_is_refused(name: str) -> None:
    started = time.monotonic()
    with pytest.raises(BadInput, match="expected a folder"):
        SentenceEmbedder(name).model  # noqa: B018
    assert time.monotonic() - started < 300


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"modules\.json"):
        SentenceEmbedder(tmp_path).dim  # noqa: B018


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ([("Transformer", {}), ("Pooling", {"embedding_dimension": 48, "pooling_mode": "mean"})], 48),
        ([("Transformer", {}), ("Pooling", {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True})], 48),
        ([("Transformer", {}), ("Pooling", {"word_embedding_dimension": 48}), ("Dense", {"out_features": 7})], 7),
    ],
)
def test_the_dimension_is_read_from_the_files(tmp_path: Path, modules: list[tuple[str, dict]], expected: int) -> None:
    entries: list[dict[str, str]] = []
    for number, (kind, config) in enumerate(modules):
        name = f"{number}_{kind}" if number else ""
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        entries.append({"path": name, "type": f"sentence_transformers.models.{kind}"})
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    assert SentenceEmbedder(tmp_path).dim == expected
