"""A reference means a shown record or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from playbooks.citations import cited, cites, resolve, uncited

Make = Callable[..., Any]


@pytest.mark.parametrize(
    "said",
    [
        "shr-00012",
        "[shr-00012]",
        "SHR-00012",
        '"[shr-00012]"',
        "shr-12",
        "12",
        "[12]",
        " 12. ".strip(". "),
        "record-12",
    ],
)
def test_a_shown_record_is_found_however_it_is_cited(said: str, bullet: Make) -> None:
    assert resolve(said, [bullet(3, "x"), bullet(12, "y")]).number == 12


@pytest.mark.parametrize("said", ["", "[]", "13", "api-00012", "shr-00013", "twelve", "12, 3", "-12-"])
def test_anything_else_means_nothing(said: str, bullet: Make) -> None:
    assert resolve(said, [bullet(3, "x"), bullet(12, "y")]) is None


@pytest.mark.parametrize("section", ["PROBLEM-SOLVING HEURISTICS", "VERIFICATION CHECKLIST", "ph"])
def test_short_slugs_are_found(section: str, bullet: Make) -> None:
    record = bullet(7, "x", section=section)
    assert resolve(f"[{record.label}]", [record]) is record


def test_citations_in_an_answer_are_collected_in_order(bullet: Make) -> None:
    shown = [bullet(3, "x"), bullet(12, "y"), bullet(14, "z")]
    text = "As [12] says, and [shr-00003, 99] too; items[0] and [12] again."
    assert [record.number for record in cited(text, shown)] == [12, 3]


@pytest.mark.parametrize(
    ("text", "rests"),
    [
        ("# to must be the contact's id [7]", True),
        ("# a guess [?]", True),
        ("as [shr-00012, 3] says", True),
        ("print(rows[0])", False),
        ("m = find()[1]; c['id']", False),
        ("[see below]", False),
    ],
)
def test_a_text_cites_when_it_says_what_it_rests_on(text: str, rests: bool) -> None:
    assert cites(text) is rests


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("name = line.split(',')[1]\npay(ids=[2, 3])", []),
        ("```python\nname = line.split(',')[1]\npay(ids=[2, 3])\n```", []),
        ("As [1] says:\n```python\npay(ids=[2])\n```\nand so [3].", [1, 3]),
        ("# to is the id [1]\npay(ids=[2, 3])  # as [3] says", [1, 3]),
        ("pay(ids=[2])  # [shr-00001]\nprint('[shr-00003]')", [1, 3]),
        ("pay(memo='it\\'s #7', ids=[2, 3])  # [1], don't [9]", [1]),
        ("[shr-00002]", [2]),
    ],
)
def test_code_cites_in_its_comments_and_by_labels_alone(said: str, numbers: list[int], bullet: Make) -> None:
    shown = [bullet(number, f"rule {number}") for number in (1, 2, 3)]
    assert [record.number for record in cited(said, shown)] == numbers


@pytest.mark.parametrize("form", ["{}", "```python\n{}\n```"])
def test_a_citation_that_is_taken_back_leaves_the_code_as_it_is(form: str, bullet: Make) -> None:
    said = form.format("# to is the id [1], see [9]\npay(ids=[1], to=rows[1])")
    assert uncited(said, [bullet(1, "x")]) == said.replace("id [1]", "id [?]")
