"""Formats give back what they were given; hostile or broken files give one sentence."""

from __future__ import annotations

import contextlib
import json as stdlib_json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory.errors import BadInput
from memory.records import Status, Trust, UsageCounts
from playbooks.formats import ace, json, kayba, markdown
from playbooks.formats.detect import detect
from playbooks.formats.entry import Entry, entries, import_ops
from playbooks.kinds.bullet import FINANCE_SECTIONS, SECTIONS, Bullet

Make = Callable[..., Any]

SECTION = st.sampled_from([*SECTIONS, *FINANCE_SECTIONS]) | st.text(
    st.characters(codec="utf-8"), min_size=1, max_size=20
)
CONTENT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80) | st.lists(
    st.sampled_from(
        [
            "## OTHERS",
            "[shr-00001] helpful=9 harmful=0 :: x",
            "",
            "  ",
            "- **[vc-00001]** y",
            "plain",
            "helpful=1 harmful=2 :: z",
        ]
    ),
    min_size=1,
    max_size=6,
).map("\n".join)
COUNT = st.integers(0, 999_999)


@st.composite
def books(draw: st.DrawFn) -> list[Entry]:
    """Entries with unique labels, grouped by section as every format writes them."""
    drawn = draw(st.lists(st.tuples(SECTION, CONTENT, COUNT, COUNT), max_size=8))
    grouped: dict[str, list[Entry]] = {}
    for at, (section, content, helpful, harmful) in enumerate(drawn, start=1):
        bullet = Bullet(section=section, content=content)
        if bullet.content:
            label = f"{bullet.slug()}-{at:05d}"
            entry = Entry(bullet=bullet, label=label, usage=UsageCounts(helpful=helpful, harmful=harmful))
            grouped.setdefault(bullet.section, []).append(entry)
    return [entry for group in grouped.values() for entry in group]


def bare(book: list[Entry]) -> list[Entry]:
    return [entry.model_copy(update={"usage": UsageCounts()}) for entry in book]


BLANK_END = [Entry(bullet=Bullet(section="OTHERS", content="0\t\n0"), label="oth-00001")]
"""A blank at the end of a line that is not the last."""


@settings(deadline=None)
@given(books())
@example(BLANK_END)
def test_ace_with_counters_is_loss_free(book: list[Entry]) -> None:
    assert ace.load(ace.dump(book)) == book
    assert ace.dump(ace.load(ace.dump(book))) == ace.dump(book)


@settings(deadline=None)
@given(books())
def test_json_and_kayba_are_loss_free(book: list[Entry]) -> None:
    assert json.load(json.dump(book)) == book
    assert kayba.load(kayba.dump(book)) == book


@settings(deadline=None)
@given(books())
def test_markdown_keeps_sections_labels_and_content(book: list[Entry]) -> None:
    assert markdown.load(markdown.dump(book)) == bare(book)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_reading_any_text_never_crashes(text: str) -> None:
    for entry in [*ace.load(text), *markdown.load(text)]:
        assert entry.bullet.content
    for module in (json, kayba):
        with contextlib.suppress(BadInput):
            module.load(text)


def test_official_text_reads_as_it_stands() -> None:
    text = (
        "a line before any header\n"
        "## STRATEGIES & INSIGHTS\n\n"
        "[fin-00002] helpful=3 harmful=1 :: Check the filing year.\n"
        "## PROBLEM-SOLVING HEURISTICS\n"
        "[ph-00007] Work backwards.\n"
        "- no id here\n"
        "## VERIFICATION CHECKLIST\n"
    )
    got = [(e.bullet.section, e.label, e.bullet.content, e.usage.helpful, e.usage.harmful) for e in ace.load(text)]
    assert got == [
        ("OTHERS", "", "a line before any header", 0, 0),
        ("STRATEGIES & INSIGHTS", "fin-00002", "Check the filing year.", 3, 1),
        ("PROBLEM-SOLVING HEURISTICS", "ph-00007", "Work backwards.", 0, 0),
        ("PROBLEM-SOLVING HEURISTICS", "", "no id here", 0, 0),
    ]
    assert ace.load("(empty)\n") == [Entry(bullet=Bullet(section="OTHERS", content="(empty)"))]
    assert ace.load("") == ace.load("## A\n\n## B\n") == []
    assert ace.load("## A\r\n[x-1] a\r\n  b\r\n")[0].bullet.content == "a\nb"


