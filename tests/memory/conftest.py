"""A small kind of knowledge and a store over it, for the tests of this floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.journal import Journal
from memory.kinds import register
from memory.records import DeltaOp, Op, Payload, Provenance
from memory.store import Store
from tests.postgres import workspace_address


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let each test of a module that says `BOTH_ENGINES = True` run on each, unless it is marked `sqlite`."""
    both = getattr(metafunc.module, "BOTH_ENGINES", False) and not metafunc.definition.get_closest_marker("sqlite")
    if both and "database" in metafunc.fixturenames:
        metafunc.parametrize("database", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """Return the address of an empty database; that of the file is empty."""
    return workspace_address() if getattr(request, "param", "") == "postgres" else ""


@pytest.fixture
def reopen(path: Path, database: str) -> Callable[..., Store]:
    """Return what opens the test's workspace, with other settings than those of `store` where some are given."""

    def opened(**settings: Any) -> Store:
        journal = Journal(path, database=database)
        return Store.over(journal, **{"embedder": HashingEmbedder(), "index": "exact", **settings})

    return opened


@pytest.fixture
def store(reopen: Callable[..., Store]) -> Iterator[Store]:
    with reopen() as opened:
        yield opened


@pytest.fixture
def add() -> Callable[..., DeltaOp]:
    def make(content: str, *task_ids: str, **fields: Any) -> DeltaOp:
        provenance = fields.pop("provenance", Provenance(task_ids=task_ids))
        return DeltaOp(op=Op.ADD, kind="fact", payload={"content": content}, provenance=provenance, **fields)

    return make
