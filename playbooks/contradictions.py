"""Rules that exclude each other: equal but for one value, or one forbids what the other asks for. No model is asked.

Two rules are about the same thing when they say the same around the difference and their cues agree; the difference is
a value when it stands where a rule prescribes (`must be cents | dollars`), not where it names its subject. What two
neighbours by embedding say beyond that may be a contradiction too, or not: those are only reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from memory.evidence import Evidence
from memory.protocols import Embedder, KnowledgeView
from memory.records import Frozen, Payload, Record, Trust
from playbooks.similarity import NEGATIONS, SHORT_WORDS, TAIL, contradicts, exact_key, opposes, values
from playbooks.texts import TextIndex, terms, texts_of

NEAR = 0.8
"""Cosine from which two texts that differ in a value are reported as a possible contradiction."""

_PIVOTS = frozenset(
    {"must", "should", "be", "is", "are", "use", "only", "needs", "wants", "expects", "accepts", "takes", "means"}
)
_SMALL = frozenset({"the", "a", "an", "in", "as", "to", "its", "their"})
_EMPHASIS = frozenset({"always", "do", "please"})
_SUBJECT = frozenset({"for", "of", "on", "when", "if", "before", "after"})
"""Words after which a rule says what it is about."""
_STEPS = frozenset({"before", "after", "first", "then"})
_COMMON = 3
"""Words that two texts share around their difference, at least."""
_SPAN = 2
"""Words that a differing value has, at most."""

Frame = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""How a text begins, and what stands before and after a part that is left out."""
Evidences = Callable[[Sequence[Record[Any]]], Mapping[str, Evidence]]
"""Gives the evidence of records by id."""


class Contradiction(Frozen):
    """Two records that cannot both be right."""

    first: str
    """Id of the older record."""
    second: str
    difference: str
    """What each says in place of the other, e.g. `cents | dollars`."""
    certain: bool = True
    """False: near in meaning and different in a value; a person has to look."""


def contradictions(records: Sequence[Record[Any]], of: Collection[str] | None = None) -> tuple[Contradiction, ...]:
    """Return the certain contradictions among records, in order of creation; only those of the ids in `of` if given.

    Compared are pairs that are equal but for what `_frames` leaves out: time grows with the records, not their pairs.
    """
    ordered = sorted(records, key=lambda record: (record.number, record.id))
    alike: dict[tuple[str, Frame], list[int]] = {}
    for at, record in enumerate(ordered):
        for frame in _frames(record.payload.text()):
            alike.setdefault((record.kind, frame), []).append(at)
    pairs = {pair for block in alike.values() if len(block) > 1 for pair in combinations(block, 2)}
    asked = [(ordered[a], ordered[b]) for a, b in sorted(pairs)]
    return tuple(_certain([pair for pair in asked if of is None or {each.id for each in pair} & set(of)]))


def comparable(records: Sequence[Record[Any]], view: KnowledgeView) -> tuple[Record[Any], ...]:
    """Return those of a view's records that may contradict one of `records`, and these, in order of creation.

    Only texts that share one of the rarest words are read.
    """
    found = {record.id: record for record in records}
    for record in records:
        if type(record.payload).compared is not Payload.compared:  # the index has other texts
            found |= {other.id: other for other in view.records(record.kind)}
            continue
        for key in _framed_like(record.payload.text(), texts_of(view, record.kind)) - found.keys():
            other = view.get(key)
            assert other is not None
            found[key] = other
    return tuple(sorted(found.values(), key=lambda record: (record.number, record.id)))


def _framed_like(text: str, index: TextIndex) -> set[str]:
    """Return the keys of all texts that may share one of `_frames` with this one.

    They hold its first plain word. Of the others they may lack two neighbours, or the last `TAIL` words, and no more:
    of words of which neither leaves out all, they hold one. Texts that are long may lack none.
    """
    said = values(text)
    plain = _plain(said)
    held = {word: [index.holding(term) for term in terms(word)] for word in plain}
    rarest = {word: min(keys, key=len) for word, keys in held.items() if keys}
    found, places = set[str](), list[int]()
    for word in sorted(rarest, key=lambda word: len(rarest[word])):
        found.update(rarest[word])
        places.append(said.index(word))
        if len(said) > SHORT_WORDS or (max(places) - min(places) >= _SPAN and min(places) < len(said) - TAIL):
            break
    else:
        found = set(index.keys())
    first = rarest.get(plain[0]) if plain else None
    return found if first is None or len(found) <= len(first) else set(first)


def possible(records: Sequence[Record[Any]], embedder: Embedder, near: float = NEAR) -> tuple[Contradiction, ...]:
    """Return pairs that may contradict: cosine of their texts >= `near`, another value, and not certain."""
    ordered = sorted(records, key=lambda record: (record.number, record.id))
    if len(ordered) < 2:
        return ()
    texts = [record.payload.text() for record in ordered]
    vectors = embedder.embed(texts)
    found: list[Contradiction] = []
    for at, vector in enumerate(vectors[:-1]):
        for other in at + 1 + np.flatnonzero(vectors[at + 1 :] @ vector >= near):
            pair = ordered[at], ordered[int(other)]
            if pair[0].kind == pair[1].kind and contradicts(*(r.payload.text() for r in pair)) and not _between(*pair):
                said = tuple(" ".join(_only(*order)) for order in (pair, pair[::-1]))
                found.append(
                    Contradiction(first=pair[0].id, second=pair[1].id, difference=" | ".join(said), certain=False)
                )
    return tuple(found)