def test_missing_and_repeated_labels_get_free_numbers() -> None:
    book = [
        Entry(bullet=Bullet(content=str(n)), label=label) for n, label in enumerate(("", "shr-00004", "shr-00004", "?"))
    ]
    assert [entry.label for entry in entries(book)] == ["shr-00005", "shr-00004", "shr-00006", "shr-00007"]


def test_every_kind_of_list_is_read_and_what_is_left_out_is_counted() -> None:
    text = "# Rules\n\nA word before.\n- one\n  goes on\n  - nested\n* star\n+ plus\n1. first\n2) second\n\nplain\n"
    contents = [entry.bullet.content for entry in markdown.load(text)]
    assert contents == ["one\ngoes on", "nested", "star", "plus", "first", "second"]
    assert markdown.left_out(text) == 2
    assert detect("1. first\n2. second\n") == "markdown"


@pytest.mark.parametrize("module", [ace, json, kayba, markdown])
def test_records_are_written_in_order_of_the_sections(module: ModuleType, bullet: Make) -> None:
    records = [
        bullet(1, "last", section="OTHERS"),
        bullet(2, "first", usage=UsageCounts(helpful=2, harmful=1, injected=9)),
    ]
    loaded = module.load(module.dump(records))
    assert sorted(entry.label for entry in loaded) == ["misc-00001", "shr-00002"]
    if module is not json:
        assert [entry.bullet.content for entry in loaded] == ["first", "last"]
    if module is not markdown:
        assert max(entry.usage.helpful for entry in loaded) == 2


def test_kayba_layouts_of_all_ages_are_read() -> None:
    old = {"bullets": {"a-00001": {"id": "a-00001", "section": "testing", "content": "x", "helpful": 1, "harmful": 0}}}
    new = {
        "schema_version": "2",
        "skills": {
            "context-00001": {
                "section": "context",
                "issue": "pages",
                "insight": "read all",
                "helpful_count": 2,
                "used_count": 5,
            },
            "context-00002": {"section": "context", "issue": "gone", "active": False},
            "harness-00003": {"section": "harness", "issue": "only an issue"},
        },
    }
    assert kayba.load(stdlib_json.dumps(old))[0].bullet.content == "x"
    first, second = kayba.load(stdlib_json.dumps(new))
    assert (first.bullet.content, first.bullet.when, first.usage.helpful, first.usage.injected) == (
        "read all",
        "pages",
        2,
        5,
    )
    assert (second.label, second.bullet.content) == ("harness-00003", "only an issue")
    assert kayba.load('{"skills": {}, "sections": {}}') == []


@pytest.mark.parametrize(
    ("module", "text", "says"),
    [
        (kayba, "{", "no skillbook"),
        (kayba, "[]", "expected an object with `skills`"),
        (kayba, '{"skills": {"a": 3}}', "skill 'a': expected an object, got 3"),
        (kayba, '{"skills": {"a": {"content": 7}}}', "skill 'a': content"),
        (json, "{", "no evolve-playbook file"),
        (json, '{"format": "evolve-playbook", "version": 9, "bullets": []}', "upgrade evolve"),
        (json, '{"format": "other", "version": 1, "bullets": []}', "got format 'other'"),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence(module: ModuleType, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        module.load(text)


def test_import_is_quarantined_idempotent_and_trusts_no_counters() -> None:
    book = ace.load("## poetry\n[po-00001] helpful=9 harmful=0 :: x y\n")
    (op,) = import_ops(book, "file.txt")
    assert (op.status, op.provenance.trust, op.usage) == (Status.CANDIDATE, Trust.IMPORTED, None)
    assert op.payload is not None
    assert op.payload["section"] == "OTHERS"
    assert op.provenance.source == "file.txt#po-00001"
    assert import_ops(book, "file.txt") == (op,)
    assert import_ops(book, "other.txt")[0].op_id != op.op_id
