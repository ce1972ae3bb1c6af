"""Notes at test time: they tell each further attempt what to avoid, and pass@k is counted with and without them. Pure.

Nothing here calls a model or reads a grade that it was not given. A sample nobody judged is a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from memory.errors import BadInput
from memory.records import Frozen, Trajectory
from playbooks import prompts
from playbooks.kinds.bullet import one_line
from playbooks.kinds.note import Note
from playbooks.notebook.failure_judge import Finding
from playbooks.render import neutral
from policies.protocols import Profile
from policies.templates import render

SHOWN_CHARS = 200
Samples = Mapping[str, Sequence[bool | None]]
"""Task id -> whether each sample passed; None = missing."""


class PassAt(Frozen):
    """Mean pass@k over all tasks, without and with notes."""

    k: int
    without: float
    with_notes: float

    @property
    def gain(self) -> float:
        """Return what the notes added."""
        return self.with_notes - self.without


class PassReport(Frozen):
    """pass@k of two arms over the same tasks."""

    tasks: int
    samples: int
    """Samples each task has in each arm; absent ones were counted as failures."""
    coverage_without: float
    """Share of the samples that were judged."""
    coverage_with_notes: float
    rows: tuple[PassAt, ...]


def avoid_text(notes: Sequence[Note], attempts: Sequence[Trajectory], profile: Profile) -> str:
    """Return what a further attempt is told before it begins: known mistakes, and how `attempts` failed.

    Of the attempts only the steps' own errors, or else the last action, are told: never an outcome. Empty when there is
    nothing to avoid.
    """
    name = "retry_compact" if profile == "compact" else "retry"
    shown = [
        {
            "subject": _plain(note.subject),
            "mistake_summary": _plain(note.mistake_summary),
            "correct_approach": _plain(note.correct_approach),
            "anti_patterns": [_plain(text) for text in note.anti_patterns],
        }
        for note in notes
    ]
    return render(prompts, name, notes=shown, attempts=[_went(attempt) for attempt in attempts]).strip()


def best_of(attempts: Sequence[Trajectory], findings: Sequence[Finding]) -> int:
    """Return the index of the attempt to answer with: one found to pass, else one without a verdict, else a failure.

    Among equals the one with the fewest steps that erred, then the earliest. Raises `BadInput` without attempts, or
    when `findings` are not about them, one each, in order.
    """
    if not attempts or [a.id for a in attempts] != [f.trajectory_id for f in findings]:
        raise BadInput(
            f"got {len(attempts)} attempts and {len(findings)} findings; expected at least one attempt, "
            "with a finding for each in the same order"
        )

    def badness(at: int) -> tuple[int, int, int]:
        standing = 0 if not findings[at].failed else 1 if findings[at].missing else 2
        return standing, sum(step.error is not None for step in attempts[at].steps), at

    return min(range(len(attempts)), key=badness)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from `c` passes among `n` samples: 1 - C(n - c, k) / C(n, k).

    Chen et al. 2021 (arXiv 2107.03374), equation 1, in its numerically stable form. Raises `BadInput` unless
    0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise BadInput(f"got n={n}, c={c}, k={k}; expected 0 <= c <= n and 1 <= k <= n")
    if n - c < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def compare_pass(without: Samples, with_notes: Samples, ks: Sequence[int]) -> PassReport:
    """Return pass@k of both arms over the union of their tasks.

    Every task has as many samples as the one with the most: what is absent or None failed, in either arm. Raises
    `BadInput` without samples and for a k that no task has samples for.
    """
    tasks = sorted({*without, *with_notes})
    n = max((len(samples) for arm in (without, with_notes) for samples in arm.values()), default=0)
    if n == 0:
        raise BadInput("got no samples; expected at least one task with at least one sample in one arm")

    def mean(arm: Samples, k: int) -> float:
        passes = [sum(sample is True for sample in arm.get(task, ())) for task in tasks]
        return sum(pass_at_k(n, c, k) for c in passes) / len(tasks)

    def coverage(arm: Samples) -> float:
        return sum(sample is not None for samples in arm.values() for sample in samples) / (n * len(tasks))

    return PassReport(
        tasks=len(tasks),
        samples=n,
        coverage_without=coverage(without),
        coverage_with_notes=coverage(with_notes),
        rows=tuple(PassAt(k=k, without=mean(without, k), with_notes=mean(with_notes, k)) for k in ks),
    )


def _went(attempt: Trajectory) -> list[str]:
    """Return how an attempt went wrong: its errors, or its last action where it met none."""
    errors = list(dict.fromkeys(_plain(step.error) for step in attempt.steps if step.error))
    if errors:
        return errors
    return [f"ended with {_plain(attempt.steps[-1].action)}"] if attempt.steps else ["nothing was done"]


def _plain(text: str) -> str:
    return one_line(neutral(text))[:SHOWN_CHARS]
