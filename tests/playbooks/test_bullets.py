"""Bullets: sections are matched tolerantly, text is cleaned, slugs follow the section."""

from __future__ import annotations

import pytest

from memory.kinds import payload_class
from playbooks.kinds.bullet import FINANCE_SECTIONS, SECTIONS, Bullet, match_section, one_line, section_slug


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("strategies_and_hard_rules", "STRATEGIES AND HARD RULES"),
        ("Problem_Solving_Heuristics_and_Workflows", "PROBLEM-SOLVING HEURISTICS AND WORKFLOWS"),
        ("problem-solving heuristics and workflows:", "PROBLEM-SOLVING HEURISTICS AND WORKFLOWS"),
        ("## APIS TO USE FOR SPECIFIC INFORMATION", "APIs TO USE FOR SPECIFIC INFORMATION"),
        ("formulas_and_calculations", "FORMULAS & CALCULATIONS"),
        ("vc", "VERIFICATION CHECKLIST"),
        ("poetry", None),
        ("", None),
    ],
)
def test_a_section_is_recognised_however_it_is_spelt(said: str, meant: str | None) -> None:
    assert match_section(said) == meant


@pytest.mark.parametrize(("section", "slug"), [*SECTIONS.items(), *FINANCE_SECTIONS.items()])
def test_every_known_section_has_its_slug(section: str, slug: str) -> None:
    assert Bullet(section=section, content="x").slug() == slug


@pytest.mark.parametrize(
    ("section", "slug"), [("general", "gene"), ("one two three four five six", "ottff"), ("??", "misc")]
)
def test_an_unknown_section_gets_a_slug_from_its_words(section: str, slug: str) -> None:
    assert section_slug(section) == slug


def test_content_keeps_its_lines_and_loses_control_characters() -> None:
    assert Bullet(content=" a\r\nb\x00\u2028c\x1b[0m ").content == "a\nb\nc[0m"
    assert one_line("a \n\n  b\rc") == "a b c"


def test_the_kind_is_registered_and_embeds_the_query_that_taught_it() -> None:
    assert payload_class("bullet") is Bullet
    assert Bullet(content="rule", origin_query="pay Bob").key() == "rule\npay Bob"
    assert Bullet(content="rule").text() == "rule"
