"""The `bullet` kind: one strategy or hard rule, filed under a section (format facts: ACE, arXiv 2510.04618).

A bullet's content may hold several lines; `playbooks.render` decides how it looks in a prompt. Counters, dates and ids
belong to the record around it, never to the bullet.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import field_validator

from memory.kinds import register
from memory.records import Payload

SECTIONS: dict[str, str] = {
    "STRATEGIES AND HARD RULES": "shr",
    "APIs TO USE FOR SPECIFIC INFORMATION": "api",
    "USEFUL CODE SNIPPETS AND TEMPLATES": "code",
    "COMMON MISTAKES AND CORRECT STRATEGIES": "cms",
    "PROBLEM-SOLVING HEURISTICS AND WORKFLOWS": "psw",
    "VERIFICATION CHECKLIST": "vc",
    "TROUBLESHOOTING AND PITFALLS": "ts",
    "OTHERS": "misc",
}
"""Sections a curator may write to, in the order they are rendered, with the slug of their ids."""

FINANCE_SECTIONS: dict[str, str] = {
    "STRATEGIES & INSIGHTS": "fin",
    "FORMULAS & CALCULATIONS": "calc",
    "CODE SNIPPETS & TEMPLATES": "code",
    "COMMON MISTAKES TO AVOID": "err",
    "PROBLEM-SOLVING HEURISTICS": "prob",
    "CONTEXT CLUES & INDICATORS": "ctx",
}
"""The other section set in circulation: accepted on import and in deltas, not offered to curators."""

OTHERS = "OTHERS"
DEFAULT_SECTION = "STRATEGIES AND HARD RULES"

_SLUGS = {**FINANCE_SECTIONS, **SECTIONS}


def _fold(name: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", name.lower().replace("&", " and ")))


_BY_NAME = {_fold(name): name for name in _SLUGS}
_BY_SLUG = {slug: name for name, slug in _SLUGS.items()}


def match_section(name: str) -> str | None:
    """Return the known section meant by `name`, whatever its case, underscores, hyphens or colon; a slug works too.

    None when no known section is meant.
    """
    folded = _fold(name)
    return _BY_NAME.get(folded) or _BY_SLUG.get(folded)


def section_slug(section: str) -> str:
    """Return the id prefix of a section: the fixed one, else 4 letters of one word or initials of up to 5 words."""
    known = match_section(section)
    if known is not None:
        return _SLUGS[known]
    words = _fold(section).split()
    if not words:
        return _SLUGS[OTHERS]
    slug = words[0][:4] if len(words) == 1 else "".join(word[0] for word in words[:5])
    return slug if slug[0].isalpha() else f"s{slug}"


def clean_text(text: str) -> str:
    """Return `text` with one kind of line break, no control characters and no outer blank space."""
    unified = re.sub(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", "\n", text)
    return re.sub(r"[\x00-\x08\x0e-\x1f\x7f]", "", unified).strip()


def one_line(text: str) -> str:
    """Return `text` on one line: every run of blank space with a line break in it becomes one space."""
    return re.sub(r"\s+", lambda run: " " if "\n" in run[0] else run[0], clean_text(text))


class Bullet(Payload):
    """One lesson as it is shown to the agent."""

    kind: ClassVar[str] = "bullet"

    section: str = DEFAULT_SECTION
    content: str
    cue: str = ""
    """When it applies, machine-readable: a call (`mail.send`) or `before mail.send`."""
    action: str = ""
    """What to do then, likewise: the call to make (`mail.login`)."""
    when: str = ""
    """When it applies, in words."""
    polarity: Literal["do", "avoid"] = "do"
    origin_query: str = ""
    """Instruction of the task that taught it; embedded with the content so that like tasks find it."""
    audience: Literal["agent", "reflector", "curator"] = "agent"

    @field_validator("section")
    @classmethod
    def _canonical_section(cls, value: str) -> str:
        line = one_line(value)
        return match_section(line) or line.lstrip("#").strip() or OTHERS

    @field_validator("content", "when", "origin_query")
    @classmethod
    def _clean(cls, value: str) -> str:
        return clean_text(value)

    @field_validator("cue", "action")
    @classmethod
    def _single_line(cls, value: str) -> str:
        return one_line(value)

    def text(self) -> str:
        """Return the content."""
        return self.content

    def key(self) -> str:
        """Return content, condition and the originating query: what is embedded."""
        return "\n".join(part for part in (self.content, self.when, self.origin_query) if part)

    def slug(self) -> str:
        """Return the section's slug."""
        return section_slug(self.section)


MEMBER = register(Bullet)
EXAMPLE = Bullet(content="Amounts are in cents.", cue="before payments.request")
