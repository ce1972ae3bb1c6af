"""A small kind of knowledge and a store over it, for the tests of this floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.kinds import register
from memory.records import DeltaOp, Op, Payload, Provenance
from memory.store import Store


@register
class Fact(Payload):
    """The kind these tests use."""

    kind: ClassVar[str] = "fact"
    content: str
    topic: str = "tst"

    def text(self) -> str:
        return self.content

    def slug(self) -> str:
        return self.topic


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evolve.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as opened:
        yield opened


@pytest.fixture
def add() -> Callable[..., DeltaOp]:
    def make(content: str, *task_ids: str, **fields: Any) -> DeltaOp:
        provenance = fields.pop("provenance", Provenance(task_ids=task_ids))
        return DeltaOp(op=Op.ADD, kind="fact", payload={"content": content}, provenance=provenance, **fields)

    return make
