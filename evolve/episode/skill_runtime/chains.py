"""A chain: tasks done one after another by one agent that may use, in each, what it wrote in those before.

What is written in a chain stays in it (SAGE, arXiv 2512.17102: the library belongs to the rollout, nothing is shared
inside a group): it lives in an overlay of the library, nothing of it is committed, and the base never notices. So no
gate is asked: every function that ran is there in the next task, whatever its style, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from evolve.episode.injection import injection_of
from evolve.episode.rollout import Attempt, RolloutConfig, SameName, rollout
from evolve.episode.skill_runtime.skill_proposals import skill_ops
from evolve.protocols import Environment
from memory.errors import BadInput, NotFound
from memory.records import Op, Record, Trajectory
from policies.protocols import Policy
from skills.library import Library, Overlay
from skills.listing import catalogue
from skills.record import Skill
from skills.retrieval import Choosing, choose


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
        injected = (*attempt.injected, *(injection_of(record, at) for at, record in enumerate(skills)))
        given = replace(attempt, skills=skills, injected=injected)
        done.append(Link(await rollout(environment, policy, given, acting), skills))
        take(overlay, done[-1].trajectory, skills, acting.same_name)
    return tuple(done)


def take(
    overlay: Overlay, trajectory: Trajectory, shown: Sequence[Record[Skill]], same_name: SameName = "kept"
) -> None:
    """Change the overlay as an episode asks for, whatever came of its task.

    Left out is a function whose requirements are missing, and, where skills are `kept`, one whose name is taken.
    """
    names = {record.id: record.payload.name for record in shown}
    task = {"origin": trajectory.task.instruction, "scenario": trajectory.task.scenario, "summary": ""}
    for op in skill_ops(trajectory, shown, success=None):
        with suppress(BadInput, NotFound):
            if op.op is Op.REMOVE:
                overlay.delete(names[op.target_id or ""])
            elif same_name == "replaced":
                overlay.put(Skill.model_validate({**(op.payload or {}), **task}), op.provenance)
            elif op.op is Op.EDIT:
                overlay.update(Skill.model_validate(op.payload))
            else:
                overlay.save(Skill.model_validate(op.payload), op.provenance)


def _cost(records: Sequence[Record[Skill]], policy: Policy) -> int:
    return policy.count_tokens(catalogue(records, policy.profile))
