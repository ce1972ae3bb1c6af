"""Span of a piece of work: its name and attributes from the beginning, and what is noted at its end.

Content (prompts, replies, texts: `names.CONTENT`) is a function, called only where content is captured. Not here or in
the modules that make these (`acting`, `learning`): how spans are made, redacted, stored or sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.telemetry import semconv
from policies.protocols import Policy

Attributes = Mapping[str, Any]
"""None leaves an attribute out."""
_RAISED = re.compile(r"[A-Z]\w{0,60}(?:Error|Exception|Warning|Exit|Interrupt)\b")
OTHER = "_OTHER"
"""An error without a type of its own."""


@dataclass(frozen=True)
class Traced:
    """The run that is traced."""

    run_id: str
    mode: str
    policy: Policy | None
    """Who answers; None = nobody, a training on the journal."""
    environment: str


@dataclass(frozen=True)
class Noted:
    """What is added to a span at its end."""

    attributes: Attributes = field(default_factory=lambda: {})
    events: Sequence[tuple[str, Attributes]] = ()
    tokens: Mapping[str, int] = field(default_factory=lambda: {})
    """`input` and `output` tokens, for the metric."""


@dataclass(frozen=True)
class Begun:
    """What a span says from its beginning."""

    name: str
    attributes: Attributes
    done: Callable[[Any], Noted] = lambda _: Noted()
    client: bool = False
    """A call of something outside of this process (as far as the caller knows)."""
    metric: str | None = None
    """Histogram of the durations."""


def evaluation(name: str, score: float | None, label: str) -> tuple[str, Attributes]:
    """Return the event of one grade, reward or decision."""
    return semconv.EVALUATION, {
        semconv.EVALUATION_NAME: name,
        semconv.SCORE: score,
        semconv.LABEL: label,
    }


def raised(error: str | None) -> str | None:
    """Return the type that an error text names, without the rest: that is content."""
    if error is None:
        return None
    found = _RAISED.match(error)
    return found[0] if found else OTHER
