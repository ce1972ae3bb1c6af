"""`evolve skills import` and `export`: what comes in is quarantined, what leaves is in use, both say what they did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evolve.config.file import load_config
from evolve.gates.gate_events import VERDICT
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Event, Op, Record, Status, Trust, Verdict
from tests.evolve.command import complaint, evolve, evolve_json, settings
from tests.postgres import workspace_address

SOURCE = 'def pay_bill(amount: float) -> float:\n    """Pay a bill."""\n    return amount\n'
HEAD = "---\nname: {name}\ndescription: Pays. Use for bills\n---\n"
LONG = " ".join(["word"] * 90) + "."
BANK = {
    "general_skills": [{"skill_id": "g1", "title": "Look", "principle": "List first.", "when_to_apply": "Always"}],
    "task_specific_skills": {"pay": [{"skill_id": "s1", "title": "Pay", "principle": "Pay once."}]},
    "common_mistakes": [
        {"mistake_id": "m1", "description": "Paid twice.", "why_it_happens": "No look.", "how_to_avoid": "List bills."},
        {"mistake_id": "m2", "description": LONG, "why_it_happens": LONG, "how_to_avoid": LONG},
        {"mistake_id": "m3", "description": "Nothing else."},
        {"mistake_id": "m4", "description": "Paid late.", "why_it_happens": "No look.", "how_to_avoid": "N/A"},
    ],
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a folder with an empty workspace."""
    folder = settings(tmp_path / "w")
    with open_store(load_config(folder / "evolve.toml"), owner=False):
        return folder


def records(folder: Path) -> list[Record[Any]]:
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        return list(store.records("default"))


def add(folder: Path, *sources: str) -> None:
    """Put skills into use."""
    with open_store(load_config(folder / "evolve.toml"), owner=False) as store:
        ops = [DeltaOp(op=Op.ADD, kind="skill", payload={"source": s, "origin": "pay Ann"}) for s in sources]
        assert not store.commit("default", ops, actor="test").refused


def others(folder: Path) -> Path:
    """Write Agent Skills of others: one text, one function, one folder that cannot be used."""
    for name, body in {"text": "Do it.", "code": "Call it.", "bad": ""}.items():
        (folder / name / "scripts").mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(HEAD.format(name=name) + body)
    (folder / "code" / "scripts" / "pay.py").write_text(SOURCE)
    return folder


def test_what_comes_in_is_quarantined_and_in_no_prompt(workspace: Path, tmp_path: Path) -> None:
    said = evolve_json(workspace, "skills", "import", str(others(tmp_path / "theirs")), code=1)
    assert (said["skills"], said["bullets"], said["notes"], said["known_before"]) == (1, 1, 0, 0)
    assert said["refused"] == ["bad: it has neither instructions nor a function"]
    stored = records(workspace)
    assert {(r.kind, r.status, r.provenance.trust) for r in stored} == {
        ("skill", Status.CANDIDATE, Trust.IMPORTED),
        ("bullet", Status.CANDIDATE, Trust.IMPORTED),
    }
    assert {r.provenance.source for r in stored} == {"skills:theirs#pay_bill", "skills:theirs#text"}
    assert len(evolve_json(workspace, "playbook", "list", "--quarantined")) == 2
    assert evolve_json(workspace, "playbook", "list") == []
    assert "no skill is in use" in complaint(workspace, "skills", "export", "--out", str(tmp_path / "o"), code=1)


def test_the_same_again_changes_nothing(workspace: Path, tmp_path: Path) -> None:
    theirs = others(tmp_path / "theirs")
    evolve(workspace, "skills", "import", str(theirs), code=1)
    before = records(workspace)
    assert evolve_json(workspace, "skills", "import", str(theirs), code=1)["known_before"] == 2
    assert records(workspace) == before


