"""Pages say what they mean: findings A8 of the audit, asked without a browser.

C1  words of ours are explained where they stand, from one glossary, and no page names one that is not there
C2  notes are shown part by part; what a gate said of a generation stands beside it, and one it refused is not offered
C3  a curve begins where its first window is full, and a short stream is counted instead
C4  times are shown, never as 0.00 s, and an episode's model calls and steps are drawn one below the other
C5  review: the first change has the focus, several are answered at once, after a question
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from benchmarks.random_adapters import random_adapter
from evolve.config.file import load_config
from evolve.gates import review_queue
from evolve.generations.workspace_registry import model_directory, open_registry
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op
from tests.evolve.command import evolve, evolve_json, settings
from tests.evolve.inspector.conftest import Visitor, opened
from tests.evolve.inspector.test_generations import SETTINGS

NOTE = {
    "subject": "dates",
    "corrected_examples": ["3/4 was sent, 2026-03-04 was asked"],
    "correct_approach": "say the year first",
    "mistake_summary": "the order of day and month was guessed",
    "strategy": "look at a date that is there",
    "anti_patterns": ["names of months"],
}


def words(page: str) -> dict[str, str]:
    """Return the words of a page that are explained, with their explanations."""
    meanings = {
        key: unescape(text) for key, text in re.findall(r'id="(word-\w+)" popover[^>]*><b>[^<]*</b> ([^<]+)<', page)
    }
    terms = re.findall(r'<button type="button" class="term" popovertarget="(word-\w+)"[^>]*>([^<]+)</button>', page)
    return {text: meanings[key] for key, text in terms}


def charts(page: str) -> list[dict[str, Any]]:
    """Return the charts of a page."""
    return [json.loads(unescape(found)) for found in re.findall(r'data-chart="([^"]*)"', page)]


def test_words_of_ours_are_explained(visitor: Visitor) -> None:
    found = words(visitor.text("/retrieval?q=send+a+mail"))
    assert "Reciprocal rank fusion" in found["rrf"]
    assert "BM25" in found["lexical"]
    record = words(visitor.text(visitor.first("/playbook", "records")))
    assert any("shown to the agent" in text or "measured that it helps" in text for text in record.values())
    assert "Utility" in words(visitor.text("/playbook"))


def test_a_note_is_shown_part_by_part(visitor: Visitor) -> None:
    op = DeltaOp(op=Op.ADD, kind="note", payload=NOTE)
    visitor.desk.store.commit(visitor.desk.namespace, [op], actor="test")
    page = visitor.text("/notebook")
    assert "<dt>Instead</dt><dd>say the year first</dd>" in page
    assert "guessed Instead" not in " ".join(page.split())


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    """Return a workspace with a generation that its gate refused."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "evolve.toml").write_text(SETTINGS)
    config = load_config(folder / "evolve.toml")
    open_store(config, owner=False).close()
    adapter = random_adapter(model_directory(config.policy), tmp_path / "adapter", 1, scale=1e-3)
    figures = {"accepted": False, "reason": "5 tasks lost, 0 gained of 16", "with playbook, points": -31.25}
    with open_registry(config.policy, config.workspace) as registry:
        registry.publish(adapter, base=registry.base)
        registry.measure("policy-v1", {f"gate.{name}": value for name, value in figures.items()})
    return folder


def test_a_refused_generation_is_red_and_not_offered(refused: Path) -> None:
    with opened(refused) as visitor:
        page = visitor.text("/policies")
        assert re.search(r'class="mark bad"[^>]*>\s*gate: refused', page)
        assert "5 tasks lost, 0 gained of 16" in page
        assert "<button>Promote</button>" not in page
        assert "gate.accepted" not in page
        assert ">-31.2<" in page
        config = visitor.desk.config
        with open_registry(config.policy, config.workspace) as registry:
            registry.measure("policy-v1", {"gate.accepted": True, "gate.reason": "6 tasks gained"})
        page = visitor.text("/policies")
        assert re.search(r'class="mark good"[^>]*>\s*gate: accepted', page)
        assert "<button>Promote</button>" in page


def test_a_curve_begins_with_its_first_full_window(visitor: Visitor) -> None:
    (drawn,) = charts(visitor.text(visitor.first("/runs", "runs")))
    means = drawn["series"][0]["y"]
    assert means[:11] == [None] * 11
    assert None not in means[11:]


