"""Text that is no lesson, since nothing of the world stands in it: it repeats what its author was asked or shown to
answer with, it speaks of the harbour of our examples, it repeats its task, a result of it or itself, it says of one
episode that something was right or wrong, or it says nothing that could be false.

A weak model copies the placeholders of an example, and a strict reader of forms lets them in. The words are read from
the prompt files themselves, so a prompt that is changed changes what is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import evolve.episode.prompts
import playbooks.prompts
import policies.prompts
import skills.prompts
from evolve.episode.prompting import AGAIN
from memory.records import Payload, Trajectory
from playbooks.kinds.bullet import Bullet
from playbooks.kinds.note import Note
from policies.templates import prompt_names, prompt_source

PROMPTS = (evolve.episode.prompts, playbooks.prompts, skills.prompts, policies.prompts)
"""Whose prompt files are read. Those that describe a world are not: what they say can be learned."""

HARBOUR = frozenset(["crane", "cranes", "harbour", "harbours", "harbor", "harbors", "berth", "berths", "hbr"])
"""Words of the world that the examples of our prompts are about: a weak model goes on about it in words of its own."""

_CLAUSE_END = re.compile(r"[.;:!?]\s+|,\s+|\n|\b(?:and|but|once|since|because)\b", re.IGNORECASE)
_WORDS = r"(?:[^\W\d_]+(?:['-][^\W\d_]+)* )*?"
_VERDICT = re.compile(
    rf"(?P<subject>(?:the|this|that|these|those|its|their|a|an|it|they) {_WORDS})?"
    r"(?:(?:is|are|was|were)(?: not)?(?: \w+ed)? (?:wrong|(?:in)?correct(?:ly)?)(?: \w+ed)?|went (?:well|wrong)|failed"
    r"|succeeded|did not \w+ the (?:expected|right|correct) (?:answer|output|result|value)s?)",
    re.IGNORECASE,
)
"""A clause that says whether something was right, and nothing more: `The rate was not calculated correctly`. Neither
code nor a number stands in its subject."""
_CONDITION = frozenset(["if", "when", "whether", "that", "unless", "which"])
_RESULT = re.compile(r"\d+\.\d{9,}")
"""A number that was computed in an episode and not rounded."""
_TAG = re.compile(r"\{[{%#].*?[}%#]\}", re.DOTALL)
_BREAK = re.compile(r"[\n\"]")
FEEDBACK = ("holds no json object", "no code was found")
"""Words of what a reply is told that cannot be used (`NO_OBJECT`, `NO_CODE`). How to reply instead can be learned."""
NOTHING = "says nothing that could be false; name the function, value, unit or order that it is about"
_WORD = re.compile(r"\w+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SENTENCE_END = re.compile(r"[.!?;]\s+|\n")
REPEATED = 3
"""Times from which a sentence of three words or more is a loop that the model fell into. Words that follow each other
again within a sentence are one from two times and a half."""
LONGEST_LOOP = 60
"""Words of a loop that is looked for, at most."""
_FUNCTION = """
a an the this that these those it its they them their you your we our i my is are be been was were do does did done
has have had will would can could should shall must may might to of in on at by for from with as into about and or but
if then when where which what who how so than there here not no none never always every each all any some only more
most very also again please
"""
"""Words that say nothing by themselves."""
_ANY_TASK = """
agent task tasks rule rules lesson lessons note notes instruction instructions step steps action actions answer
answers result results output problem problems error errors mistake mistakes call follow make made use used using try
ensure sure avoid complete completed solve solved learn learned remember apply applies need needed careful carefully
correct correctly right rightly wrong proper properly good better best well given new example content general
important
"""
"""Words that hold of any task."""
_EMPTY = frozenset(f"{_FUNCTION} {_ANY_TASK}".split())
_DENYING = "could should shall must may might no not none never always every each all any some only more most very"
_JOINING = frozenset(_FUNCTION.split()).difference(_DENYING.split())
"""Words that change nothing of what a task says."""


def echo(payload: Payload, episodes: Sequence[Trajectory], n: int) -> str:
    """Return why a bullet or a note is no lesson, or an empty text; other kinds are not read.

    A run of `n` words that stands in a prompt is a repetition, and so is a text that stands there as a whole.
    """
    texts = _texts(payload)
    said = next(filter(None, (_said(text, episodes, n) for text in texts)), "") or _verdict(*texts[:1])
    if said or not isinstance(payload, Bullet):
        return said
    if payload.content.isascii() and len(plain(payload.content)) == 1:  # not every script has spaces between words
        return NOTHING
    return _of_our_harbour(plain(f"{payload.cue} {payload.action} {payload.when}"), episodes)


def _texts(payload: Payload) -> tuple[str, ...]:
    """Return what a lesson says, first what is to be done."""
    if isinstance(payload, Bullet):
        return (payload.content,)
    return (payload.correct_approach, payload.mistake_summary, payload.strategy) if isinstance(payload, Note) else ()


def _said(text: str, episodes: Sequence[Trajectory], n: int) -> str:
    words = plain(text)
    if not words:
        return ""
    whole = f" {' '.join(words)} "
    if any(whole in line for line in _lines()) or any(told in whole for told in FEEDBACK):
        return f"repeats the words of our own prompts ({text.strip()[:80]!r}); say what was learned"
    if shared := next((run for run in _runs(words, n) if run in _prompted(n)), None):
        return f"repeats the words of our own prompts ({' '.join(shared)!r}); say what was learned"
    if foreign := _of_our_harbour(words, episodes):
        return foreign
    for episode in episodes:
        asked = plain(episode.task.instruction)
        restated = any(word.isdigit() for word in words) and set(words) <= {*asked, *_JOINING}
        if restated or whole in f" {' '.join(asked)} ":
            return f"repeats words of task {episode.task.id!r} and adds none; say what holds for other tasks"
        if result := next((number for number in _RESULT.findall(text) if _computed(number, episode)), ""):
            return f"tells {result}, a result of task {episode.task.id!r}; say what holds for other tasks"
    if repeated := _repeated(text):
        return f"says {repeated!r} over and over; say it once"
    return NOTHING if _EMPTY.issuperset(words) or not any(map(str.isalpha, text)) else ""


def _of_our_harbour(words: Sequence[str], episodes: Sequence[Trajectory]) -> str:
    if word := borrowed(words, (told for episode in episodes for told in _told(episode))):
        return f"speaks of {word!r}, as the examples of our prompts do and the episode does not; say what was learned"
    return ""


def _verdict(text: str = "") -> str:
    """Say what is wrong with a text of verdicts about one thing; of two things they are a comparison, which teaches."""
    clauses = [clause for each in _CLAUSE_END.split(text) if (clause := each.strip(" .,;:!?"))]
    found = [match for clause in clauses if (match := _VERDICT.fullmatch(clause))]
    about = {match["subject"].lower() for match in found if match["subject"]}
    if found and len(found) == len(clauses) and len(about) < 2 and not _CONDITION.intersection(*map(plain, about)):
        return "says that something was right or wrong, and not what makes it so; say what to do"
    return ""


def _computed(number: str, episode: Trajectory) -> bool:
    return any(number in _RESULT.findall(step.observation) for step in episode.steps)


def _repeated(text: str) -> str:
    """Return the words that a text says over and over, a sentence or a part of one; or an empty text."""
    counted = Counter(plain(sentence) for sentence in _SENTENCE_END.split(text))
    said = next((said for said, times in counted.items() if len(said) >= 3 and times >= REPEATED), ())
    return " ".join(said or _looped(plain(text)))


def _looped(words: Sequence[str]) -> Sequence[str]:
    """Return three different words or more that follow each other, and then again, two times and a half in all."""
    for size in range(3, min(len(words) // 2, LONGEST_LOOP)):
        again = 0
        for at in range(size, len(words)):
            again = again + 1 if words[at] == words[at - size] else 0
            if 2 * again >= 3 * size and len(set(words[at - size + 1 : at + 1])) >= 3:
                return words[at - size + 1 : at + 1]
    return ()


def borrowed(words: Iterable[str], told: Iterable[str]) -> str:
    """Return a word of our examples' harbour, or an empty text; none of those that the world itself has told."""
    found = HARBOUR.intersection(words)
    return min(found.difference(*map(plain, told)), default="") if found else ""


def _told(episode: Trajectory) -> Iterator[str]:
    """Yield what a world said and what it took. An error is left out: it may quote what the agent had of an example."""
    yield episode.instruction
    yield from (f"{step.action}\n{step.observation}" for step in episode.steps if not step.error)


def plain(text: str) -> tuple[str, ...]:
    """Return the words of a text, lower-cased; numbers without commas between thousands."""
    return tuple(word.lower() for word in _WORD.findall(_THOUSANDS.sub("", text)))


@cache
def _lines() -> tuple[str, ...]:
    """Return the words of prompts and of what a failed action is told, line by line, each quoted value by itself."""
    pieces = [AGAIN]
    for prompts in PROMPTS:
        for name in prompt_names(prompts):
            text = prompt_source(prompts, name)
            whole = _TAG.sub("\n", text)
            pieces += [*whole.splitlines(), *_BREAK.split(whole)]
    return tuple(f" {' '.join(words)} " for piece in pieces if (words := plain(piece)))


@cache
def _prompted(n: int) -> frozenset[tuple[str, ...]]:
    return frozenset(run for line in _lines() for run in _runs(tuple(line.split()), n))


def _runs(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + n]) for at in range(len(words) - n + 1))
