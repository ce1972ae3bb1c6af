"""Failure evidence: the task, the last steps that matter, and what was found wrong. Pure, and bounded in length."""

from __future__ import annotations

from textwrap import indent

from memory.records import Frozen, Reflection, Trajectory
from playbooks.compact import failed_checks, salient_steps
from playbooks.kinds.bullet import one_line
from playbooks.notebook.failure_judge import Finding
from playbooks.notebook.quoting import middle_out
from playbooks.render import neutral
from policies.protocols import Profile

TAIL_CHARS = 256
"""Characters kept of each long text, as in the paper's code."""
LAST_STEPS = 4
COMPLAINTS = 6


class Failure(Frozen):
    """One failed episode as the notebook sees it."""

    trajectory_id: str
    task_id: str
    instruction: str
    attempt: tuple[tuple[str, str], ...]
    """The last salient (action, observation) pairs."""
    complaints: tuple[str, ...]
    """What was found wrong: failed checks, the judge's reason, error texts, the reflector's root cause."""
    lessons: tuple[str, ...] = ()
    """What the reflector made of it."""

    def mistake(self) -> str:
        """Return what went wrong as one text; the instruction where nothing says."""
        return "\n".join(self.complaints) or self.instruction


def failure_of(
    trajectory: Trajectory,
    finding: Finding,
    reflection: Reflection,
    *,
    label_free: bool,
    faults: tuple[str, ...] = (),
) -> Failure:
    """Return the failure that an episode was found to be. With `label_free` the outcome is not read.

    `faults` are what went wrong in it beside its grade.
    """
    checks = () if label_free or trajectory.outcome is None else failed_checks(trajectory.outcome)
    said = [*faults, *(f"{check.name}: {check.detail}" for check in checks)]
    said += [finding.reason] if label_free else []
    said += [step.error or "" for step in trajectory.steps] + [reflection.root_cause if reflection.parsed else ""]
    steps = salient_steps(trajectory, label_free=label_free) or trajectory.steps[-1:]
    return Failure(
        trajectory_id=trajectory.id,
        task_id=trajectory.task.id,
        instruction=trajectory.instruction,
        attempt=tuple((_tail(step.action), _tail(step.observation)) for step in steps[-LAST_STEPS:]),
        complaints=tuple(dict.fromkeys(text for item in said if (text := _tail(one_line(item)))))[:COMPLAINTS],
        lessons=tuple(insight.content for insight in reflection.insights) if reflection.parsed else (),
    )


def shown(failure: Failure, profile: Profile) -> dict[str, object]:
    """Return a failure as the prompts of `profile` show it: values that cannot pass for the prompt's own marks."""

    def block(text: str) -> str:
        plain = middle_out(neutral(text), 2 * TAIL_CHARS)
        return indent(plain, "  ") if profile == "full" else one_line(plain)

    return {
        "task": block(failure.instruction),
        "steps": [{"action": block(action), "observation": block(seen)} for action, seen in failure.attempt],
        "complaints": [one_line(neutral(text)) for text in failure.complaints],
        "lessons": [one_line(neutral(text)) for text in failure.lessons],
    }


def _tail(text: str) -> str:
    return text if len(text) <= TAIL_CHARS else f"[...] {text[-TAIL_CHARS:]}"
