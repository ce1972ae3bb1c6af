"""What the pages show, and what their buttons do.

P1  every page answers, of an empty workspace too, and an empty one says what to do next
P2  an episode's prompt is the one that was sent, proved by the key of its first reply
P3  retire, restore and edit change the record through the journal; a stale edit is refused and says so
P4  a rollback makes the snapshot live again, and can itself be undone
P5  review: accept applies, reject closes, edit applies other words, defer keeps it waiting after the others
P6  lists come a screen at a time, filtered and in the order asked for
P7  unknown names and bad values are a clean 4xx with a sentence
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.xss import plant
from evolve.config.file import load_config
from evolve.episode.world_texts import WorldTexts, keep
from evolve.gates import review_queue
from evolve.inspector.pages import knowledge_page
from evolve.inspector.prompts import told
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op, Status
from tests.evolve.command import complaint, evolve_json, settings
from tests.evolve.inspector.conftest import Visitor, opened
from tests.evolve.skilled_office import teach

PATHS = [
    *("/", "/runs", "/playbook", "/notebook", "/skills", "/review", "/retrieval", "/policies", "/training"),
    *("/exemplars", "/prompt", "/snapshots", "/retrieval?q=pay+the+bill", "/playbook?status=all&q=mail&order=shown"),
]


@pytest.mark.parametrize("path", PATHS)
def test_every_page_answers(path: str, visitor: Visitor) -> None:
    assert "<h1>" in visitor.text(path)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/", "evolve run"),
        ("/runs", "evolve run"),
        ("/playbook", "evolve playbook add"),
        ("/playbook?status=all&q=mail", "evolve playbook add"),
        ("/notebook", "evolve run"),
        ("/exemplars", "evolve run"),
        ("/skills", "evolve run"),
        ("/review", "evolve run --review"),
        ("/retrieval?q=pay", "Nothing known fits"),
        ("/policies", "has no weights here to train"),
        ("/training", "evolve train plan"),
        ("/prompt", "Nothing is active or pinned yet"),
        ("/snapshots", "A run freezes"),
    ],
)
def test_an_empty_workspace_says_what_to_do(path: str, says: str, tmp_path: Path) -> None:
    folder = settings(tmp_path)
    open_store(load_config(folder / "evolve.toml"), owner=False).close()
    with opened(folder) as visitor:
        assert says in visitor.text(path)


def test_a_run_leads_to_its_episodes_records_and_verdicts(visitor: Visitor) -> None:
    run = visitor.first("/runs", "runs")
    episode = visitor.first(run, "episodes")
    assert "What was learned from it" in visitor.text(episode)
    record = visitor.first("/playbook", "records")
    assert visitor.first(record, "episodes").startswith("/episodes/")
    assert visitor.first(record, "runs") == run
    verdict = visitor.first(record, "verdicts")
    assert "accepted" in visitor.text(verdict)


def test_prompts_are_those_that_were_sent(visitor: Visitor) -> None:
    episodes = [each for each in visitor.desk.store.trajectories() if each.steps]
    assert any(each.injected for each in episodes)
    assert {told(visitor.desk, each).proved for each in episodes} == {True}
    changed = next(each for each in episodes if each.injected)
    other = changed.model_copy(update={"injected": changed.injected[:-1]})
    assert told(visitor.desk, other).proved is False


def test_a_record_is_retired_and_restored(visitor: Visitor) -> None:
    record = visitor.first("/playbook", "records")
    key = record.rpartition("/")[2]
    assert "Done." in visitor.does(f"{record}/retire")
    assert _status(visitor, key) is Status.RETIRED
    assert "Restore" in visitor.text(record)
    visitor.does(f"{record}/restore")
    assert _status(visitor, key) is Status.ACTIVE
    assert "retire" not in visitor.text(record).split("History")[0].lower().split("<form")[0]


def test_an_edit_is_a_version_and_a_stale_one_is_refused(visitor: Visitor) -> None:
    record = visitor.first("/playbook", "records")
    key = record.rpartition("/")[2]
    page = visitor.does(f"{record}/edit", text="always say <b>please</b>", version="1")
    assert "Done." in page
    assert "always say &lt;b&gt;please&lt;/b&gt;" in page
    assert "Version 1 to 2" in page
    assert "Refused" in visitor.does(f"{record}/edit", text="something else", version="1")
    found = visitor.desk.store.get(key)
    assert found is not None
    assert found.payload.content == "always say <b>please</b>"
    visitor.does(f"{record}/edit", 400, text=" ", version="2")


def test_a_rollback_makes_a_snapshot_live_again(visitor: Visitor) -> None:
    store, namespace = visitor.desk.store, visitor.desk.namespace
    before = store.snapshot(namespace)
    record = visitor.first("/playbook", "records")
    visitor.does(f"{record}/retire")
    assert "Removed (1)" in visitor.text(f"/diff?a={before.id}")
    page = visitor.does("/snapshots/rollback", snapshot=f"{before.id}@{before.position}")
    assert "What was live before is snapshot" in page
    assert store.snapshot(namespace).id == before.id
    undone = re.search(r"What was live before is snapshot ([0-9a-f]+)@", page)
    assert undone is not None
    visitor.does("/snapshots/rollback", snapshot=undone[1])
    assert _status(visitor, record.rpartition("/")[2]) is Status.RETIRED


def test_review_answers(visitor: Visitor) -> None:
    store, namespace = visitor.desk.store, visitor.desk.namespace
    texts = ("first rule", "second rule", "third rule", "fourth rule")
    ops = [DeltaOp(op=Op.ADD, payload={"content": text}) for text in texts]
    review_queue.submit(store, namespace, "", ops)
    seqs = [proposal.seq for proposal in review_queue.proposals(store, namespace)]
    page = visitor.text("/review")
    assert all(text in page for text in texts)
    visitor.does(f"/review/{seqs[0]}/defer")
    assert [p.seq for p in review_queue.proposals(store, namespace)] == [*seqs[1:], seqs[0]]
    assert "is rejected" in visitor.does(f"/review/{seqs[1]}/reject", why="no")
    assert "Done." in visitor.does(f"/review/{seqs[2]}/edit", text="third rule, better")
    assert "Done." in visitor.does(f"/review/{seqs[3]}/accept")
    known = {record.payload.text() for record in store.view(namespace).records("bullet")}
    assert {"third rule, better", "fourth rule"} <= known
    assert not {"first rule", "second rule", "third rule"} & known
    visitor.does(f"/review/{seqs[3]}/accept", 400)
    visitor.does(f"/review/{seqs[0]}/nonsense", 400)


def test_a_skill_may_call_what_runs_were_told_of_the_world(learned: Path) -> None:
    source = 'def first_page(query: str) -> str:\n    """Return the first page."""\n    return search(query)[0]\n'
    config = load_config(learned / "evolve.toml")
    with open_store(config) as store:
        path = f"/records/{teach(store, source).id}"
    with opened(learned) as visitor:
        assert "is neither a parameter" in visitor.text(path)
    with open_store(config) as store:
        keep(store, "run-of-others", WorldTexts(text="search(query) returns pages.", profile="full"))
    with opened(learned) as visitor:
        assert "is neither a parameter" not in visitor.text(path)


def test_a_skill_and_a_note_are_edited_before_they_are_accepted(visitor: Visitor) -> None:
    store, namespace = visitor.desk.store, visitor.desk.namespace
    source = 'def twice(x: int) -> int:\n    """Return x twice."""\n    return 2 * x\n'
    note = {
        "subject": "dates",
        "corrected_examples": ["3/4 was sent, 2026-03-04 was asked"],
        "correct_approach": "say the year first",
        "mistake_summary": "the order of day and month was guessed",
        "strategy": "look at a date that is there",
        "anti_patterns": ["names of months"],
    }
    ops = [
        DeltaOp(op=Op.ADD, kind="skill", payload={"source": source}),
        DeltaOp(op=Op.ADD, kind="note", payload=note),
    ]
    review_queue.submit(store, namespace, "", ops)
    skill, dated = (proposal.seq for proposal in review_queue.proposals(store, namespace))
    assert "Done." in visitor.does(f"/review/{skill}/edit", text=source.replace("twice.", "two times."))
    assert "expected the fields of the note to change as a JSON object" in visitor.does(
        f"/review/{dated}/edit", 400, text="no JSON"
    )
    assert "Done." in visitor.does(f"/review/{dated}/edit", text=json.dumps(note | {"subject": "times"}))
    known = {record.kind: record for record in store.view(namespace).records() if record.kind != "bullet"}
    assert "two times." in known["skill"].payload.source
    assert known["note"].payload.subject == "times"


def test_a_skill_in_use_is_edited_as_by_the_command_and_a_note_as_its_fields(visitor: Visitor) -> None:
    store, namespace = visitor.desk.store, visitor.desk.namespace
    twice = 'def twice(x: int) -> int:\n    """Return x twice."""\n    return 2 * x\n'
    again = twice.replace("twice(", "again(")
    note = {"subject": "dates", "corrected_examples": ["3/4 was sent, 2026-03-04 was asked"]}
    note |= {"correct_approach": "say the year first", "mistake_summary": "day and month were mixed up"}
    note |= {"strategy": "look at a date that is there", "anti_patterns": ["names of months"]}
    given = (("skill", {"source": twice}), ("skill", {"source": again}), ("note", note))
    ops = [DeltaOp(op=Op.ADD, kind=kind, payload=payload, status=Status.ACTIVE) for kind, payload in given]
    first, second, third = (each.record_id for each in store.commit(namespace, ops, actor="test").results)
    calling = again.replace("2 * x", "twice(x)")
    assert "Done." in visitor.does(f"/records/{second}/edit", text=calling, version="1")
    assert store.reader.load([second or ""])[0].payload.requires == ("twice",)
    renamed = twice.replace("twice(", "double(")
    assert "which again call" in visitor.does(f"/records/{first}/edit", 400, text=renamed, version="1")
    assert "New fields as JSON" in visitor.text(f"/records/{third}")
    assert "Done." in visitor.does(f"/records/{third}/edit", text='{"subject": "times"}', version="1")
    assert store.reader.load([third or ""])[0].payload.subject == "times"


def test_lists_come_a_screen_at_a_time(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [DeltaOp(op=Op.ADD, payload={"content": f"zebra number {at}"}) for at in range(7)]
    visitor.desk.store.commit(visitor.desk.namespace, ops, actor="test")
    monkeypatch.setattr(knowledge_page, "ROWS", 3)
    first = visitor.text("/playbook?q=zebra&order=oldest")
    assert "1 to 3 of 7" in first
    assert [f"zebra number {at}" in first for at in range(7)] == [True] * 3 + [False] * 4
    last = visitor.text("/playbook?q=zebra&order=oldest&page=3")
    assert "zebra number 6" in last
    assert 'rel="next"' not in last
    assert "Nothing fits" in visitor.text("/playbook?q=nosuchword")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nosuch", 404),
        ("/runs/nosuch", 404),
        ("/episodes/nosuch", 404),
        ("/records/nosuch", 404),
        ("/verdicts/999999", 404),
        ("/verdicts/x", 422),
        ("/verdicts/99999999999999999999999", 422),
        ("/training/nosuch", 404),
        ("/training/..%2f..%2fetc", 404),
        ("/diff?a=nosuch", 404),
        ("/diff", 422),
        ("/playbook?page=0", 422),
        ("/playbook?status=nosuch", 400),
        ("/playbook?order=nosuch", 422),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
        ("/static/nosuch.js", 404),
    ],
)
def test_what_is_not_there_is_a_clean_4xx(path: str, status: int, visitor: Visitor) -> None:
    page = visitor.text(path, status)
    assert "Traceback" not in page
    assert '<p class="lead">' in page


def _status(visitor: Visitor, key: str) -> Status:
    found = visitor.desk.store.get(key)
    assert found is not None
    return found.status


def test_the_pages_are_written_as_one_file(learned: Path, tmp_path: Path) -> None:
    file = tmp_path / "learned.html"
    done = evolve_json(learned, "export", "html", str(file))
    page = file.read_text()
    assert done["pages"] > 20
    assert done["left_out"] == ""
    named = set(re.findall(r' id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= named
    explained = set(re.findall(r'<button[^>]* popovertarget="([^"]+)"', page))
    assert explained
    assert explained <= named
    assert not re.findall(r'\b(?:src|href|action)="(?!#|data:)[^"]*"', page)
    assert "<form" not in page
    assert 'name="csrf"' not in page
    assert "name an archive" in complaint(learned, "export", code=2)


def test_a_file_holds_planted_text_as_text(tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / "evolve.toml").write_text('[memory]\nindex = "exact"\n')
    evolve_json(tmp_path, "export", "html", str(tmp_path / "planted.html"))
    page = (tmp_path / "planted.html").read_text().split("<main>")[1].split("</main>")[0]
    assert "&lt;script&gt;fired()" in page
    assert "<script" not in page
    assert not re.search(r"<(iframe|object|base|meta|video|marquee|style)\b", page)
