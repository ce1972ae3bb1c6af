"""Counts what became of the records that were shown: pure, from episodes and reflections to TAG ops.

injected  shown in a prompt                     cited     named in a reply
success / failure   shown in an episode that ended so (nobody knows in label-free mode without a judge)
helpful   cited in a success by a step that worked, where the reflector gave it no tag (its tags are counted by the
          curator's own ops)
harmful   cited by failing steps only, and given up: the step that made the same call work cites something else instead,
          be it a guess (`[?]`); where the reflector gave it no tag
Of skills, which are called and not cited, see `evolve.episode.skill_runtime.skill_credit`; of exemplars, which are
followed, `evolve.episode.exemplars.exemplar_credit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.episode.exemplars.exemplar_credit import exemplar_counts
from evolve.episode.skill_runtime.skill_credit import skill_counts
from memory.records import DeltaOp, Op, Record, Step, Tag, Trajectory, UsageCounts
from playbooks.calls import calls_of
from playbooks.citations import cited, cites


@dataclass(frozen=True)
class Credited:
    """One episode with what is needed to credit its records."""

    trajectory: Trajectory
    shown: Sequence[Record[Any]]
    success: bool | None
    skills: Sequence[Record[Any]] = ()
    """The skills that it was given."""
    exemplars: Sequence[Record[Any]] = ()
    """The solved tasks that it was shown."""
    tags: Mapping[str, Tag] = field(default_factory=dict[str, Tag])


def tag_ops(episodes: Sequence[Credited], subject: str) -> tuple[DeltaOp, ...]:
    """Return one TAG per record that was shown in a batch; `subject` makes the op ids those of the batch."""
    totals: dict[str, UsageCounts] = {}
    kinds: dict[str, str] = {}
    versions: dict[str, int] = {}
    for episode in episodes:
        versions |= {shown.record_id: shown.version for shown in episode.trajectory.injected}
        for record in (*episode.shown, *episode.skills, *episode.exemplars):
            kinds[record.id] = record.kind
            totals[record.id] = totals.get(record.id, UsageCounts())
        skills = skill_counts(episode.trajectory, episode.skills, episode.success)
        exemplars = exemplar_counts(episode.trajectory, episode.exemplars, episode.success)
        for record_id, counts in (_counts(episode) | skills | exemplars).items():
            totals[record_id] = totals[record_id] + counts
    return tuple(
        DeltaOp(
            op=Op.TAG,
            op_id=f"{subject}/tag/{key}",
            kind=kinds[key],
            target_id=key,
            base_version=versions.get(key),
            usage=counts,
        )
        for key, counts in totals.items()
    )


def _counts(episode: Credited) -> dict[str, UsageCounts]:
    steps = episode.trajectory.steps
    named = [{record.id for record in cited(_reply(step), episode.shown)} for step in steps]
    worked = {key for step, keys in zip(steps, named, strict=True) if step.error is None for key in keys}
    failed = {key for keys in named for key in keys} - worked
    given_up = _given_up(steps, named) if failed else frozenset[str]()
    counts: dict[str, UsageCounts] = {}
    for record in episode.shown:
        untagged = record.id not in episode.tags
        counts[record.id] = UsageCounts(
            injected=1,
            cited=record.id in worked or record.id in failed,
            success=episode.success is True,
            failure=episode.success is False,
            helpful=episode.success is True and record.id in worked and untagged,
            harmful=record.id in failed & given_up and untagged,
        )
    return counts


def _given_up(steps: Sequence[Step], named: Sequence[set[str]]) -> frozenset[str]:
    """Return the ids cited by a failing step and not by the step that made one of its calls work, which cites too."""
    calls = [{call.name for call in made} for made in calls_of(steps)]
    found: set[str] = set()
    for at, step in enumerate(steps):
        if step.error is None or not named[at]:
            continue
        later = range(at + 1, len(steps))
        worked = next((k for k in later if steps[k].error is None and calls[k] & calls[at]), None)
        if worked is not None and cites(_reply(steps[worked])):
            found |= named[at] - named[worked]
    return frozenset(found)


def _reply(step: Step) -> str:
    return step.reply or step.action
