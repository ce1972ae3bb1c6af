"""Rationalization (STaR, arXiv 2203.14465): what failed is tried again, told what the grader found.

An agent that is told the expected answer can often find the way to it, and the way is what later tasks can use. The
answer is not: a solution that repeats what only the grader said is none. Pure: no model, no store, no clock.
"""

from __future__ import annotations

import re

from evolve.config.model import Config
from evolve.episode import prompts
from evolve.episode.prompting import shortened
from evolve.errors import ConfigError
from memory.records import Trajectory
from playbooks.render import neutral
from policies.protocols import Policy
from policies.templates import render

CHARS = 1500
"""Most characters of the failed action, and of its observation, that are shown again."""
_PIECE = re.compile(r"\d[\d,]*\.?\d*|\.\d+|\w+")


def check(config: Config, policy: Policy) -> None:
    """Raise `ConfigError` where attempts are to be told something and the policy's prompts have no turn for it."""
    if config.run.rationalizations and policy.profile == "compact":
        raise ConfigError(
            f"run.rationalizations needs full prompts, and policy {policy.name!r} reads compact ones, which have no "
            "turn for what the grader found: leave it at 0, or choose a policy with full prompts"
        )


def findings(failed: Trajectory) -> tuple[str, ...]:
    """Return what the grader said of the checks that did not pass."""
    checks = failed.outcome.checks if failed.outcome else ()
    return tuple(check.detail for check in checks if not check.passed and check.detail)


def hint(failed: Trajectory) -> str:
    """Return what a further attempt is told of one that failed; empty where nothing was done or nothing was found."""
    found = findings(failed)
    if not found or not failed.steps:
        return ""
    last = failed.steps[-1]
    said, answered = (neutral(shortened(text, CHARS)[0]).strip() for text in (last.action, last.observation))
    told = [neutral(each) for each in found]
    return render(prompts, "rationalize", action=said, observation=answered, findings=told).strip()


def gives_away(failed: Trajectory, solved: Trajectory) -> bool:
    """Tell whether an attempt repeats a number or a word that the hint about `failed` alone could tell it."""
    known = _pieces(failed.task.instruction, failed.opening)
    for step in failed.steps:
        known |= _pieces(step.action, step.observation)
    secret = _pieces(*findings(failed)) - known
    return any(secret & _pieces(step.action, step.reply) for step in solved.steps)


def _pieces(*texts: str) -> set[str]:
    """Return words in lower case, and numbers by their value: `0.250`, `.25` and `0.25` are the same."""
    return {_normal(piece) for text in texts for piece in _PIECE.findall(text)}


def _normal(piece: str) -> str:
    try:
        return f"{float(piece.replace(',', '')):.9g}"
    except ValueError:
        return piece.casefold()
