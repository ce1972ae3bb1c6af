"""Damaged replies through the real reflector and curator into a real store: what became of each lesson.

The model is stubborn: asked again, it says the same. So whatever is kept was recovered from the damaged text. What
imitates a line of the playbook is refused before it is stored. So that prompts are asked too, some such texts are
stored past that check.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from benchmarks.damage import FORGED, Damaged, curation, damage, lesson, reflection
from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.runs import keeper
from memory.records import DeltaOp, Insight, Op, Outcome, Record, Reflection, Step, Task, Trajectory
from memory.store import Store
from playbooks.curator import ModelCurator
from playbooks.delta_checks import validate
from playbooks.reflector import ModelReflector
from playbooks.render import render
from policies.protocols import Profile
from policies.scripted import ScriptedPolicy

HEADINGS = ("## Rules of this environment", "## Rules recalled for this task")
READABLE = ("think block", "header before", "header inside", "raw line breaks", "fenced, with chatter")
"""Kinds of damage that leave a reply whole: all of its fields can be read."""
FORGERIES = 20
"""Records with forged lines, as another program may write them."""
_ORDER = FORGED.rpartition(":: ")[2]


@dataclass
class Kept:
    """What became of the replies."""

    replies: int = 0
    crashes: list[str] = field(default_factory=list[str])
    recoverable: int = 0
    missed: Counter[str] = field(default_factory=Counter[str])
    """Kind of damage -> recoverable lessons that were not kept as lessons."""
    raw: int = 0
    """Replies stored as raw reflections."""
    dropped: int = 0
    """Replies of which neither a lesson nor an op nor a raw reflection is in the store."""
    forged: int = 0
    """Lines of rendered prompts that pass for a heading or for another bullet."""
    forgeries: int = 0
    """Records that hold forged lines."""
    findings: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Case:
    """One damaged reply that went through a role; `key` names the trajectory it was about."""

    key: str
    damaged: Damaged
    wanted: Insight | None = None
    """The lesson a curator was asked about; None for a reflector."""
    decided: bool = False
    """The curator proposed an op, or said in a reply that the damage left whole that there is nothing to do."""


async def send_damaged(root: Path, replies: int, seed: int) -> Kept:
    """Send so many damaged replies, in turns as reflections and curations of both profiles."""
    config = Config.model_validate({"root": root, "memory": {"index": "exact"}})
    kept, rng, cases = Kept(replies), random.Random(seed), list[Case]()
    profiles: tuple[Profile, ...] = get_args(Profile)
    with open_store(config) as store:
        target = DeltaOp(op=Op.ADD, payload={"content": "mail.send: the subject must not be empty"})
        store.commit("default", [target], actor="benchmark")
        for number in range(replies):
            role = (_reflect, _curate)[number % 2]
            try:
                cases.append(await role(store, profiles[number // 2 % 2], f"t{number}", rng))
            except Exception:  # whatever escapes is what is counted here
                kept.crashes.append(traceback.format_exc())
        stored = {item.trajectory_id: item for item in store.reflections()}
        for case in cases:
            _count(case, stored.get(case.key), kept)
        planted = [DeltaOp(op=Op.ADD, payload={"content": lesson(rng) + FORGED}) for _ in range(FORGERIES)]
        store.commit("default", planted, actor="benchmark")
        records = store.records("default")
        kept.forgeries = sum(_ORDER in record.payload.content for record in records)
        groups = [records[at : at + 20] for at in range(0, len(records), 20)]
        kept.forged = sum(_forged(group, profile) for group in groups for profile in profiles)
        kept.findings = [f"{item.code}: {item.message}" for item in store.doctor() if item.level != "info"]
    return kept


async def _reflect(store: Store, profile: Profile, key: str, rng: random.Random) -> Case:
    damaged = damage(reflection(profile, rng), rng)
    task = Task(id=key, instruction="Send the mail.")
    step = Step(index=0, action="apps.mail.send()", observation="error: E17", error="E17")
    failed = Trajectory(id=key, task=task, steps=(step,), outcome=Outcome(success=False, reward=0.0))
    made = await ModelReflector(_stubborn(damaged, profile)).reflect(failed, store.view("default").records()[:1])
    store.add_reflection(made)
    return Case(key, damaged)


async def _curate(store: Store, profile: Profile, key: str, rng: random.Random) -> Case:
    damaged, wanted = damage(curation(profile, rng), rng), Insight(content=lesson(rng))
    given = Reflection(trajectory_id=key, task_id=key, insights=(wanted,))
    view = store.view("default")
    ops = await ModelCurator(_stubborn(damaged, profile), keep=keeper(store)).curate([given], view)
    if ops:
        store.commit("default", validate(ops, view).accepted, actor="benchmark")
    nothing = damaged.how in READABLE and '"NONE"' in damaged.text
    return Case(key, damaged, wanted, decided=bool(ops) or nothing)


def _count(case: Case, stored: Reflection | None, kept: Kept) -> None:
    """Count what is in the store of one reply. Blank space aside, a lesson is kept when a stored one contains it."""
    damaged = case.damaged
    if case.wanted is not None:
        kept.raw += stored is not None
        kept.dropped += not (case.decided or (stored is not None and stored.insights == (case.wanted,)))
        return
    texts = ["".join(insight.content.split()) for insight in stored.insights] if stored else []
    kept.recoverable += len(damaged.recoverable)
    kept.missed[damaged.how] += sum(not any("".join(t.split()) in text for text in texts) for t in damaged.recoverable)
    kept.raw += stored is not None and not stored.parsed
    kept.dropped += stored is None or not (stored.parsed or damaged.text.strip() in stored.raw)


def _stubborn(damaged: Damaged, profile: Profile) -> ScriptedPolicy:
    return ScriptedPolicy(lambda messages, params: damaged.text, profile=profile, version="stubborn")


def _forged(records: Sequence[Record[Any]], profile: Profile) -> int:
    """Return how many lines start like a heading or a bullet and are none."""
    lines = render(records, profile).split("\n")
    if profile == "compact":
        return len(lines) - len(records)
    starts = tuple(f"[{r.label}] " for r in records)
    marked = [line for line in lines if line.lstrip().startswith(("#", "[")) and line == line.lstrip()]
    return len([line for line in marked if line not in HEADINGS and not line.startswith(starts)])
