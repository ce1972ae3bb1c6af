"""The probe that looks for known vectors: what counts as found."""

from __future__ import annotations

import numpy as np
import pytest

from memory.health import _NEAR, _found
from memory.indexes.exact import ExactIndex
from memory.protocols import Vector
from memory.vectors import to_blob

DIM = 16


def unit(*parts: float) -> Vector:
    vector = np.zeros(DIM, dtype=np.float32)
    vector[: len(parts)] = parts
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ([("a", unit(1))], True),
        ([("a", unit(0, 1))], False),
        ([("b", unit(1))], False),
        ([(f"b{at:02}", unit(1)) for at in range(_NEAR)], True),
        ([(f"b{at:02}", unit(1)) for at in range(_NEAR - 1)], False),
        ([(f"b{at:02}", unit(1, 0.1)) for at in range(_NEAR)], False),
        ([("a", unit(1, 0.03))], True),
        ([("a", unit(1, 0.06))], False),
    ],
    ids=["there", "moved", "gone", "among more equals than fit", "equals fit", "near is not equal", "rounded", "off"],
)
def test_a_vector_is_found_under_its_id_or_lost_among_its_equals(stored: list[tuple[str, Vector]], found: bool) -> None:
    index = ExactIndex()
    index.upsert("ns/fact", [key for key, _ in stored], np.array([vector for _, vector in stored]))
    assert _found(index, "ns/fact", "a", to_blob(unit(1)), DIM) is found
