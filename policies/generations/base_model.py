"""The base model that generations adapt, named by the hashes of its weights and of its tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from memory.records import Frozen
from policies.errors import PolicyRefused

WEIGHTS = ("*.safetensors", "*.bin")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
"""Files that decide which ids a text becomes."""


class Base(Frozen):
    """A base model. Two are the same when their hashes are, wherever they stand."""

    model: str
    """Directory, as it was given."""
    weights: str
    """sha256 of the weight files."""
    tokenizer: str
    """sha256 of the tokenizer's files, chat template included."""

    def same(self, other: Base) -> bool:
        """Tell whether weights and tokenizer are equal."""
        return (self.weights, self.tokenizer) == (other.weights, other.tokenizer)


def base_of(directory: Path) -> Base:
    """Return the base model in a directory. Raises `PolicyRefused` where weights or tokenizer are missing."""
    weights = sorted(path for pattern in WEIGHTS[:1] for path in directory.glob(pattern))
    weights = weights or sorted(path for pattern in WEIGHTS[1:] for path in directory.glob(pattern))
    tokenizer = [directory / name for name in TOKENIZER if (directory / name).is_file()]
    if not weights or not tokenizer:
        found = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else "no such directory"
        raise PolicyRefused(
            f"no base model in {str(directory)!r} (got {found}); expected model.safetensors and tokenizer.json there: "
            "give the directory of a downloaded model"
        )
    unchanged = tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in weights)
    return Base(model=str(directory), weights=_hashed(tuple(weights), unchanged), tokenizer=hash_files(tokenizer))


@lru_cache(maxsize=16)
def _hashed(weights: tuple[Path, ...], unchanged: object) -> str:
    """Return the sha256 of weights, read once for as long as they are `unchanged`: large ones take a minute."""
    return hash_files(weights)


def hash_files(paths: Iterable[Path]) -> str:
    """Return the sha256 over names, sizes and contents of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
