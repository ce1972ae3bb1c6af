"""The distiller: successful episodes in, typed functions out, written by the policy. It changes nothing.

The rules it is asked to keep are those of ASI (arXiv 2504.06821): a function of two to five calls, a docstring, no
try/except, nothing of the one task in it. With `revise`, what is wrong with an answer goes back to the policy for a new
one, up to so many times (SkillWeaver, arXiv 2504.07079, feeds violations back; Skill-R1 revises generation by
generation).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import NamedTuple

from pydantic import Field

from memory.errors import BadInput, NotFound
from memory.operations import op_id
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Op, Provenance, Reflection, Trajectory, Trust, Usage
from policies.errors import PolicyRefused
from policies.protocols import Message, Policy, SamplingParams
from policies.structured import generate_structured
from policies.templates import oneline, render, render_turns
from skills import prompts
from skills.drafts import MOST, Drafts, Made, made
from skills.library import Library, Overlay
from skills.listing import line
from skills.names import parsed
from skills.record import Skill
from skills.retrieval import Choosing, choose

STEPS, STATEMENTS = 2, 3
"""Least steps of an episode that is distilled, or statements of its only one: a single call is no work to be named."""
LISTED = 24
"""Most known skills that a prompt lists with signature and description; of the others the names."""
CODE_CHARS, PRINTED_CHARS = 4_000, 1_500
Examine = Callable[[Skill, Overlay, Trajectory], Awaitable[Sequence[str]]]
"""Returns what is wrong with a skill of the library that was made from an episode, one sentence each."""


async def nothing(skill: Skill, library: Overlay, trajectory: Trajectory) -> Sequence[str]:
    """Find nothing wrong: it is for the gates to say."""
    return ()


class DistillSettings(Frozen):
    """How curator `distill` writes skills."""

    revise: int = Field(default=0, ge=0)
    """Most new answers it asks for after what is wrong with a function, as it reads and as its own task goes with it.
    0 = it asks once, and the gates decide."""


@dataclass(frozen=True)
class Distilling:
    """What the distiller is given: where it reads episodes, which of them succeeded, and what answers are held to."""

    episodes: Callable[[str], Trajectory | None]
    succeeded: Callable[[Trajectory], bool] = lambda trajectory: trajectory.success
    examine: Examine = nothing
    revise: int = DistillSettings().revise
    """Most new answers that an episode's answer is given after what is wrong with it."""
    trust: Trust = Trust.SELF_JUDGED


def distill_messages(trajectory: Trajectory, library: Library) -> list[Message]:
    """Return the prompt that asks for an episode's functions. Pure; the outcome is not read."""
    task = trajectory.task
    near = [chosen.record for chosen in choose(library, task, Choosing(k=LISTED)).chosen]
    listed = {record.payload.name for record in near}
    return render_turns(
        prompts,
        "distill",
        task=_block(task.instruction, CODE_CHARS),
        steps=[
            {"code": _block(step.action, CODE_CHARS), "printed": _block(step.observation, PRINTED_CHARS)}
            for step in trajectory.steps
        ],
        known=[oneline(line(record.payload, "full")) for record in near],
        taken=[name for name in library.names if name not in listed],
        most=MOST,
    )


def _is_short(trajectory: Trajectory) -> bool:
    tree = parsed(trajectory.steps[0].action) if len(trajectory.steps) == 1 else None
    return len(trajectory.steps) < STEPS and (tree is None or len(tree.body) < STATEMENTS)


