"""`evolve exemplars`, and exemplars under the commands and pages that every kind is under."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evolve.config.file import load_config
from evolve.inspector.page_context import PageContext
from evolve.inspector.prompts import told
from evolve.loop.assembly import open_store
from tests.evolve.command import complaint, evolve, evolve_json
from tests.evolve.inspector.conftest import opened

SETTINGS = """\
[run]
tasks = 8

[policy]
name = "tests.evolve.formulas:formulas_policy"

[environment]
name = "tests.evolve.formulas:Formulas"

[memory]
index = "exact"

[playbook]
reflector = "none"
curator = "direct"

[exemplars]
enabled = true
"""


@pytest.fixture(scope="module")
def once_solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("solved")
    (folder / "evolve.toml").write_text(SETTINGS)
    evolve(folder, "run")
    return folder


@pytest.fixture
def solved(once_solved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once_solved, tmp_path / "solved"))


def test_one_is_listed_shown_retired_and_restored(solved: Path) -> None:
    before = evolve_json(solved, "exemplars", "list")
    first = before[0]
    shown = evolve_json(solved, "exemplars", "show", first["label"])
    assert (shown["payload"]["task"], shown["provenance"]["task_ids"]) == (first["task"], [first["learned from"]])
    assert first["shown"] > 0
    assert first["helpful"] == first["followed"] > 0
    evolve(solved, "exemplars", "retire", first["label"])
    assert [row["label"] for row in evolve_json(solved, "exemplars", "list")] == [row["label"] for row in before[1:]]
    assert first["label"] in evolve(solved, "exemplars", "list", "--all")
    evolve(solved, "playbook", "restore", first["label"])
    assert [row["label"] for row in evolve_json(solved, "exemplars", "list")] == [row["label"] for row in before]


def test_what_is_retired_is_not_proposed_again(solved: Path) -> None:
    label = evolve_json(solved, "exemplars", "list")[0]["label"]
    evolve(solved, "exemplars", "retire", label)
    count = len(evolve_json(solved, "exemplars", "list"))
    evolve(solved, "run", "--limit", "1")
    assert len(evolve_json(solved, "exemplars", "list")) == count


def test_they_travel_and_arrive_in_quarantine(solved: Path, tmp_path: Path) -> None:
    evolve(solved, "exemplars", "export", "solved.json")
    other = tmp_path / "other"
    other.mkdir()
    (other / "evolve.toml").write_text(SETTINGS)
    evolve(other, "exemplars", "import", str(solved / "solved.json"))
    assert evolve_json(other, "exemplars", "list") == []
    held = evolve_json(other, "exemplars", "list", "--all")
    assert {(row["status"], row["trust"]) for row in held} == {("candidate", "imported")}
    assert [row["text"] for row in held] == [row["text"] for row in evolve_json(solved, "exemplars", "list")]
    evolve(other, "playbook", "restore", held[0]["label"])
    assert len(evolve_json(other, "exemplars", "list")) == 1
    assert "no evolve-exemplars file" in complaint(other, "exemplars", "import", "evolve.toml", code=2)


def test_with_a_task_its_exemplar_is_forgotten_and_not_learned_again(solved: Path) -> None:
    first = evolve_json(solved, "exemplars", "list")[0]
    evolve(solved, "memory", "forget", "--task", first["learned from"], "--purge", "--yes")
    assert first["task"] not in evolve(solved, "exemplars", "list", "--all")
    assert first["task"].encode() not in (solved / ".evolve" / "evolve.db").read_bytes()
    assert evolve(solved, "memory", "doctor").strip() == "healthy"
    evolve(solved, "run", "--limit", "1")
    assert first["task"] not in {row["task"] for row in evolve_json(solved, "exemplars", "list", "--all")}


def test_a_difference_names_them_and_a_rollback_takes_them_back(solved: Path) -> None:
    snapshots = [row["snapshot"] for row in evolve_json(solved, "playbook", "log")]
    assert "exemplar-" in evolve(solved, "playbook", "diff", snapshots[0], snapshots[-1])
    evolve(solved, "playbook", "rollback", snapshots[0])
    assert evolve_json(solved, "exemplars", "list") == []


def test_pages_list_and_count_them_and_prove_the_prompt_they_stood_in(solved: Path) -> None:
    rows = evolve_json(solved, "exemplars", "list")
    config = load_config(solved / "evolve.toml")
    with opened(solved) as visitor:
        assert rows[0]["label"] in visitor.text("/exemplars")
        assert f"3 of {len(rows)}" in visitor.text("/prompt")
        found = visitor.text("/retrieval?q=What+is+the+margin+of+1+and+2%3F")
        assert "exemplar-" in found
        assert "0 of 1,024" not in found
    with open_store(config, read_only=True) as store:
        episodes = [each for each in store.trajectories() if each.injected]
        made = told(PageContext(config, store, key=""), episodes[-1])
    assert made.proved
    tasks = {row["label"]: row["task"] for row in rows}
    assert made.messages[1].content == tasks[episodes[-1].injected[0].label]
