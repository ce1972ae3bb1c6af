"""A chain: tasks done one after another by one agent that may use, in each, what it wrote in those before.

What is saved in a chain stays in it (SAGE, arXiv 2512.17102: the library belongs to the rollout, nothing is shared
inside a group): it lives in an overlay of the library, nothing of it is committed, and the base never notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.episode.skill_runtime.skill_proposals import skill_ops
from evolve.protocols import Environment
from memory.errors import BadInput, NotFound
from memory.records import DeltaOp, Injection, Op, Record, Trajectory
from policies.protocols import Policy, Profile
from skills.library import Library, Overlay
from skills.listing import catalogue
from skills.record import Skill
from skills.retrieval import Choosing, choose
from skills.static_checks import complaints


@dataclass(frozen=True)
class Link:
    """One task of a chain, and the skills that it was given: those of the overlay are in no journal."""

    trajectory: Trajectory
    shown: tuple[Record[Skill], ...] = ()


async def chain(
    environment: Environment,
    policy: Policy,
    attempts: Sequence[Attempt],
    acting: RolloutConfig,
    base: Library,
    how: Choosing | None = None,
) -> tuple[Link, ...]:
    """Return what became of a chain's attempts, in order. The skills of each are chosen from base and overlay.

    Raises what `rollout` raises.
    """
    overlay = base.overlay()
    done: list[Link] = []
    for attempt in attempts:
        skills = choose(overlay, attempt.task, how, cost=lambda found: _cost(found, policy)).records
        injected = (*attempt.injected, *(_injection(record, at) for at, record in enumerate(skills)))
        given = replace(attempt, skills=skills, injected=injected)
        done.append(Link(await rollout(environment, policy, given, acting), skills))
        take(overlay, done[-1].trajectory, skills, policy.profile)
    return tuple(done)


def take(overlay: Overlay, trajectory: Trajectory, shown: Sequence[Record[Skill]], profile: Profile) -> None:
    """Change the overlay as an episode asks for, whatever came of its task; what no skill may be is left out.

    So is a name that is taken, and a function whose requirements are missing: as a gate would say.
    """
    for op in skill_ops(trajectory, shown, profile, success=None):
        with suppress(BadInput, NotFound):
            _apply(overlay, op, {record.id: record.payload.name for record in shown})


def _apply(overlay: Overlay, op: DeltaOp, names: dict[str, str]) -> None:
    if op.op is Op.REMOVE:
        overlay.delete(names[op.target_id or ""])
        return
    skill = Skill.model_validate(op.payload)
    if complaints(skill, known=overlay.names):
        return
    _ = overlay.update(skill) if op.op is Op.EDIT else overlay.save(skill, op.provenance)


def _cost(records: Sequence[Record[Skill]], policy: Policy) -> int:
    return policy.count_tokens(catalogue(records, policy.profile))


def _injection(record: Record[Skill], rank: int) -> Injection:
    return Injection(record_id=record.id, version=record.version, label=record.label, rank=rank)
