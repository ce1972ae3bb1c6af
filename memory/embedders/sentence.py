"""Embeddings from a sentence-transformers model: a local folder or a Hugging Face hub name.

Nothing is imported or loaded before the first text. Whether the model's files are here is settled *before* the slow
import, so that a missing model is an error at once and never a series of network retries. It never runs code that
comes with a model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory.embeddable import tokenizable
from memory.errors import BadInput
from memory.protocols import Vector

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_TRUE = {"1", "true", "yes", "on"}
_SAMPLE = 1 << 20
_BATCH = 32
_SHORT = {".json", ".txt", ".safetensors", ".bin", ".model"}


class SentenceEmbedder:
    """Embed with a sentence-transformers model.

    `local_files_only=True` (default) never touches the network: a hub name must be in the local Hugging Face cache.
    The environment variable `HF_HUB_OFFLINE=1` wins over `local_files_only=False`.
    """

    def __init__(self, path_or_name: str | Path, local_files_only: bool = True) -> None:
        self._name = str(path_or_name)
        self._offline = local_files_only or os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE

    @cached_property
    def folder(self) -> Path:
        """Folder that holds the model's files. Raises `BadInput` when they are not on this machine."""
        local = Path(self._name).expanduser()
        if local.is_dir():
            if not (local / "modules.json").exists() and not (local / "config.json").exists():
                raise BadInput(f"got folder {self._name!r}, which holds no modules.json or config.json; {_EXPECTED}")
            return local
        if self._name.startswith((".", "/", "~")) or self._name.count("/") > 1:
            raise BadInput(f"got embedding model {self._name!r}, which is not a folder; {_EXPECTED}")
        return _hub_folder(self._name, offline=self._offline)

    @property
    def model(self) -> str:
        """Name and fingerprint of the files: two folders with the same weights are the same model."""
        return f"sentence-{Path(self._name).name}-{self._fingerprint}"

    @property
    def dim(self) -> int:
        """Length of a vector: as the model's files say, or, where they do not, as the loaded model does."""
        return self._dim

    @cached_property
    def _fingerprint(self) -> str:
        return _fingerprint(self.folder)

    @cached_property
    def _dim(self) -> int:
        size = _declared_dim(self.folder) or self._encoder.get_embedding_dimension()
        if size is None:
            raise BadInput(f"got model {self._name!r}, which names no embedding dimension; choose another model")
        return size

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32 `(len(texts), dim)`, L2-normalised. Blank text raises `BadInput`."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        whole = tokenizable(texts)
        encoded = self._encoder.encode(
            whole, batch_size=_BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        vectors = np.asarray(encoded, dtype=np.float32)
        for text, norm in zip(texts, np.linalg.norm(vectors, axis=1), strict=True):
            if not norm > 0.5:
                raise BadInput(f"model {self._name!r} gave no usable vector for {text[:60]!r}; choose another model")
        return vectors

    @cached_property
    def _encoder(self) -> SentenceTransformer:
        folder = self.folder
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            return SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=False)
        finally:
            if bars:
                logging.enable_progress_bar()


_EXPECTED = "expected a folder with a sentence-transformers model, or a hub name such as 'all-MiniLM-L6-v2'"


def _hub_folder(name: str, *, offline: bool) -> Path:
    """Return the cached snapshot of a hub model, downloading it only where that is allowed."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repo = name if "/" in name else f"sentence-transformers/{name}"
    try:
        return Path(snapshot_download(repo, local_files_only=True))
    except HFValidationError as error:
        raise BadInput(f"got embedding model {name!r}, which is not a valid hub name; {_EXPECTED}") from error
    except LocalEntryNotFoundError as error:
        if offline:
            raise BadInput(
                f"embedding model {name!r} is not in the local Hugging Face cache and downloads are off; give a local "
                f"folder, download it once with `hf download {repo}`, or use the hashing embedder"
            ) from error
    try:
        return Path(snapshot_download(repo, etag_timeout=5))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise BadInput(f"embedding model {name!r} could not be downloaded ({error}); {_EXPECTED}") from error


def _declared_dim(folder: Path) -> int | None:
    """Return the dimension that `modules.json` and the module configs name, without loading anything."""
    listing = folder / "modules.json"
    if not listing.exists():
        return None
    size: int | None = None
    for module in json.loads(listing.read_text(encoding="utf-8")):
        config = folder / module["path"] / "config.json"
        if not module["path"] or not config.exists():
            continue
        settings = json.loads(config.read_text(encoding="utf-8"))
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Dense":
            size = settings["out_features"]
        elif kind == "Pooling":
            modes = settings.get(
                "pooling_mode", [name for name in settings if settings[name] is True and "_mode_" in name]
            )
            single = isinstance(modes, str) or len(modes) == 1
            size = settings.get("embedding_dimension", settings.get("word_embedding_dimension")) if single else None
        elif kind != "Normalize":
            return None
    return size


def _fingerprint(folder: Path) -> str:
    """Return 12 hex digits over the model's files: names, sizes, and up to 1 MiB from both ends of each."""
    digest = sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in _SHORT):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:12]


MEMBER = SentenceEmbedder
