"""Lessons from actions that are no code: commands of text games, SQL statements, lines of a shell.

An action is compared word by word with a later one that begins alike and worked. Values of the task (quoted texts,
numbers and names_like_this that its instruction gives) are no convention and stand as `...` in what is learned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memory.records import Step, Trajectory
from playbooks.differences import Finding
from playbooks.kinds.bullet import one_line

MAX_CHARS = 240
"""Longest command or answer that a lesson repeats."""
ALIKE = 0.5
"""Share of the words of the shorter of two commands that both must hold to be attempts at the same thing."""
OPEN = "..."
"""Stands for a value of the task."""

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+(?:[.-]\w+)*|[^\w\s]")
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|\b[A-Za-z]\w*_\w+|\d+(?:\.\d+)?")
_REFUSED = re.compile(
    r"^\W*(?:error|invalid|unknown|denied|refused)\b|\b(?:can't|cannot|can not|won't|not allowed|not possible|"
    r"nothing happens|doesn't|don't|isn't|no such|(?:must|need to|have to)\b.*\b(?:first|before))",
    re.IGNORECASE,
)
_SAID = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Command:
    """One action as it was said, and what came of it."""

    step: int
    text: str
    """On one line, the values of the task replaced by `...`."""
    refusal: str
    """Why it failed; empty where it worked."""

    @property
    def tokens(self) -> list[str]:
        return _TOKEN.findall(self.text)

    @property
    def verb(self) -> str:
        """The first word, in lower case."""
        return next((token.lower() for token in self.tokens if token[0].isalnum()), "")


def reads_as_code(steps: Sequence[Step]) -> bool:
    """Tell whether some action is Python (a call or a statement) or a native tool call."""
    return any(step.tool_calls or _is_code(step.action) for step in steps)


def _is_code(action: str) -> bool:
    try:
        tree = ast.parse(action.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what ast.parse raises on text that is no code
        return False
    statements = any(not isinstance(statement, ast.Expr) for statement in tree.body)
    return statements or any(isinstance(node, ast.Call) for node in ast.walk(tree))


def commands_of(trajectory: Trajectory) -> list[Command]:
    """Return the commands of an episode. Where the world never sets `error`, a refusal is read from its answer."""
    marks = any(step.error is not None for step in trajectory.steps)
    own = {_bare(value) for value in _VALUE.findall(trajectory.instruction)}
    own |= {word for word in re.findall(r"[\w-]+", trajectory.instruction) if any(map(str.isdigit, word))}
    quotable = trajectory.instruction.lower()
    found: list[Command] = []
    for step in trajectory.steps:
        if step.action.strip():
            text = _generalised(one_line(step.action), own, quotable)[:MAX_CHARS]
            refusal = step.error if marks else _refused(step.observation)
            found.append(Command(step.index, text, one_line(refusal or "")))
    return found


def lessons(trajectory: Trajectory) -> Iterator[Finding]:
    """Yield what commands that failed and later ones that worked show, each as the command to use or to give first."""
    commands = commands_of(trajectory)
    for at, failed in enumerate(commands):
        if not failed.refusal:
            continue
        worked = next((each for each in commands[at + 1 :] if not each.refusal and _alike(failed, each)), None)
        if worked is None:
            continue
        if worked.text != failed.text:
            yield replace(_use(worked), refuted=(_use(failed).content,))
            continue
        before = {each.text for each in commands[:at]}
        between = [each for each in commands[at + 1 :] if each.step < worked.step and not each.refusal]
        helped = [each for each in between if each.text not in before]
        if helped:
            first = helped[-1]
            yield Finding(f"Use `{first.text}` before `{worked.text}`", f"before {worked.verb}", first.text)


def seen_in(text: str, commands: Sequence[Command]) -> tuple[bool, bool]:
    """Return whether a command that a rule names in backticks worked in an episode, and whether one failed."""
    named = set(_SAID.findall(text))
    made = [each for each in commands if each.text in named]
    return any(not each.refusal for each in made), any(each.refusal for each in made)


def _use(command: Command) -> Finding:
    return Finding(f"Use `{command.text}`", command.verb, command.text)


def _alike(one: Command, other: Command) -> bool:
    if one.verb != other.verb:
        return False
    first, second = ({token.lower() for token in each.tokens} for each in (one, other))
    return len(first & second) >= ALIKE * min(len(first), len(second))


def _generalised(text: str, own: set[str], quotable: str) -> str:
    def shown(match: re.Match[str]) -> str:
        value = _bare(match[0])
        return OPEN if value in own or (match[0][0] in "'\"" and value and value.lower() in quotable) else match[0]

    return _VALUE.sub(shown, text)


def _bare(value: str) -> str:
    return value.strip("'\"")


def _refused(observation: str) -> str:
    start = observation.strip()[:MAX_CHARS]
    return start if _REFUSED.search(start) else ""