def outdone(records: Sequence[Record[Any]], evidence: Evidences) -> frozenset[str]:
    """Return the ids of those that a rival among `records` outdoes, pinned ones excepted: not to be shown beside it.

    A rival outdoes another by the operator's word, or where only the other one was refuted since it was last
    supported; what nothing has decided yet is shown with its rival, marked. `evidence` is asked only about records
    that contradict.
    """
    pairs = contradictions(records)
    if not pairs:
        return frozenset()
    by_id = {record.id: record for record in records}
    known = evidence([by_id[key] for key in dict.fromkeys(key for p in pairs for key in (p.first, p.second))])
    rivals = [(by_id[pair.first], by_id[pair.second]) for pair in pairs]
    losers = [weaker(a, b, known) for a, b in rivals if _standing(a, known)[:2] != _standing(b, known)[:2]]
    return frozenset(record.id for record in losers if not record.pinned)


def weaker(a: Record[Any], b: Record[Any], evidence: Mapping[str, Evidence]) -> Record[Any]:
    """Return the one of two rivals that does not hold.

    The operator's word stands over what was learned; then one not refuted since it was last supported stands over one
    that was; then the one supported last, by a helpful mark or by being stated.
    """
    return min(a, b, key=lambda record: _standing(record, evidence))


def _standing(record: Record[Any], evidence: Mapping[str, Evidence]) -> tuple[bool, bool, int, int]:
    found = evidence[record.id]
    own = record.pinned or record.provenance.trust is Trust.OPERATOR
    return own, found.refuted_at <= found.supported_at, found.supported_at, record.number


def marks(records: Sequence[Record[Any]]) -> dict[str, Record[Any]]:
    """Return what must be marked where both of two rivals are shown: id of the older one -> the newer one.

    Shown together are pinned ones, and those between which nothing has decided (`outdone`).
    """
    by_id = {record.id: record for record in records}
    return {pair.first: by_id[pair.second] for pair in contradictions(records)}


def _certain(pairs: Sequence[tuple[Record[Any], Record[Any]]]) -> Iterator[Contradiction]:
    for a, b in pairs:
        difference = _between(a, b)
        if difference:
            yield Contradiction(first=a.id, second=b.id, difference=difference)


def _between(a: Record[Any], b: Record[Any]) -> str:
    return _difference(_said(a), _said(b))


def _said(record: Record[Any]) -> tuple[str, str, str]:
    payload = record.payload
    return payload.text(), getattr(payload, "cue", ""), getattr(payload, "polarity", "")


@lru_cache(maxsize=65536)
def _difference(a: tuple[str, str, str], b: tuple[str, str, str]) -> str:
    """Return `this | that`, or an empty text when the two do not exclude each other."""
    if a[1] and b[1] and not (a[1].startswith(b[1]) or b[1].startswith(a[1])):
        return ""
    if exact_key(a[0]) == exact_key(b[0]):
        return f"{a[2]} | {b[2]}" if a[2] != b[2] else ""
    first, second = values(a[0]), values(b[0])
    if max(len(first), len(second)) > SHORT_WORDS:
        return ""
    negated = _negated(first), _negated(second)
    if _plain(first) == _plain(second) and negated[0] != negated[1]:
        return " | ".join("not" if each else "yes" for each in negated)
    start, end = _shared(first, second)
    mine, other = first[start : len(first) - end], second[start : len(second) - end]
    if first[start - 1 : start] and first[start - 1] in _SUBJECT:
        return ""
    if opposes(a[0], b[0]) or _is_value(first[:start], mine, other, first[len(first) - end :]):
        return f"{' '.join(mine) or '-'} | {' '.join(other) or '-'}"
    return ""


def _is_value(before: Sequence[str], mine: Sequence[str], other: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether the difference is one value, said where a rule prescribes. Steps of an order exclude nothing."""
    if not (0 < len(mine) <= _SPAN and 0 < len(other) <= _SPAN) or len(before) + len(after) < _COMMON:
        return False
    if after and after[0] in _STEPS:
        return False
    leading = [word for word in before if word not in _SMALL]
    return bool(leading) and leading[-1] in _PIVOTS


def _shared(first: Sequence[str], second: Sequence[str]) -> tuple[int, int]:
    """Return how many words two texts share at their start, and how many of the rest at their end."""
    most = min(len(first), len(second))
    start = next((at for at in range(most) if first[at] != second[at]), most)
    rest = most - start
    end = next((at for at in range(rest) if first[-1 - at] != second[-1 - at]), rest)
    return start, end


def _plain(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in NEGATIONS | _EMPHASIS]


def _negated(words: Sequence[str]) -> bool:
    return sum(word in NEGATIONS for word in words) % 2 == 1


@lru_cache(maxsize=32768)
def _frames(text: str) -> frozenset[Frame]:
    """Return what is left of a text without a part in which another may differ: two that contradict share one frame.

    Left out are negations and emphasis, a value of up to `_SPAN` words anywhere, an end of up to `TAIL` words. Texts
    that begin with different words are about different things.
    """
    said = values(text)
    plain = tuple(_plain(said))
    head = plain[:1]
    if len(said) > SHORT_WORDS:
        return frozenset({(head, plain, ())})
    spans = [(said[:at], said[at + size :]) for size in range(1, _SPAN + 1) for at in range(len(said) - size + 1)]
    ends = [(said[: len(said) - size], ("...",)) for size in range(1, TAIL + 1) if size <= len(said)]
    return frozenset({(head, plain, ()), *((head, before, after) for before, after in (*spans, *ends))})


def _only(a: Record[Any], b: Record[Any]) -> list[str]:
    theirs = set(values(b.payload.text()))
    return [word for word in values(a.payload.text()) if word not in theirs] or ["-"]