def test_a_skillbank_becomes_bullets_and_notes_and_says_what_was_cut(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "bank.json").write_text(json.dumps(BANK))
    said = evolve_json(workspace, "skills", "import", str(tmp_path / "bank.json"), code=1)
    assert (said["skills"], said["bullets"], said["notes"]) == (0, 2, 2)
    assert said["refused"] == [
        "common_mistakes[2]: it has no `why_it_happens`; write one",
        "m4: correct_approach: must not be empty",
    ]
    assert "m2: correct_approach cut from 90 to 60 words" in said["warnings"]
    assert not any(text.startswith("m1") for text in said["warnings"])
    note = next(r.payload for r in records(workspace) if r.kind == "note")
    assert (note.mistake_summary, note.correct_approach) == ("Paid twice.", "List bills.")
    assert note.failure_ids == ()


def test_voyager_is_told_by_its_index(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    listed = {"mine": {"code": "async function mine(bot) {}"}, "pay": {"code": SOURCE, "description": "Pays."}}
    (tmp_path / "v" / "skills.json").write_text(json.dumps(listed))
    said = evolve_json(workspace, "skills", "import", str(tmp_path / "v"), code=1)
    assert (said["skills"], len(said["refused"])) == (1, 1)


def test_what_is_in_use_leaves_and_comes_back_elsewhere(workspace: Path, tmp_path: Path) -> None:
    add(workspace, SOURCE, SOURCE.replace("pay_bill", "pay_all"))
    text = evolve(workspace, "skills", "export", "pay_bill", "--out", str(tmp_path / "out"))
    assert text == f"wrote 1 skills to {tmp_path / 'out'}\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["pay-bill"]
    said = evolve_json(workspace, "skills", "export", "--out", str(tmp_path / "both"))
    assert said["skills"] == ["pay_bill", "pay_all"]
    new = settings(tmp_path / "new")
    assert evolve_json(new, "skills", "import", str(tmp_path / "both"))["skills"] == 2
    assert {r.payload for r in records(new)} == {r.payload for r in records(workspace)}


@pytest.mark.parametrize("on_server", [False, True])
def test_skills_leave_where_a_gate_let_nothing_in(workspace: Path, tmp_path: Path, on_server: bool) -> None:
    file = workspace / "evolve.toml"
    place = f'[memory]\ndatabase = "{workspace_address()}"\n' if on_server else "[memory]\n"
    file.write_text(file.read_text().replace("[memory]\n", place))
    add(workspace, SOURCE)
    said = Verdict(gate="utility", accepted=(), rejected={"op-1": "it did not help"}, evidence={"pairs": 4})
    with open_store(load_config(file), owner=False) as store:
        store.append(Event(type=VERDICT, namespace="default", data=said.model_dump(mode="json")))
    assert evolve_json(workspace, "skills", "export", "--out", str(tmp_path / "out"))["skills"] == ["pay_bill"]


def test_the_version_before_is_named_by_its_hash(workspace: Path, tmp_path: Path) -> None:
    add(workspace, SOURCE)
    (old,) = records(workspace)
    with open_store(load_config(workspace / "evolve.toml"), owner=False) as store:
        op = DeltaOp(
            op=Op.EDIT, kind="skill", target_id=old.id, payload={"source": SOURCE + "# more\n"}, base_version=1
        )
        assert not store.commit("default", [op], actor="test").refused
    evolve(workspace, "skills", "export", "--out", str(tmp_path))
    head = (tmp_path / "pay-bill" / "SKILL.md").read_text()
    assert 'evolve_version: "2"' in head
    assert f'evolve_parent_hash: "{old.content_hash}"' in head


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("skills import nosuch", 1, "no file or folder 'nosuch'"),
        ("skills import evolve.toml", 2, "expected one of agent-skills, skillbank, voyager"),
        ("skills import . ", 2, "no SKILL.md"),
        ("skills import evolve.toml --format voyager", 2, "is no folder"),
        ("skills export nosuch --out o", 1, "no skill 'nosuch' in use"),
    ],
)
def test_wrong_paths_and_names_are_one_sentence(line: str, code: int, said: str, workspace: Path) -> None:
    assert said in complaint(workspace, *line.split(), code=code)
