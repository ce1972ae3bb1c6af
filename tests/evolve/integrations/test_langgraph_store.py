"""What the journal adds to a LangGraph store: it lasts, it is seen, it is one of many writers, it keeps no secrets.

J1  what was put is there after a restart, and `evolve` shows it: records, events, search, snapshots, rollback
J2  each put and delete is an event; putting the same again is none
J3  no prompt of the loop recalls an item
J4  two openings of one workspace never make two items of one address
J5  secrets are redacted, in addresses too; a forgotten text, a value that is no JSON and a time to live are refused
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import PutOp

from evolve.config.model import Config
from evolve.integrations.agent import Agent
from evolve.integrations.langgraph_store import JournalStore, open_journal_store
from evolve.loop.assembly import open_store
from memory.errors import BadInput
from tests.evolve.command import evolve_json
from tests.evolve.toy_doors import doors_config

AT = ("users", "ann")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "evolve.toml").write_text('[memory]\nindex = "exact"\n')
    return doors_config(tmp_path, playbook={"reflector": "rules", "curator": "direct"})


def test_what_was_put_lasts_and_is_seen(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_journal_store(config) as store:
        store.put(AT, "food", {"text": "likes pizza with olives"})
        store.put(AT, "food", {"text": "likes curry"})
    with open_journal_store(config) as store:
        item = store.get(AT, "food")
        assert item is not None
        assert item.value == {"text": "likes curry"}
    monkeypatch.setenv("EVOLVE_MEMORY__NAMESPACE", "langgraph")
    (row,) = evolve_json(config.root, "memory", "search", "curry")
    assert row["content"] == "text: likes curry"
    assert evolve_json(config.root, "memory", "stats")["records"] == {"item provisional": 1}
    assert evolve_json(config.root, "memory", "doctor") == []


def test_every_change_is_an_event_and_can_be_rolled_back(config: Config) -> None:
    with open_store(config, owner=False) as journal:
        store = JournalStore(journal)
        store.put(AT, "food", {"text": "pizza"})
        before = journal.snapshot("langgraph")
        store.put(AT, "food", {"text": "pizza"})
        store.put(AT, "food", {"text": "curry"})
        store.delete(AT, "food")
        store.delete(AT, "food")
        types = [event.type for event in store.history(AT, "food")]
        assert types == ["knowledge.add", "knowledge.edit", "knowledge.remove"]
        assert {event.data["actor"] for event in store.history(AT, "food")} == {"langgraph"}
        journal.rollback("langgraph", before.id, actor="operator")
        item = store.get(AT, "food")
        assert item is not None
        assert item.value == {"text": "pizza"}
        assert [finding.code for finding in journal.doctor(rebuild=True)] == ["rebuilt"]
        assert store.get(AT, "food") == item


async def test_no_prompt_recalls_an_item(config: Config) -> None:
    with open_journal_store(config) as store:
        store.put(AT, "door", {"text": "Open the red door with a hammer."})
    async with Agent(None, config) as agent:
        assert (await agent.ask("Open the red door.")).knowledge == ""
    with pytest.raises(BadInput, match="one of its own"), open_journal_store(config, "default"):
        pass


def test_many_writers_make_one_item(config: Config) -> None:
    def write(writer: int) -> None:
        with open_journal_store(config) as store:
            for at in range(5):
                store.put(AT, f"k{at}", {"writer": writer, "at": at})

    with open_journal_store(config), ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    with open_store(config, read_only=True) as store:
        assert len(store.records("langgraph")) == 5
        assert store.doctor() == []


def test_secrets_are_redacted_wherever_they_stand(config: Config) -> None:
    secret = "sk-ant-" + "a1b2c3d4" * 4
    with open_journal_store(config) as store:
        store.put(("keys", secret), secret, {"password": "hunter2hunter2", "text": f"use {secret}"})
        item = store.get(("keys", secret), secret)
        assert item is not None
        assert item.value == {"password": "[REDACTED:assigned-secret]", "text": "use [REDACTED:api-key]"}
        assert [found.key for found in store.search(("keys",))] == [item.key]
        assert item.key.startswith("[REDACTED:api-key]#")
    assert secret.encode() not in (config.workspace / "evolve.db").read_bytes()


def test_addresses_whose_labels_are_redacted_stay_apart(config: Config) -> None:
    users = ["sk-ant-" + f"{at}1b2c3d4" * 4 for at in range(3)]
    with open_journal_store(config) as store:
        for at, user in enumerate(users):
            store.put(("users", user), user, {"at": at})
        assert [item.value["at"] for user in users if (item := store.get(("users", user), user))] == [0, 1, 2]
        assert [item.value["at"] for item in store.search(("users", users[1]))] == [1]
        (path,) = store.list_namespaces(prefix=("users", users[2]))
        assert store.search(path) == store.search(("users", users[2]))
        store.delete(("users", users[0]), users[0])
        assert [item.value["at"] for item in store.search(("users",))] == [1, 2]


@pytest.mark.parametrize("value", [{"x": {1, 2}}, {"x": float("nan")}, {"x": object()}])
def test_a_value_that_is_no_json_is_refused(config: Config, value: dict[str, Any]) -> None:
    with open_journal_store(config) as store:
        with pytest.raises(BadInput, match="no JSON"):
            store.put(AT, "k", value)
        with pytest.raises(BadInput, match="delete it instead"):
            store.batch([PutOp(AT, "k", {"x": 1}, ttl=5.0)])
        assert store.search(()) == []


def test_a_forgotten_text_is_refused_and_the_batch_with_it(config: Config) -> None:
    with open_store(config, owner=False) as journal:
        store = JournalStore(journal)
        store.put(AT, "home", {"text": "Ann lives in Rua Augusta 12"})
        (record,) = journal.records("langgraph")
        journal.forget(record.id, purge=True, reason="Ann asked for it")
        assert store.get(AT, "home") is None
        with pytest.raises(BadInput, match="was forgotten"):
            store.batch(
                [PutOp(AT, "pet", {"text": "a cat"}), PutOp(AT, "home", {"text": "Ann lives in Rua Augusta 12"})]
            )
        assert store.search(()) == []
        store.put(AT, "pet", {"text": "a cat"})
        assert [item.key for item in store.search(())] == ["pet"]
        assert journal.doctor() == []


def test_the_example_remembers_tomorrow(root: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "examples/langgraph_store.py"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split(" -> ")[-1] for line in ran.stdout.splitlines()] == [
        "Noted.",
        "Noted.",
        "My favourite food is olive pizza.",
        "I do not know.",
        "knowledge.add by langgraph",
        "knowledge.remove by langgraph",
    ]