def test_a_short_stream_is_counted_not_averaged(tmp_path: Path) -> None:
    folder = settings(tmp_path / "short", tasks=4)
    evolve(folder, "run")
    report = evolve_json(folder, "report")
    with opened(folder) as visitor:
        (drawn,) = charts(visitor.text(visitor.first("/runs", "runs")))
    assert drawn["unit"] == ""
    assert drawn["series"][0]["y"][-1] == sum(report["curve"])
    assert "solved so far, of 4" in evolve(folder, "report")


def test_times_are_shown(visitor: Visitor) -> None:
    page = visitor.text(visitor.first(visitor.first("/runs", "runs"), "episodes"))
    assert "0.00 s" not in page
    assert re.search(r"model [\d.]+ m?s", page)
    assert page.count('<rect class="model"') == page.count('<rect class="world"') > 1
    (episode, *_) = visitor.desk.store.trajectories()
    assert all(0 < step.reply_seconds < episode.seconds for step in episode.steps if step.usage.calls)


def waiting(visitor: Visitor, *texts: str) -> list[str]:
    """Let changes wait for review; return their numbers."""
    ops = [DeltaOp(op=Op.ADD, payload={"content": text}) for text in texts]
    store, namespace = visitor.desk.store, visitor.desk.namespace
    review_queue.submit(store, namespace, "", ops)
    return [str(proposal.seq) for proposal in review_queue.proposals(store, namespace)]


def post(visitor: Visitor, path: str, status: int = 200, **fields: str | list[str]) -> str:
    """Send a form in which a field may stand several times."""
    return visitor.does(path, status, **fields)  # pyright: ignore[reportArgumentType]


def test_the_first_change_has_the_focus(visitor: Visitor) -> None:
    waiting(visitor, "first rule", "second rule")
    cards = re.findall(r"<article[^>]*>", visitor.text("/review"))
    assert ["autofocus" in card for card in cards] == [True, False]


def test_several_changes_are_answered_at_once_after_a_question(visitor: Visitor) -> None:
    store, namespace = visitor.desk.store, visitor.desk.namespace
    names = waiting(visitor, "first rule", "second rule", "third rule", "fourth rule")
    asked = post(visitor, "/review", answer="accept selected", picked=names[:2], shown=names)
    assert "Accept 2 changes?" in asked
    assert len(review_queue.proposals(store, namespace)) == 4
    assert "2 changes are accepted" in post(visitor, "/review/several/accept", picked=names[:2])
    assert "Reject 2 changes?" in post(visitor, "/review", answer="reject shown", shown=names[2:])
    done = post(visitor, "/review/several/reject", picked=names[1:])
    assert "2 changes are rejected" in done
    assert f"Change {names[1]}" in done
    known = {record.payload.text() for record in store.view(namespace).records("bullet")}
    assert {"first rule", "second rule"} <= known
    assert not {"third rule", "fourth rule"} & known
    assert review_queue.proposals(store, namespace) == ()
    post(visitor, "/review", 400, answer="accept selected", shown=names)
    post(visitor, "/review", 400, answer="burn selected", picked=names)
    post(visitor, "/review/several/burn", 400, picked=names)


def test_an_episode_is_drawn_as_it_was_traced(tmp_path: Path) -> None:
    folder = settings(tmp_path / "traced", tasks=2, more="[telemetry]\nenabled = true\n")
    evolve(folder, "run")
    with opened(folder) as visitor:
        (episode, *_) = visitor.desk.store.trajectories()
        page = visitor.text(f"/episodes/{episode.id}")
    assert "From the trace of this episode." in page
    assert page.count('<rect class="model"') == page.count('<rect class="world"') == len(episode.steps)
    starts = [int(at) for at in re.findall(r'<rect class="\w+" x="(\d+)"', page)]
    assert starts == sorted(starts)
    assert [f'href="#step-{step.index}"' in page for step in episode.steps] == [True] * len(episode.steps)


def test_the_glossary_of_the_documentation_says_what_the_page_says(visitor: Visitor, root: Path) -> None:
    written = dict(re.findall(r"^- \*\*(.+?)\*\*: (.+)$", (root / "docs" / "glossary.md").read_text(), re.MULTILINE))
    assert 20 <= len(written) <= 30
    found = {word.lower(): text for page in ("/", "/playbook") for word, text in words(visitor.text(page)).items()}
    both = found.keys() & written.keys()
    assert {"status", "utility"} <= both
    assert {word: found[word] for word in both} == {word: written[word] for word in both}
