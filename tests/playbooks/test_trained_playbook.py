"""A playbook that a language model grew to 318 bullets: imported, de-duplicated, cut to 10k tokens, searched.

The file is not ours and not in the repository: the folder named by `EVOLVE_TEST_DATA` holds it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from memory.records import DeltaOp, Op, RecallQuery, Status, Trust
from memory.store import Store
from playbooks.formats import ace
from playbooks.formats.entry import import_ops
from playbooks.refine import enforce_budget, merge_duplicates
from playbooks.render import render
from playbooks.view import bullets
from policies.tokens import estimate_tokens

FILE = "appworld_offline_trained_no_gt_playbook.txt"
BUDGET = 10_000


@pytest.fixture(scope="module")
def text() -> str:
    folder = os.environ.get("EVOLVE_TEST_DATA")
    if not folder:
        pytest.skip("EVOLVE_TEST_DATA names no folder with the trained playbook")
    path = Path(folder) / FILE
    if not path.is_file():
        pytest.skip(f"EVOLVE_TEST_DATA has no {FILE}")
    return path.read_text(encoding="utf-8")


@pytest.fixture
def imported(text: str, store: Store) -> Store:
    """The playbook, imported and accepted by an operator."""
    results = store.commit("default", import_ops(ace.load(text), FILE), actor="import").applied
    accept = [DeltaOp(op=Op.RESTORE, target_id=r.record_id, status=Status.PROVISIONAL) for r in results]
    store.commit("default", accept, actor="operator")
    return store


def closest(texts: list[str]) -> float:
    vectors = TfidfVectorizer().fit_transform(texts)
    cosine = (vectors @ vectors.T).toarray()
    np.fill_diagonal(cosine, 0.0)
    return float(cosine.max())


def test_it_survives_the_round_trip(text: str) -> None:
    entries = ace.load(text)
    assert len(entries) == 318
    bare = ace.dump(entries).replace("] helpful=0 harmful=0 ::", "]")
    assert [line for line in bare.split("\n") if line.startswith("[")] == [
        line for line in text.split("\n") if line.startswith("[")
    ]
    assert ace.load(ace.dump(entries)) == entries


def test_an_import_is_quarantined(text: str, store: Store) -> None:
    ops = import_ops(ace.load(text), FILE)
    commit = store.commit("default", ops, actor="import")
    assert len(commit.applied) == 318
    assert bullets(store.view("default")) == ()
    records = [store.get(result.record_id or "") for result in commit.applied]
    assert {record.status for record in records if record} == {Status.CANDIDATE}
    assert {record.provenance.trust for record in records if record} == {Trust.IMPORTED}
    assert store.recall(RecallQuery(text="venmo payment request roommates")) == ()


def test_it_is_deduplicated_and_cut_and_nothing_is_lost(imported: Store) -> None:
    before = bullets(imported.view("default"))
    assert len(before) == 318
    assert closest([record.payload.content for record in before]) > 0.99

    merges = merge_duplicates(before)
    assert not imported.commit("default", merges, actor="refine").refused
    unique = bullets(imported.view("default"))
    assert closest([record.payload.content for record in unique]) < 0.9
    assert len(before) - sum(len(op.parent_ids) - 1 for op in merges) == len(unique) < 300

    cuts = enforce_budget(unique, BUDGET, estimate_tokens)
    assert not imported.commit("default", cuts, actor="refine").refused
    kept = bullets(imported.view("default"))
    assert 0.9 * BUDGET < estimate_tokens(render(kept, "full")) <= BUDGET

    for record in before:
        now = imported.get(record.id)
        assert now is not None
        assert now.payload == record.payload
        assert imported.history(record.id)
    assert {event.type for event in imported.events()} >= {"knowledge.add", "knowledge.merge", "knowledge.remove"}


def test_what_was_cut_comes_back(imported: Store) -> None:
    cuts = enforce_budget(bullets(imported.view("default")), BUDGET, estimate_tokens)
    imported.commit("default", cuts, actor="refine")
    back = [DeltaOp(op=Op.RESTORE, target_id=op.target_id) for op in cuts]
    assert not imported.commit("default", back, actor="operator").refused
    assert len(bullets(imported.view("default"))) == 318


def test_it_is_searchable(imported: Store) -> None:
    imported.commit("default", merge_duplicates(bullets(imported.view("default"))), actor="refine")
    found = imported.recall(RecallQuery(text="alarm clock time 24-hour rollover", k=5, token_budget=1500))
    assert any("alarm" in hit.record.payload.content.lower() for hit in found[:2])
    assert sum(hit.tokens for hit in found) <= 1500