class Distiller:
    """Asks `policy` for the functions of successful episodes. Implements `playbooks.protocols.Curator`.

    Episodes are read in order, each against the library as those before it would leave it. An answer that could not be
    parsed, was refused in part or written anew is handed to `keep` as a raw reflection, all its generations in it.
    """

    def __init__(self, policy: Policy, given: Distilling, keep: Callable[[Reflection], object]) -> None:
        self._policy = policy
        self._given = given
        self._keep = keep
        self._params = SamplingParams(max_tokens=4096)

    @property
    def name(self) -> str:
        return f"distill:{self._policy.name}"

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return an ADD for each new function, an EDIT for each that replaces a known one: callees first."""
        base = Library(view.records(Skill.kind))
        library, ops = base.overlay(), dict[str, DeltaOp]()
        for reflection in reflections:
            trajectory = self._given.episodes(reflection.trajectory_id)
            if trajectory is None or _is_short(trajectory) or not self._given.succeeded(trajectory):
                continue
            kept, library = await self._distilled(trajectory, library)
            ops |= {each.skill.name: self._op(each.skill, base, trajectory) for each in kept}
        names = (record.payload.name for record in library.closure(ops))
        return tuple(ops[name] for name in names if name in ops)

    async def _distilled(self, trajectory: Trajectory, library: Overlay) -> tuple[Sequence[Made], Overlay]:
        """Return the functions of an episode and the library with them; what cannot be used is set aside.

        A generation that cannot be read ends the revising, and what the one before it made counts.
        """
        messages, said, usage = distill_messages(trajectory, library), list[str](), Usage()
        found, parsed = _Placed((), library, ()), False
        while len(said) <= self._given.revise:
            try:
                answer, reply, raw = await generate_structured(self._policy, messages, Drafts, self._params)
            except PolicyRefused as refused:
                answer, raw = None, f"the policy refused to answer: {refused}"
            else:
                usage += reply.usage
            said.append(raw)
            if answer is None:
                break
            found, parsed = await self._placed(answer, trajectory, library), True
            if not found.wrong:
                break
            again = render(prompts, "distill_again", wrong=found.wrong).strip()
            messages += [Message(role="assistant", content=raw), Message(role="user", content=again)]
        if found.wrong or len(said) > 1 or not parsed:
            self._set_aside(trajectory, said, found.wrong, usage, parsed)
        return found.kept, found.library

    async def _placed(self, answer: Drafts, trajectory: Trajectory, library: Overlay) -> _Placed:
        """Return what of an answer fits into the library, callees first, and what is wrong with the rest."""
        skills, unusable = made(answer, trajectory.task, [record.payload for record in library.records])
        kept, wrong = list[Made](), list(unusable)
        for each in skills:
            name, trial = each.skill.name, library.overlay()
            try:
                _ = trial.update(each.skill) if each.replaces and name in trial.names else trial.save(each.skill)
            except (BadInput, NotFound) as refused:
                wrong.append(f"{name}: {refused}")
                continue
            faults = await self._given.examine(each.skill, trial, trajectory)
            wrong += [f"{name}: {fault}" for fault in faults]
            if not faults:
                kept.append(each)
                library = trial
        return _Placed(tuple(kept), library, tuple(wrong))

    def _op(self, skill: Skill, base: Library, trajectory: Trajectory) -> DeltaOp:
        """Return the ADD of a skill, or the EDIT of the one that has its name, whose origin stays."""
        origin = Provenance(
            trust=self._given.trust,
            trajectory_ids=(trajectory.id,),
            task_ids=(trajectory.task.id,),
            author=self.name,
        )
        key = op_id("distill", skill.source, trajectory.id)
        if skill.name not in base.names:
            payload = skill.model_dump(mode="json")
            return DeltaOp(op=Op.ADD, op_id=key, kind=Skill.kind, payload=payload, provenance=origin)
        old = base.get(skill.name)
        kept = {"origin": old.payload.origin, "scenario": old.payload.scenario}
        return DeltaOp(
            op=Op.EDIT,
            op_id=key,
            kind=Skill.kind,
            target_id=old.id,
            base_version=old.version,
            payload=skill.model_copy(update=kept).model_dump(mode="json"),
            provenance=origin,
        )

    def _set_aside(
        self, trajectory: Trajectory, said: Sequence[str], wrong: Sequence[str], usage: Usage, parsed: bool
    ) -> None:
        many = len(said) > 1
        raw = "\n\n".join(f"generation {at}:\n{text}" if many else text for at, text in enumerate(said, 1))
        self._keep(
            Reflection(
                trajectory_id=trajectory.id,
                task_id=trajectory.task.id,
                root_cause="; ".join(wrong),
                raw=raw,
                parsed=parsed,
                author=self.name,
                usage=usage,
            )
        )


class _Placed(NamedTuple):
    """What became of one answer."""

    kept: Sequence[Made]
    library: Overlay
    wrong: tuple[str, ...]


def _block(text: str, limit: int) -> str:
    """Return outside text, indented, its middle left out when it is long: no line of it can pass for a mark."""
    half = limit // 2
    if len(text) > limit:
        text = f"{text[:half]}\n[... {len(text) - limit} characters left out ...]\n{text[-half:]}"
    return indent(text, "  ")
