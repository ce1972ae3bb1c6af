"""Trials of weights of SAGE in miniature: in offices nobody trained on, with or without a library.

In all arms alike an agent is told the silent rules of the office, which a grader alone reveals; the others it finds out
by acting, and is locked out at the third refused call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.house_rules import RULES
from evolve.environments.office.wording import sentence
from evolve.episode.injection import Shown
from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.episode.skill_runtime.chains import Link, chain
from evolve.parallel import all_of
from evolve.seeds import id_for, seed_for
from evolve.training.chain_tasks import chains
from evolve.training.rollouts import Recall
from memory.records import Record, Task
from playbooks.kinds.bullet import Bullet
from policies.local import LocalPolicy
from skills.library import Library
from skills.retrieval import Choosing

MAX_STEPS, MAX_TOKENS = 16, 120


async def tried(
    weights: Path, adapter: Path | None, how: RolloutConfig, offices: Sequence[Office], scenarios: int | None = None
) -> dict[str, list[float]]:
    """Return for each office what weights come to on test_normal: TGC and SGC in %, steps and tokens of a task.

    Each scenario's three tasks are a chain that begins without functions, as in the paper.
    """
    policy = LocalPolicy(weights, adapter, threads=1, name="pocket", profile="compact")
    try:
        found = await all_of(_tried(world, policy, how, scenarios) for world in offices)
    finally:
        await policy.aclose()
    return dict(zip(("tgc", "sgc", "steps", "tokens"), map(list, zip(*found, strict=True)), strict=True))


async def _tried(
    world: Office, policy: LocalPolicy, how: RolloutConfig, scenarios: int | None
) -> tuple[float, float, float, float]:
    own = chains(world.tasks("test_normal"), 3, seed=0)[:scenarios]
    links = await all_of(_chain(world, each.tasks, policy, how) for each in own)
    done = [link.trajectory for each in links for link in each]
    return (
        100 * mean(t.success for t in done),
        100 * mean(all(link.trajectory.success for link in each) for each in links),
        mean(len(t.steps) for t in done),
        mean(t.usage.completion_tokens for t in done),
    )


async def _chain(world: Office, tasks: Sequence[Task], policy: LocalPolicy, how: RolloutConfig) -> Sequence[Link]:
    attempts = [
        Attempt(id=id_for("ex", t.id), task=t, seed=seed_for(0, t.id), core=given(world)(t).core) for t in tasks
    ]
    return await chain(world, policy, attempts, how, Library(), Choosing() if how.skills else Choosing(k=0))


def office(deployment: int) -> Office:
    """Return an office."""
    return Office(OfficeConfig(deployment=deployment))


def given(world: Office) -> Recall:
    """Return what is shown in an office: the rules that a grader alone reveals."""
    silent = [sentence(rule, world.values[rule.id]) for rule in RULES if rule.feedback == "silent"]
    core = tuple(
        Record[Bullet](id=f"r{n}", kind="bullet", number=n, payload=Bullet(content=text))
        for n, text in enumerate(silent, 1)
    )
    return lambda task: Shown(core=core)


def acting(skills: bool, temperature: float) -> RolloutConfig:
    """Return how episodes are done."""
    return RolloutConfig(world="", max_steps=MAX_STEPS, temperature=temperature, max_tokens=MAX_TOKENS, skills=skills)
