"""The Reflector that needs no model: (failing call, error, later attempt that got past it) patterns become lessons.

Deterministic and generic over environments: it reads the calls of the code, the error texts and the failed checks, and
knows no application. Actions that are no code (text games, SQL) are compared word by word (`playbooks.commands`). What
it cannot see it does not guess: a failure that was never overcome and whose error says nothing gives no lesson.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory.records import Insight, Outcome, Record, Reflection, Step, Tag, Trajectory
from playbooks.calls import Call, calls_of
from playbooks.commands import commands_of, lessons, reads_as_code, seen_in
from playbooks.differences import Finding, changed_arguments, differs, inserted_calls, order_finding, value_finding
from playbooks.kinds.bullet import DEFAULT_SECTION, one_line
from playbooks.similarity import exact_key, opposes

MAX_ERROR = 240

_PREFIX = re.compile(r"^(?:[A-Za-z_.]*(?:Error|Exception|Broken|Warning)\s*:\s*|error:\s*)+", re.IGNORECASE)
_NORMATIVE = re.compile(
    r"\b(?:must|should|only|always|never|requires?|required|needs?|wants?|expects?|accepts?|has to|have to|first)\b",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"'([^']{2,})'|\"([^\"]{2,})\"")
_MISMATCH = re.compile(r"(\w+(?:\.\w+)*) (\w+): expected (.+?), got (.+)")
_ORDER = ("before", "after")


@dataclass(frozen=True)
class _Attempt:
    """One call of a trajectory that failed or worked, with what was called before it in its step and since a mark."""

    step: int
    place: int
    call: Call
    error: str | None


class RulesReflector:
    """Reflects without a model. Implements `playbooks.protocols.Reflector`."""

    name = "rules"

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return the lessons and tags that follow from the trajectory alone, always the same for the same one."""
        code = reads_as_code(trajectory.steps)
        findings = _from_steps(trajectory) if code else _from_commands(trajectory)
        if not label_free:
            findings += _from_checks(trajectory.outcome)
            findings += [] if code else _from_prose(trajectory)
        unique = {finding.content: finding for finding in findings}
        return Reflection(
            trajectory_id=trajectory.id,
            task_id=trajectory.task.id,
            root_cause="; ".join(dict.fromkeys(one_line(s.error) for s in trajectory.steps if s.error)),
            insights=tuple(
                Insight(content=f.content, section=DEFAULT_SECTION, cue=f.cue, action=f.action) for f in unique.values()
            ),
            tags=(_tags if code else _command_tags)(
                injected, tuple(unique.values()), trajectory, solved=not label_free and trajectory.success
            ),
            author=self.name,
        )

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return the errors, as lessons hold no word that a call printed; without errors, what reads like refusals."""
        return errors_of(trajectory)


def errors_of(trajectory: Trajectory) -> str:
    """Return the error messages of an episode, a line each; in a world that marks none, the answers that refuse."""
    if reads_as_code(trajectory.steps):
        return "\n".join(step.error for step in trajectory.steps if step.error)
    return "\n".join(command.refusal for command in commands_of(trajectory) if command.refusal)


def _from_steps(trajectory: Trajectory) -> list[Finding]:
    calls = calls_of(trajectory.steps)
    attempts = _attempts(trajectory.steps, calls)
    findings: list[Finding] = []
    for at, failed in enumerate(attempts):
        if failed.error is None:
            continue
        later = [a for a in attempts[at + 1 :] if a.call.name == failed.call.name and a.step > failed.step]
        overcome = any(a.error is None for a in later)
        worked = next((a for a in later if a.error != failed.error), None) if overcome else None
        found = [] if worked is None else _compare(trajectory, calls, failed, worked)
        told = _told(failed, overcome=overcome)
        if told:
            only = found[0] if len(found) == 1 else Finding("", "", "")
            found = [Finding(told, only.cue or failed.call.name, only.action, only.refuted)]
        findings += found
    return findings


def _from_commands(trajectory: Trajectory) -> list[Finding]:
    """Return what failed commands teach: what the refusal prescribes, and what worked later instead."""
    told = [
        Finding(f"{command.verb}: {text}", command.verb, "")
        for command in commands_of(trajectory)
        if (text := _prescribed(command.refusal, trajectory))
    ]
    return [*told, *lessons(trajectory)]


def _from_prose(trajectory: Trajectory) -> list[Finding]:
    """Return the failed checks that say in words what is wanted."""
    checks = trajectory.outcome.checks if trajectory.outcome is not None else ()
    details = (one_line(check.detail) for check in checks if not check.passed and not _MISMATCH.search(check.detail))
    return [Finding(text, "", "") for detail in details if (text := _prescribed(detail, trajectory))]


def _prescribed(refusal: str, trajectory: Trajectory) -> str:
    """Return a refusal that is a rule: it prescribes, and quotes no value of the task."""
    text = _PREFIX.sub("", refusal)[:MAX_ERROR]
    own = any(literal in trajectory.instruction for pair in _LITERAL.findall(text) for literal in pair if literal)
    return "" if own or not _NORMATIVE.search(text) else text


def _command_tags(
    injected: Sequence[Record[Any]], findings: Sequence[Finding], trajectory: Trajectory, *, solved: bool
) -> dict[str, Tag]:
    """Tag a rule harmful when a finding says otherwise or its command failed, helpful when it worked and so did all."""
    commands = commands_of(trajectory)
    fine = {each.verb for each in commands} - {each.verb for each in commands if each.refusal}
    tags: dict[str, Tag] = {}
    for record in injected:
        text = record.payload.text()
        worked, failed = seen_in(text, commands)
        refuted = any(exact_key(text) in map(exact_key, f.refuted) or opposes(f.content, text) for f in findings)
        if refuted or (failed and not worked):
            tags[record.id] = "harmful"
        elif solved and (worked or text.partition(":")[0].lower() in fine):
            tags[record.id] = "helpful"
    return tags


def _attempts(steps: Sequence[Step], calls: Sequence[Sequence[Call]]) -> list[_Attempt]:
    """Return every call with its fate: in a step that errored, the calls before the failing one worked and the later
    ones were not made."""
    attempts: list[_Attempt] = []
    for step, made in zip(steps, calls, strict=True):
        guilty = len(made) if step.error is None else _guilty(step.error, made, calls[step.index + 1 :])
        for place, call in enumerate(made[: guilty + 1]):
            attempts.append(_Attempt(step.index, place, call, step.error if place == guilty else None))
    return attempts


def _guilty(error: str, made: Sequence[Call], later: Sequence[Sequence[Call]]) -> int:
    """Return the place of the call that failed: the one the error names, else the one tried again, else the last."""
    for wanted in (lambda call: call.name, lambda call: call.short):
        named = [at for at, call in enumerate(made) if re.search(rf"(?<![\w.]){re.escape(wanted(call))}\b", error)]
        if named:
            return named[-1]
    again = {call.name for step in later for call in step}
    tried = [at for at, call in enumerate(made) if call.name in again]
    return tried[-1] if tried else len(made) - 1


def _compare(
    trajectory: Trajectory, calls: Sequence[Sequence[Call]], failed: _Attempt, worked: _Attempt
) -> list[Finding]:
    words = _task_words(trajectory, worked.step)
    findings = list(changed_arguments(failed.call, worked.call, words))
    before = calls[failed.step][: failed.place]
    between = [call for step in calls[failed.step + 1 : worked.step] for call in step]
    inserted = inserted_calls([*before, failed.call], [*between, *calls[worked.step][: worked.place]])
    arguments = " ".join(worked.call.source(arg) for arg in worked.call.args)
    relevant = [
        call
        for call in inserted
        if re.search(rf"\b{re.escape(call.short)}\b", failed.error or "") or f"{call.short}(" in arguments
    ]
    if not relevant and not differs(failed.call, worked.call):
        relevant = inserted[-1:]
    wrappers = {finding.action for finding in findings}
    return findings + [
        _before(failed, call, dropped=inserted_calls(calls[worked.step][: worked.place], before))
        for call in relevant
        if call.short not in wrappers
    ]


def _before(failed: _Attempt, call: Call, dropped: Sequence[Call]) -> Finding:
    """Return the rule that `call` comes before the failed one; calls dropped for it are refuted."""
    name = failed.call.name
    finding = order_finding(name, call.name, "before")
    return replace(finding, refuted=tuple(order_finding(name, other.name, "before").content for other in dropped))


def _told(failed: _Attempt, *, overcome: bool) -> str:
    """Return the error as a rule when it is one: it names the call, prescribes, and quotes nothing of this task."""
    text = _PREFIX.sub("", one_line(failed.error or ""))[:MAX_ERROR]
    named = failed.call.name in text or (overcome and re.search(rf"\b{re.escape(failed.call.short)}\b", text))
    sources = " ".join(failed.call.source(arg) for arg in failed.call.args)
    own = any(literal in sources for pair in _LITERAL.findall(text) for literal in pair if literal)
    if not named or own or not _NORMATIVE.search(text):
        return ""
    return text if failed.call.name in text else f"{failed.call.name}: {text}"


def _from_checks(outcome: Outcome | None) -> list[Finding]:
    findings: list[Finding] = []
    for check in outcome.checks if outcome is not None else ():
        for part in () if check.passed else check.detail.split("; "):
            match = _MISMATCH.fullmatch(part.strip())
            if match is None:
                continue
            call, thing, expected, got = match.groups()
            finding = _expected(call, thing, expected)
            findings.append(replace(finding, refuted=(_expected(call, thing, got).content,)))
    return findings


def _expected(call: str, thing: str, value: str) -> Finding:
    if thing in _ORDER:
        return order_finding(call, f"{call.rpartition('.')[0]}.{value}", thing)
    return value_finding(call, thing, value)


def _task_words(trajectory: Trajectory, until: int) -> frozenset[str]:
    texts = [trajectory.instruction, *(s.observation for s in trajectory.steps[:until] if s.error is None)]
    return frozenset(word.lower() for text in texts for word in re.findall(r"[\w-]+", text))


def _tags(
    injected: Sequence[Record[Any]], findings: Sequence[Finding], trajectory: Trajectory, *, solved: bool
) -> dict[str, Tag]:
    """Tag a rule harmful when a finding says otherwise, helpful when its call never failed and the task was solved."""
    attempts = _attempts(trajectory.steps, calls_of(trajectory.steps))
    made = {attempt.call.name for attempt in attempts} - {a.call.name for a in attempts if a.error is not None}
    tags: dict[str, Tag] = {}
    for record in injected:
        text = record.payload.text()
        if any(exact_key(text) in map(exact_key, f.refuted) or opposes(f.content, text) for f in findings):
            tags[record.id] = "harmful"
        elif solved and any(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", text) for name in made):
            tags[record.id] = "helpful"
    return tags
