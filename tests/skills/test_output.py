"""What code printed is kept up to a limit, and a note tells how much is missing."""

from __future__ import annotations

import pytest

from skills.sandbox.output import Printed, cut, describe


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], ""),
        (["abc"], "abc"),
        (["abc", "de"], "abcde"),
        (["abcdef"], "abcde\n[output cut: 1 more characters]"),
        (["abc", "defg", "hi"], "abcde\n[output cut: 4 more characters]"),
        (["abcde", "", "f"], "abcde\n[output cut: 1 more characters]"),
    ],
)
def test_what_fits_is_kept_and_the_rest_is_counted(parts: list[str], text: str) -> None:
    printed = Printed(5)
    for part in parts:
        printed.write(part)
    assert printed.text() == text


@pytest.mark.parametrize(("text", "said"), [("", ""), ("abc", "abc"), ("abcd", "abc\n[output cut: 1 more characters]")])
def test_a_text_is_cut_behind_the_limit(text: str, said: str) -> None:
    assert cut(text, 3) == said


def test_an_error_is_described_by_its_type_and_what_it_says() -> None:
    assert describe(ValueError("too big")) == "ValueError: too big"
    assert describe(ValueError()) == "ValueError"
