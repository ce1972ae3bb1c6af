"""Static word vectors that come inside the package wordllama (extra `wordllama`): meaning without torch or a download.

A text is the mean of its tokens' vectors, so it knows that a refund is near a reimbursement, and nothing of word order.
It is as fast as hashing. Weights: 256 dimensions, distilled from the input embeddings of large models, MIT licence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from memory.embeddable import tokenizable
from memory.protocols import Vector

_CONFIG = "l2_supercat"


class WordLlamaEmbedder:
    """Embed with the weights of the installed package; nothing is loaded before the first text.

    Raises `ModuleNotFoundError` where the package is absent.
    """

    dim = 256

    def __init__(self) -> None:
        spec = find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("the embedder needs the package wordllama", name="wordllama")
        self._package = Path(spec.origin).parent

    @property
    def model(self) -> str:
        """Name and hash of the weights: another release with the same weights is the same model."""
        return f"wordllama-{self.dim}-{self._hash}"

    @cached_property
    def _hash(self) -> str:
        weights = self._package / "weights" / f"{_CONFIG}_{self.dim}.safetensors"
        return sha256(weights.read_bytes()).hexdigest()[:12]

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32 `(len(texts), dim)`, L2-normalised. Blank text raises `BadInput`."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        whole = tokenizable(texts)
        return np.asarray(self._encoder.embed(whole, norm=True), dtype=np.float32)

    @cached_property
    def _encoder(self) -> Any:
        from wordllama import WordLlama

        # release 0.4 looks for its tokenizer in a folder that its wheel spells otherwise; as a cache it is found
        return WordLlama.load(_CONFIG, cache_dir=self._package, dim=self.dim, disable_download=True)


MEMBER = WordLlamaEmbedder
