"""The `note` kind: one mistake, and what to do instead (format facts: Mistake Notebook Learning, arXiv 2512.11485).

A note is typed where the paper keeps one opaque text, and must say when it does not apply. Ids of the failures it was
written from are kept in it but never shown; counters and dates belong to the record around it.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import field_validator, model_validator

from memory.kinds import register
from memory.records import Payload
from playbooks.kinds.bullet import one_line

LIMITS: dict[str, int] = {
    "subject": 50,
    "corrected_examples": 50,
    "correct_approach": 60,
    "mistake_summary": 60,
    "strategy": 80,
    "anti_patterns": 40,
}
"""Most words of each part: of each example, and of all anti-patterns together."""

TOTAL_WORDS = 250
"""Most words of all parts but the subject."""
MAX_EXAMPLES = 3

_NOTHING = re.compile(r"(?:none|n/?a|nothing|unknown|no|-)?\W*", re.IGNORECASE)


def said(text: str) -> bool:
    """Return False for an empty text and for the words that stand for one (`none`, `N/A`)."""
    return _NOTHING.fullmatch(text.strip()) is None


def words(text: str) -> int:
    """Return how many words a text has, as the limits count them."""
    return len(text.split())


class Note(Payload):
    """One lesson of a cluster of failures. Every part is one line; all but the subject take 250 words at most."""

    kind: ClassVar[str] = "note"

    subject: str
    """What it is about: domain, kind of problem, method. Notes are compared and merged by it."""
    corrected_examples: tuple[str, ...]
    """One to three: what was done wrongly, and the same done right."""
    correct_approach: str
    mistake_summary: str
    strategy: str
    """How to go about the whole family of such tasks."""
    anti_patterns: tuple[str, ...]
    """When NOT to apply the note."""
    failure_ids: tuple[str, ...] = ()
    """Ids of the trajectories that it was written from."""
    cluster_id: str = ""
    """Name of the cluster that these failures formed."""

    @field_validator("subject", "correct_approach", "mistake_summary", "strategy")
    @classmethod
    def _line(cls, value: str) -> str:
        return one_line(value)

    @field_validator("corrected_examples", "anti_patterns")
    @classmethod
    def _lines(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line for line in map(one_line, value) if said(line)))

    @model_validator(mode="after")
    def _within_limits(self) -> Note:
        missing = [name for name in LIMITS if not said("".join(self.parts(name)))]
        if missing:
            raise ValueError(f"a note needs {', '.join(missing)}; got none")
        if len(self.corrected_examples) > MAX_EXAMPLES:
            raise ValueError(f"{len(self.corrected_examples)} corrected examples; at most {MAX_EXAMPLES}")
        for name, limit in LIMITS.items():
            each = [words(part) for part in self.parts(name)]
            longest = sum(each) if name == "anti_patterns" else max(each)
            if longest > limit:
                raise ValueError(f"{name} has {longest} words; at most {limit}")
        total = sum(words(part) for name in LIMITS if name != "subject" for part in self.parts(name))
        if total > TOTAL_WORDS:
            raise ValueError(f"the note has {total} words beside its subject; at most {TOTAL_WORDS}")
        return self

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the texts of one part, whether it holds one or several."""
        value: str | tuple[str, ...] = getattr(self, name)
        return (value,) if isinstance(value, str) else value

    def text(self) -> str:
        """Return the whole note, a line for each part."""
        return "\n".join(
            [
                self.subject,
                f"Mistake: {self.mistake_summary}",
                f"Instead: {self.correct_approach}",
                f"Strategy: {self.strategy}",
                *(f"Example: {example}" for example in self.corrected_examples),
                f"Do not apply when: {'; '.join(self.anti_patterns)}",
            ]
        )

    def brief(self) -> str:
        """Return the note on one line: what it is about, what to do, and when not."""
        return f"{self.subject}: {self.correct_approach} (not when: {'; '.join(self.anti_patterns)})"

    def key(self) -> str:
        """Return the subject and the mistake: what is embedded for recall."""
        return f"{self.subject}\n{self.mistake_summary}"


MEMBER = register(Note)
EXAMPLE = Note(
    subject="payments: amounts",
    corrected_examples=("amount=12 asks for 12 cents; amount=1200 for 12 euros",),
    correct_approach="Give amounts in cents.",
    mistake_summary="Amounts were given in euros.",
    strategy="Read the unit of an argument before the first call.",
    anti_patterns=("the world names another unit",),
)
