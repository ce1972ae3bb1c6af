"""Divides a text into stretches that can be left out one by one: sentences, and the clauses of each.

A stretch is a pair of places in the text; the stretches of a text follow each other and make up all of it, so nothing
can hide between two. No stretch begins inside a call, a piece of code or a quotation that is no prose, nor inside a
number, a name with dots or an abbreviation. A clause begins at punctuation or at a word that joins or restricts; one
that is long all the same is halved. It reads no grammar: dividing too often costs some trials, too seldom lets one half
of a stretch in with the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

Span = tuple[int, int]
"""From (inclusive) and to (exclusive) which character."""

LONGEST = 10
"""Words of a clause, from which it is halved."""
_HEAD = 4
"""Words before a colon, from which what follows can stand alone; a shorter head belongs to it."""
_BEFORE = 2
"""Words that a clause has at least; what is shorter belongs to the next one."""

_PROSE = re.compile(r"[^\W\d_]+(?:\s+[^\W\d_]+){3}")
"""Four words in a row, as hardly any call or literal has them."""
_WHOLE = re.compile(
    r"`[^`\n;]{1,80}`"
    r"|\w+(?:\.\w+)+\((?:[^()\n;]|\([^()\n;]*\)){0,80}\)"
    r"|\"[^\"\n]{1,60}\"|(?<!\w)'[^'\n]{1,60}'(?!\w)|[“„][^”“\n]{1,60}[”“]|«[^»\n]{1,60}»"
)
"""What is not divided unless it holds prose."""
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|a\.m|p\.m|etc|vs|cf|nr|no|approx|ca|dr|mr|mrs|st|fig|[a-z])\.$", re.I
)
_STOP = r"[.!?…]+[\"'”»)\]`]*"
_SENTENCE = re.compile(
    rf"\n+|(?<=;)(?=\s)|{_STOP}(?=\s+\S)|(?<=[a-z]{{2}}[.!?])(?=[A-Z][a-z]*\s)|(?<=[\u3002\uff01\uff1f\uff1b])"
)
_JOINING = (
    "and|or|but|then|so|also|plus|yet|nor|while|whilst|whenever|when|where|wherever|if|unless|until|till|once|after|"
    "before|because|since|as|though|although|whereas|otherwise|however|except|which|who|whose|whom|that"
)
_RESTRICTING = "in|on|for|with|without|at|from|during|about|by|upon|within|given|per|under|over|through|throughout"
_CLAUSE = re.compile(
    r"(?P<comma>,(?=\s)|[\uff0c\u3001])|(?P<colon>:(?=\s)|\uff1a)"
    r"|(?P<mark>(?<=\s)[-\u2013\u2014|>/+&]+(?=\s)|[\u2014\u2192\u21d2|]+|\.{2,}|\u2026|(?=[(\[{])|(?<=[)\]}]))"
    rf"|(?P<join>\s+(?=(?:{_JOINING})\s))|(?P<restrict>\s+(?=(?:{_RESTRICTING})\s))",
    re.IGNORECASE,
)
_AFTER = {"comma": 2, "colon": 2, "mark": 1, "join": 3, "restrict": 4}
"""Words that have to follow, up to the end of the sentence: a place or a time alone is no clause."""
_OUTER = " \t\n,;:\u2013\u2014-&+/|>"


def sentences(text: str) -> tuple[Span, ...]:
    """Return the sentences and lines of a text."""
    whole = _whole(text)
    starts: list[int] = []
    for found in _SENTENCE.finditer(text):
        at = found.start() if text[found.start()] == "\n" else found.end()
        if not _inside(at, whole) and not _ABBREVIATION.search(text[max(0, found.end() - 8) : found.end()]):
            starts.append(at)
    return _with_words(text, _spans(0, len(text), starts))


def clauses(text: str, sentence: Span) -> tuple[Span, ...]:
    """Return the clauses of one of the text's sentences."""
    start, end = sentence
    whole = _whole(text)
    starts: list[int] = []
    last = start
    for found in _CLAUSE.finditer(text, start, end):
        kind, at = str(found.lastgroup), found.end() if found.lastgroup in ("comma", "colon") else found.start()
        before, after = _words(text[last:at]), _words(text[at:end])
        if _inside(at, whole) or before < (_HEAD if kind == "colon" else _BEFORE) or after < _AFTER[kind]:
            continue
        starts.append(at)
        last = at
    spans = _with_words(text, _spans(start, end, starts))
    return tuple(half for span in spans for half in _halved(text, span, whole))


def without(text: str, cut: Sequence[Span]) -> str:
    """Return the text without some of its stretches, and without punctuation that is left over at its ends.

    A stretch that ended a sentence leaves the mark that ended it.
    """
    if not cut:
        return text
    places = sorted(cut)
    kept, at = text[: places[0][0]], places[0][0]
    for start, end in places:
        kept = _joined(kept, text[at:start])
        closing = text[start:end].rstrip()[-1:]
        bare = kept.rstrip(_OUTER)
        if closing and closing in ".!?;" and bare and bare[-1] not in ".!?;\n":
            kept = bare + closing
        at = end
    return _joined(kept, text[at:]).rstrip(" \t\n,;:\u2013\u2014")


def _joined(kept: str, more: str) -> str:
    if not kept:
        return more.lstrip(_OUTER)
    return kept.rstrip(" ") + more if more[:1].isspace() else kept + more


def _whole(text: str) -> list[Span]:
    found = [match.span() for match in _WHOLE.finditer(text)]
    return [(start, end) for start, end in found if not _PROSE.search(text[start:end])]


def _inside(at: int, whole: Sequence[Span]) -> bool:
    return any(start < at < end for start, end in whole)


def _words(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in text.split())


def _spans(start: int, end: int, starts: Sequence[int]) -> list[Span]:
    places = [start, *sorted({at for at in starts if start < at < end}), end]
    return [(a, b) for a, b in pairwise(places) if a < b]


def _with_words(text: str, spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans with those that hold no letter and no digit joined to the one before, or after the first."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and not (_words(text[start:end]) and _words(text[slice(*joined[-1])])):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return tuple(joined)


def _halved(text: str, span: Span, whole: Sequence[Span]) -> Iterator[Span]:
    start, end = span
    places = [start + found.start() for found in re.finditer(r"(?<=\S)\s+(?=\S)", text[start:end])]
    places = [at for at in places if not _inside(at, whole)]
    if _words(text[start:end]) <= LONGEST or not places:
        yield span
        return
    middle = min(places, key=lambda at: abs(2 * at - start - end))
    yield from _halved(text, (start, middle), whole)
    yield from _halved(text, (middle, end), whole)
