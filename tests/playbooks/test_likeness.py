"""The records that read most like a text, however the records came to be what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.records import Record
from playbooks.kinds.bullet import Bullet, one_line
from playbooks.likeness import TrigramIndex, nearest
from playbooks.view import RecordView

Make = Callable[..., Any]
TEXTS = st.lists(st.tuples(st.integers(1, 9), st.text("ab .É", max_size=8)), max_size=8, unique_by=lambda pair: pair[0])


def trigrams(text: str) -> frozenset[str]:
    padded = f"  {one_line(text).lower()} "
    return frozenset(padded[at : at + 3] for at in range(len(padded) - 2))


def by_hand(content: str, records: Sequence[Record[Any]], k: int) -> list[Record[Any]]:
    """Return what comparing with each record gives."""
    wanted = trigrams(content)

    def likeness(record: Record[Any]) -> float:
        own = trigrams(record.payload.text())
        return 2 * len(wanted & own) / (len(wanted) + len(own))

    return sorted(records, key=lambda record: (-likeness(record), record.number))[:k]


@settings(deadline=None)
@given(states=st.lists(TEXTS, min_size=1, max_size=6), content=st.text("ab .É", max_size=8), k=st.integers(1, 9))
def test_what_became_of_records_is_compared_as_if_it_had_always_been_so(
    states: list[list[tuple[int, str]]], content: str, k: int
) -> None:
    index = TrigramIndex()
    for state in states:
        records = [_bullet(number, text) for number, text in state]
        assert list(index.become(records).nearest(content, k)) == by_hand(content, records, k)


def _bullet(number: int, text: str) -> Record[Any]:
    return Record(id=f"r{number}", kind="bullet", number=number, payload=Bullet(content=f"x{text}"))


def test_it_is_bounded_and_breaks_ties_by_number(bullet: Make) -> None:
    records = [bullet(number, "the same") for number in (9, 4, 7, 1, 3, 8, 2)]
    assert [each.number for each in TrigramIndex(records).nearest("the same")] == [1, 2, 3, 4, 7, 8]
    assert TrigramIndex().nearest("anything") == ()
    assert TrigramIndex(records[:1]).nearest("") == (records[0],)


def test_those_of_a_view_are_kept_for_the_next_one(bullet: Make) -> None:
    first = RecordView([bullet(1, "send mail first"), bullet(2, "cats")])
    assert [each.number for each in nearest("send mail", first, "bullet", 1)] == [1]
    later = RecordView([bullet(2, "send mail"), bullet(3, "cats")])
    later.kept = first.kept
    assert [each.number for each in nearest("send mail", later, "bullet", 1)] == [2]
    assert nearest("send mail", later, "note") == ()
