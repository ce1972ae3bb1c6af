"""`evolve notebook`, and the notebook as the loop's curator: a run that fails, writes notes, and shows them later.

The worker is the office's scripted one; the writer of notes is scripted too, in the same policy.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.config.file import load_config
from evolve.environments.office.worker import worker
from evolve.loop.assembly import open_store
from evolve.loop.methods import AUDIT
from memory.records import DeltaOp, Op
from memory.store import Store
from policies.protocols import Message, Reply, SamplingParams
from tests.evolve.command import complaint, evolve, evolve_json

SETTINGS = """\
[run]
tasks = 32
batch_size = 16

[policy]
name = "{policy}"
model = "3"

[environment]
name = "office"
deployment = 3
max_steps = 16

[memory]
index = "exact"

[playbook]
reflector = "rules"
curator = "notebook"
"""


class Writer:
    """The office's scripted worker, which also writes and merges notes."""

    def __init__(self, section: object) -> None:
        self._worker = worker(section)
        self.name, self.version, self.supports_schema = "writer", "1", False
        self.profile = self._worker.profile

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        text = messages[0].content
        if not text.startswith("note"):
            return await self._worker.generate(messages, params)
        found = re.search(r"^(?:fail|subject): (.*)$", text, re.MULTILINE)
        about = found[1] if found else "unknown cause"
        note = {
            "subject": about,
            "corrected_examples": [f"Wrong: {about}"],
            "correct_approach": f"Heed it: {about}",
            "mistake_summary": f"Met: {about}",
            "strategy": "Read the error.",
            "anti_patterns": ["the service accepted it"],
        }
        return Reply(text=json.dumps(note))

    def count_tokens(self, text: str) -> int:
        return self._worker.count_tokens(text)

    async def aclose(self) -> None:
        await self._worker.aclose()


@pytest.fixture(scope="module")
def once_noted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noted")
    (folder / "evolve.toml").write_text(SETTINGS.format(policy="tests.evolve.cli.test_cli_notebook:Writer"))
    evolve(folder, "run")
    return folder


@pytest.fixture
def noted(once_noted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once_noted, tmp_path / "noted"))


def opened(folder: Path) -> Store:
    return open_store(load_config(folder / "evolve.toml"), owner=False)


def test_a_run_writes_notes_shows_them_and_counts_every_episode(noted: Path) -> None:
    with opened(noted) as store:
        notes = [record for record in store.records("default") if record.kind == "note"]
        episodes = store.trajectories(arm="main")
        audits = [event.data for event in store.events(type=AUDIT)]
    failed = {t.id for t in episodes if not t.success}
    assert notes
    assert {record.kind for record in notes} == {"note"}
    assert {key for record in notes for key in record.payload.failure_ids} == failed
    assert len(notes) <= len(failed) / 2
    assert [len(a["passed"]) + len(a["failed"]) + len(a["missing"]) for a in audits] == [16, 16]
    shown = {item.record_id for t in episodes for item in t.injected}
    assert shown & {record.id for record in notes}


def test_list_and_show(noted: Path) -> None:
    rows = evolve_json(noted, "notebook", "list")
    assert [row["label"] for row in rows] == sorted(row["label"] for row in rows)
    text = evolve(noted, "notebook", "list")
    assert rows[0]["label"] in text
    assert len(evolve_json(noted, "notebook", "list", "--all")) >= len(rows)
    data = evolve_json(noted, "notebook", "show", rows[0]["label"])
    assert data["payload"]["subject"] == rows[0]["subject"]
    shown = evolve(noted, "notebook", "show", rows[0]["label"])
    assert "Do not apply when: the service accepted it" in shown
    assert f"cluster: {data['payload']['cluster_id']}" in shown
    assert all(key in shown for key in data["payload"]["failure_ids"])


def test_clusters_tell_failures_tasks_and_what_was_replaced(noted: Path) -> None:
    rows = evolve_json(noted, "notebook", "clusters")
    assert len({row["cluster"] for row in rows}) == len(rows)
    with opened(noted) as store:
        live = {record.label: record for record in store.view("default").records("note")}
    assert {row["note"]: row["failures"] for row in rows} == {
        label: len(record.payload.failure_ids) for label, record in live.items()
    }
    assert rows[0]["tasks"]
    replacing = [row for row in rows if row["replaces"]]
    assert {row["note"] for row in replacing} == {label for label, record in live.items() if record.supersedes}


def test_retire_takes_a_note_out_and_playbook_restore_brings_it_back(noted: Path) -> None:
    label = evolve_json(noted, "notebook", "list")[0]["label"]
    assert "1 applied" in evolve(noted, "notebook", "retire", label)
    assert label not in [row["label"] for row in evolve_json(noted, "notebook", "list")]
    assert label in [row["label"] for row in evolve_json(noted, "notebook", "list", "--all")]
    evolve(noted, "notebook", "retire", label, code=1)
    evolve(noted, "playbook", "restore", label)
    assert label in [row["label"] for row in evolve_json(noted, "notebook", "list")]


def test_a_bullet_is_no_note_and_notes_do_not_disturb_the_playbook_export(noted: Path) -> None:
    with opened(noted) as store:
        store.commit("default", [DeltaOp(op=Op.ADD, payload={"content": "a rule"})], actor="test")
        number = store.records("default")[-1].number
    for verb in ("show", "retire"):
        said = complaint(noted, "notebook", verb, str(number), code=2)
        assert f"is a bullet, expected a note; see `evolve playbook show {number}`" in said
    assert evolve(noted, "playbook", "export").split("\n")[1].endswith("a rule")
    assert "no record '999'" in complaint(noted, "notebook", "show", "999", code=1)


def test_an_empty_notebook_says_so(learned: Path) -> None:
    assert evolve(learned, "notebook", "list") == evolve(learned, "notebook", "clusters") == "the notebook is empty\n"
    assert evolve_json(learned, "notebook", "list") == []
