"""An embedder that needs no model and no download: signed feature hashing of words and character n-grams.

It sees spelling, not meaning: `refund` is near `refunds` and far from `reimbursement`. The word side of recall (BM25)
knows how rare a word is; this side forgives its spelling.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from memory.embeddable import check_visible
from memory.errors import BadInput
from memory.protocols import Vector

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GRAM = 4
_GRAM_SHARE = 0.5
"""Weight of all n-grams of a word together, relative to the word itself."""
_PAIR = 0.5
"""Weight of two neighbouring words."""


class HashingEmbedder:
    """Embed text by feature hashing (Weinberger et al., arXiv 0902.2206): index and sign from one stable hash.

    Features: words (camelCase and snake_case are split), pairs of neighbouring words, and character 4-grams of each
    word; counts are damped to `1 + ln(n)`, longer words weigh more. Text without any letter or digit (`?!`) falls back
    to its characters, so that every text that is not blank has a vector.
    """

    def __init__(self, dim: int = 256) -> None:
        if dim < 8:
            raise BadInput(f"got dim={dim!r} for the hashing embedder; expected at least 8")
        self._dim = dim

    @property
    def model(self) -> str:
        """Name of the feature set; it changes whenever the same text would get another vector."""
        return f"hashing-v1-{self._dim}"

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._dim

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32 `(len(texts), dim)`, L2-normalised. Blank text raises `BadInput`."""
        vectors = np.zeros((len(texts), self._dim), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self._one(text)
        return vectors

    def _one(self, text: str) -> Vector:
        check_visible(text)
        found = _features(text, self._dim).values()
        weights = [weight if count == 1 else weight * (1 + math.log(count)) for count, _, weight in found]
        vector = np.bincount([slot for _, slot, _ in found], weights, self._dim)
        norm = float(np.linalg.norm(vector))
        if norm < 1e-9:  # opposite signs met in every slot
            slot, _ = _place(text, self._dim)
            vector[slot] = norm = 1.0
        return (vector / norm).astype(np.float32)


def _features(text: str, dim: int) -> dict[str, tuple[int, int, float]]:
    """Return feature -> (count, slot, signed weight)."""
    plain = _CAMEL.sub(" ", unicodedata.normalize("NFKC", text)).casefold()
    words = _WORD.findall(plain) or list("".join(plain.split()))
    found: dict[str, tuple[int, int, float]] = {}
    for word, count in Counter(words).items():
        for feature, slot, weight in _word_features(word, dim):
            known = found.get(feature)
            found[feature] = (count if known is None else known[0] + count, slot, weight)
    for pair, count in Counter(pairwise(words)).items():
        feature = f"p {pair[0]} {pair[1]}"
        slot, sign = _hashed(feature, dim)  # pairs are too many to be worth remembering
        found[feature] = (count, slot, sign * _PAIR)
    return found


@lru_cache(maxsize=16_384)
def _word_features(word: str, dim: int) -> tuple[tuple[str, int, float], ...]:
    importance = min(len(word), 8) / 8
    grams = tuple(_grams(f"<{word}>"))
    share = _GRAM_SHARE * importance / math.sqrt(len(grams)) if grams else 0.0
    weighted = [(f"w {word}", importance), *((f"g {gram}", share) for gram in grams)]
    placed = [(feature, weight, *_place(feature, dim)) for feature, weight in weighted]
    return tuple((feature, slot, sign * weight) for feature, weight, slot, sign in placed)


def _grams(word: str) -> Iterator[str]:
    for start in range(len(word) - _GRAM + 1):
        yield word[start : start + _GRAM]


def _hashed(feature: str, dim: int) -> tuple[int, float]:
    """Return (slot, sign) of a feature: the same on every machine and in every process."""
    number = int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return (number >> 1) % dim, 1.0 if number & 1 else -1.0


_place = lru_cache(maxsize=65_536)(_hashed)


MEMBER = HashingEmbedder
