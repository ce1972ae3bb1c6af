"""What every `Embedder` must do, run over every implementation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from evolve.loop.assembly import takes_model
from evolve.registry import member, members
from memory import embedders
from memory.embedders.hashing import HashingEmbedder
from memory.embedders.sentence import SentenceEmbedder
from memory.embedding_cache import CachedEmbedder
from memory.errors import BadInput
from memory.journal import Journal
from memory.protocols import Embedder

WORDS = ("amounts", "are", "in", "cents", "before", "delete", "call", "confirm", "mail")
TEXTS = [
    "Amounts are in cents.",
    "snake_case and camelCase",
    "日本語のテキスト",
    "?!",
    "x",
    "🦜",
    "a" * 20_000,
    "\ud800 lone",
]


def tiny_sentence_model(folder: Path) -> Path:
    """Write a model with random weights (2 layers, 32 dimensions, 128 tokens) and return its folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    base = folder / "base"
    base.mkdir(parents=True)
    letters = [chr(code) for code in range(33, 127)]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *WORDS,
    ]
    (base / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    BertModel(config).save_pretrained(base)
    BertTokenizerFast(vocab_file=str(base / "vocab.txt"), model_max_length=128).save_pretrained(base)
    transformer = Transformer(str(base))
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return folder / "model"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers", reason="the `embed` extra is not installed")
    return tiny_sentence_model(tmp_path_factory.mktemp("model"))


NAMES = [
    pytest.param(each, marks=pytest.mark.slow if takes_model(member(embedders, each)) else ())
    for each in members(embedders)
]


@pytest.fixture(params=["cached", *NAMES], scope="module")
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Embedder]]:
    if request.param == "cached":
        journal = Journal(tmp_path_factory.mktemp("cache") / "evolve.db")
        yield lambda: CachedEmbedder(HashingEmbedder(), journal, persist=True)
        journal.close()
    elif takes_model(member(embedders, request.param)):
        folder = request.getfixturevalue("model_folder")
        yield lambda: member(embedders, request.param)(folder)
    else:
        if request.param == "wordllama":
            pytest.importorskip("wordllama", reason="the `wordllama` extra is not installed")
        yield member(embedders, request.param)


@pytest.fixture(scope="module")
def embedder(make: Callable[[], Embedder]) -> Embedder:
    return make()


def test_shape_type_and_length(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dim)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-4)


def test_nothing_in_nothing_out(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, embedder.dim)


def test_same_text_same_vector_alone_or_in_company(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5
    assert np.array_equal(embedder.embed(TEXTS[:1]), embedder.embed(TEXTS[:1]))


def test_two_objects_agree(embedder: Embedder, make: Callable[[], Embedder]) -> None:
    other = make()
    assert (embedder.model, embedder.dim) == (other.model, other.dim)
    assert np.allclose(embedder.embed(TEXTS[:2]), other.embed(TEXTS[:2]), atol=1e-5)


@pytest.mark.parametrize("blank", ["", " ", "\n\t \u00a0"])
def test_blank_text_is_refused_by_name(embedder: Embedder, blank: str) -> None:
    with pytest.raises(BadInput, match="blank"):
        embedder.embed(["fine", blank])


def test_names_differ_where_vectors_do() -> None:
    assert HashingEmbedder(64).model != HashingEmbedder(128).model


@pytest.mark.slow
def test_the_dimension_is_known_before_the_model_is_loaded(model_folder: Path) -> None:
    embedder = SentenceEmbedder(model_folder)
    assert embedder.dim == 32
    assert "_encoder" not in vars(embedder)
    assert embedder.embed(["mail"]).shape == (1, 32)


@pytest.mark.slow
def test_same_files_elsewhere_are_the_same_model(model_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / model_folder.name
    shutil.copytree(model_folder, copy)
    assert SentenceEmbedder(copy).model == SentenceEmbedder(model_folder).model
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert SentenceEmbedder(copy).model != SentenceEmbedder(model_folder).model
