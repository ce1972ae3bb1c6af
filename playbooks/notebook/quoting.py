"""Outside text as prompts quote it: all that a step gave back, and of long text the head and the tail.

What was left out is said between them.
"""

from __future__ import annotations

from memory.records import Step


def observed(step: Step) -> str:
    """Return a step's observation, and its error behind it where the observation does not hold it."""
    if not step.error or step.error in step.observation:
        return step.observation
    return f"{step.observation}\n{step.error}" if step.observation else step.error


def middle_out(text: str, limit: int) -> str:
    """Return `text` with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
