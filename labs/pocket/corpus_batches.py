"""Reads a training corpus and cuts it into length-bucketed batches. Does not generate text (`labs.pocket.corpus` does).

A corpus is one `.npz` of plain arrays: `ids`, `lengths`, `role` and their `val_` twins, optional `weights` and
`val_weights`, `tokenizer` (the bytes of a `tokenizer.json`) and `meta` (JSON bytes). Nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.errors import PolicyError

ROLES = ("act", "reflect", "curate")
SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
PAD, END, USER, ASSISTANT = range(4)

Array = NDArray[Any]


class CorpusInvalid(PolicyError, ValueError):
    """A corpus file lacks an array or contradicts itself."""


@dataclass(frozen=True)
class Documents:
    """Token ids of many documents, one after the other."""

    ids: Array
    starts: Array
    lengths: Array
    roles: Array
    weights: Array | None

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, rows: Array, width: int) -> Batch:
        """Return documents `rows` right-padded to `width` tokens; padding and each first token weigh 0."""
        ids = np.full((len(rows), width), PAD, np.int64)
        weights = np.zeros((len(rows), width), np.float32)
        for i, row in enumerate(rows):
            start, length = int(self.starts[row]), int(self.lengths[row])
            ids[i, :length] = self.ids[start : start + length]
            weights[i, 1:length] = 1.0 if self.weights is None else self.weights[start + 1 : start + length]
        return Batch(ids, weights, self.roles[rows])


@dataclass(frozen=True)
class Batch:
    """Rows of one document each: `ids` int64 and `weights` float32 of shape [rows, width], `roles` uint8 [rows]."""

    ids: Array
    weights: Array
    roles: Array


@dataclass(frozen=True)
class Corpus:
    """Training and held-out documents, their tokenizer, and where they come from."""

    train: Documents
    held_out: Documents
    tokenizer: bytes
    meta: dict[str, Any]
    sha256: str


def read_corpus(path: Path, *, context: int) -> Corpus:
    """Read a corpus file whose documents have at most `context` tokens. Raises `CorpusInvalid`."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except FileNotFoundError as error:
        raise CorpusInvalid(
            f"no corpus at {str(path)!r}; make one with `python -m labs.pocket.corpus {path}`"
        ) from error
    corpus = Corpus(
        train=_documents(found, "", path),
        held_out=_documents(found, "val_", path),
        tokenizer=bytes(_need(found, "tokenizer", path)),
        meta=json.loads(bytes(_need(found, "meta", path))),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    longest = int(max(corpus.train.lengths.max(), corpus.held_out.lengths.max()))
    if longest > context:
        raise CorpusInvalid(f"{path.name} holds a document of {longest} tokens, expected at most {context}; shorten it")
    return corpus


def batches(documents: Documents, *, tokens: int, seed: int, epoch: int) -> list[tuple[Array, int]]:
    """Return one epoch as (document rows, padded width), at most `tokens` a batch, a pure function of (seed, epoch).

    Documents are shuffled, sorted by length within blocks of 8,192, cut, and the batches shuffled again.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(documents))
    cut: list[tuple[Array, int]] = []
    for begin in range(0, len(order), 8192):
        block = order[begin : begin + 8192]
        cut.extend(_cut(block[np.argsort(documents.lengths[block], kind="stable")], documents.lengths, tokens))
    return [cut[i] for i in rng.permutation(len(cut))]


def _cut(rows: Array, lengths: Array, tokens: int) -> Iterator[tuple[Array, int]]:
    begin = 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and (end + 1 - begin) * _width(int(lengths[rows[end]])) <= tokens:
            end += 1
        yield rows[begin:end], _width(int(lengths[rows[end - 1]]))
        begin = end


def _width(length: int) -> int:
    """Round up to a multiple of 32, so that few shapes occur."""
    return -(-length // 32) * 32


def _need(found: dict[str, Array], name: str, path: Path) -> Array:
    if name not in found:
        raise CorpusInvalid(f"{path.name} has the arrays {sorted(found)}, expected {name!r} too; make the corpus again")
    return found[name]


def _documents(found: dict[str, Array], prefix: str, path: Path) -> Documents:
    ids = _need(found, prefix + "ids", path)
    lengths = _need(found, prefix + "lengths", path).astype(np.int64)
    roles = _need(found, prefix + "role", path)
    weights = found.get(prefix + "weights")
    if len(lengths) == 0 or int(lengths.sum()) != len(ids) or len(roles) != len(lengths):
        raise CorpusInvalid(
            f"{path.name}: {prefix}lengths sum to {int(lengths.sum())} over {len(lengths)} documents, expected "
            f"{len(ids)} tokens and {len(roles)} roles; make the corpus again"
        )
    if weights is not None and len(weights) != len(ids):
        raise CorpusInvalid(f"{path.name}: {len(weights)} {prefix}weights, expected {len(ids)}; make the corpus again")
    return Documents(ids, np.cumsum(lengths) - lengths, lengths, roles, weights)
