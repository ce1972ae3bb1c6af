"""Turns documents into the corpus file: a byte-level BPE tokenizer trained on them, and their packed ids.

The file is a compressed `.npz` that `labs.pocket.train` reads: `ids`, `lengths`, `role` and `weights` of the
training documents, the same with `val_` for the held-out ones, the tokenizer's JSON and the arguments that made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.protocols import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIALS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
ROLES = ("act", "reflect", "curate")
PROMPT_WEIGHT = 0.2
"""Loss weight of the tokens the model reads; those it writes weigh 1."""


_UNITS = "|".join(
    (
        r" (?=apps\.|[\w.]+: \w+ (?:it must come|must be) )",
        r" ?\[(?:\d{1,3}|\?)\]",
        r"[\w.]+: \w+ (?:it must come|must be) (?:the contact's )?",
        r"[\w.]+ \w+: expected ",
        r"apps\.[\w.]+\(",
        r' ?\w+="?',
        r'\w\["\w+"\]',
        r"[A-Z][a-z](?=[a-z])",
        r" ?[a-z]+(?:_[a-z]+)*\(",
        r" ?[A-Za-z]+",
        r"\d",
        r" ?[^\sA-Za-z\d]+",
        r"\s+",
    )
)
"""What may become one token: a citation, the start of a rule up to its value, the name of a call or of an argument ...

A rule is then looked up by one token and its value copied as the next, which a small model learns soon; digits stand
alone, so that any number can be copied.
"""


@dataclass(frozen=True)
class Document:
    """One training conversation of a role."""

    role: str
    messages: tuple[Message, ...]


def train_tokenizer(documents: Sequence[Document], vocab_size: int) -> Tokenizer:
    """Return a byte-level BPE tokenizer whose tokens never reach over the borders of `_UNITS`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_UNITS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((m.content for d in documents for m in d.messages), trainer)
    return tokenizer


def pack(documents: Sequence[Document], tokenizer: Tokenizer, prefix: str = "") -> dict[str, Any]:
    """Return the arrays of a set of documents, their names starting with `prefix`."""
    ids: list[np.ndarray[Any, Any]] = []
    weights: list[np.ndarray[Any, Any]] = []
    for document in documents:
        tokens, weight = _encode(document, tokenizer)
        ids.append(np.array(tokens, dtype=np.uint16))
        weights.append(np.array(weight, dtype=np.float16))
    return {
        f"{prefix}ids": np.concatenate(ids),
        f"{prefix}weights": np.concatenate(weights),
        f"{prefix}lengths": np.array([len(part) for part in ids], dtype=np.uint32),
        f"{prefix}role": np.array([ROLES.index(d.role) for d in documents], dtype=np.uint8),
    }


def write(path: Path, train: Sequence[Document], val: Sequence[Document], vocab_size: int, meta: dict[str, Any]) -> int:
    """Write the corpus file and return its number of training tokens."""
    tokenizer = train_tokenizer(train[:20_000], vocab_size)
    arrays = pack(train, tokenizer) | pack(val, tokenizer, "val_")
    digest = hashlib.sha256(arrays["ids"].tobytes() + arrays["val_ids"].tobytes()).hexdigest()
    header = json.dumps(meta | {"sha256": digest}, sort_keys=True)
    arrays["tokenizer"] = np.frombuffer(tokenizer.to_str().encode(), dtype=np.uint8)
    arrays["meta"] = np.frombuffer(header.encode(), dtype=np.uint8)
    np.savez_compressed(path, **arrays)
    return len(arrays["ids"])


def _encode(document: Document, tokenizer: Tokenizer) -> tuple[list[int], list[float]]:
    ids: list[int] = []
    weights: list[float] = []
    end = SPECIALS.index("<|end|>")
    for opener, content in _turns(document):
        body = tokenizer.encode(content, add_special_tokens=False).ids
        said = 1.0 if opener == "<|assistant|>" else PROMPT_WEIGHT
        ids += [SPECIALS.index(opener), *body, end]
        weights += [PROMPT_WEIGHT, *([said] * (len(body) + 1))]
    return ids, weights


def _turns(document: Document) -> Iterator[tuple[str, str]]:
    for message in document.messages:
        yield "<|assistant|>" if message.role == "assistant" else "<|user|>", message.content
