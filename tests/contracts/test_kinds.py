"""What every kind of knowledge must do, run over all that ship: those of `playbooks/kinds` are found by their files."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from evolve.loop.assembly import register_kinds
from evolve.registry import members
from memory.embedders.hashing import HashingEmbedder
from memory.kinds import known_kinds, parse_payload, payload_class
from memory.records import DeltaOp, Op, Payload, RecallQuery, Status
from memory.store import Store
from memory.stored_item import StoredItem
from playbooks import kinds
from skills.record import Skill
from tests.conftest import PACKAGES

EXAMPLES: dict[str, Payload] = {
    "skill": Skill(source='def total(prices):\n    """Return the sum of prices."""\n    return sum(prices)\n'),
    "item": StoredItem(path=("users", "ada"), name="tone", value={"likes": "short mails"}, searched=("short mails",)),
    **{name: import_module(f"{kinds.__name__}.{name}").EXAMPLE for name in members(kinds)},
}


@pytest.fixture(params=sorted(EXAMPLES))
def payload(request: pytest.FixtureRequest) -> Payload:
    register_kinds()
    return EXAMPLES[request.param]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evolve.db", embedder=HashingEmbedder(), index="exact") as opened:
        yield opened


def added(store: Store, payload: Payload) -> str:
    """Store a payload as knowledge in use and return its record's id."""
    op = DeltaOp(op=Op.ADD, kind=payload.kind, payload=payload.model_dump(mode="json"), status=Status.ACTIVE)
    store.commit("default", [op], actor="test")
    (record,) = store.view("default").records(payload.kind)
    return record.id


def test_every_kind_is_here() -> None:
    register_kinds()
    shipped = {kind for kind in known_kinds() if payload_class(kind).__module__.split(".")[0] in PACKAGES}
    assert shipped == set(EXAMPLES)


def test_a_kind_is_named_as_its_file() -> None:
    assert {name: EXAMPLES[name].kind for name in members(kinds)} == {name: name for name in members(kinds)}


def test_it_comes_back_from_json(payload: Payload) -> None:
    body = f'{{"kind": "{payload.kind}", "payload": {payload.model_dump_json()}}}'
    assert parse_payload(body) == payload


def test_it_says_what_is_shown_and_what_is_embedded(payload: Payload) -> None:
    assert payload.text().strip()
    assert any(character.isalnum() for character in payload.key())
    assert payload.slug().strip()


def test_it_is_found_again_and_taken_back(payload: Payload, store: Store) -> None:
    before = store.snapshot("default")
    record_id = added(store, payload)
    found = store.recall(RecallQuery(text=payload.key(), kinds=(payload.kind,)))
    assert [(item.record.id, item.record.payload) for item in found] == [(record_id, payload)]
    store.rollback("default", before.id, actor="test")
    assert store.view("default").records(payload.kind) == ()
