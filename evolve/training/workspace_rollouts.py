"""Training by rollouts in a workspace: its world, what its agent is shown, and what `[train]` says of both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.episode.injection import choose_core, recall_for, sought
from evolve.episode.rollout import RolloutConfig
from evolve.errors import ConfigError, RunMismatch
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import make_environment, open_store
from evolve.loop.rollout_settings import plain_rollouts
from evolve.progress import Observers, RunFinished
from evolve.protocols import Environment
from evolve.telemetry.described import Traced
from evolve.telemetry.start import traced
from evolve.training import ledger, reuse
from evolve.training.ab_groups import Matching, matching_of
from evolve.training.admission import Weighed, weigh
from evolve.training.branches import Branching, branching_of
from evolve.training.chain_tasks import chains
from evolve.training.curriculum import Curriculum
from evolve.training.estimates import begin, outcomes
from evolve.training.evaluation import evaluation_of
from evolve.training.known_worlds import LIMITS, known_worlds
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.retries import Retrying, retrying_of
from evolve.training.rollout_policy import require_rollouts, rollout_policy
from evolve.training.rollouts import Recall, Sampling, unknowing
from evolve.training.training_data import trainable
from memory.errors import BadInput
from memory.snapshots import address
from memory.store import Store
from playbooks.core import core_records
from policies.protocols import Policy, Profile
from policies.rl.protocols import AdvantageEstimator, GroupFilter
from policies.rl.trainer import Trainer

Report = Callable[[dict[str, float]], None]
SNAPSHOT, WORLDS = "snapshot", "worlds.json"
"""Of a training's folder: names the knowledge that it began with, and the other worlds that it draws tasks from."""


@dataclass(frozen=True)
class Methods:
    """What `[train]` names, made before anything is rolled out."""

    advantages: AdvantageEstimator
    filter: GroupFilter
    curriculum: Curriculum
    retrying: Retrying | None = None
    branching: Branching | None = None


def methods_of(config: Config) -> Methods:
    """Return the methods.

    Raises `NotFound` for a name that is not there, `ConfigError` for keys that do not go together.
    """
    section = config.train
    require_rollouts(config)
    if config.run.label_free:
        raise ConfigError(
            "run.label_free says that no grade may be read, and a training by rollouts is paid by grades; set it to "
            "false, or let `evolve train sft` learn from what was judged to be right"
        )
    if section.candidates and not config.playbook.enabled:
        raise ConfigError("train.candidates measures texts where they are shown; it takes playbook.enabled")
    ahead, branches = section.partial.oversampling, section.branching.branches
    if ahead > 1 and (section.candidates or section.retries or branches):
        raise ConfigError(
            f"got train.partial.oversampling = {ahead} with candidates = {section.candidates}, retries = "
            f"{section.retries!r}, branches = {branches}; these three take batches that wait for all: set 1"
        )
    if section.refill and (ahead > 1 or section.candidates or section.retries or branches):
        raise ConfigError(
            f"got train.refill = {section.refill} with partial.oversampling = {ahead}, candidates = "
            f"{section.candidates}, retries = {section.retries!r}, branches = {branches}; a refill takes whole groups "
            "of plain rollouts: set 0"
        )
    reuse.require_fits(section)
    used = {"correction": section.correction.name, "transform": section.retries, "branching": branches}
    for key, wanted in used.items():
        if getattr(section, key).options and not wanted:
            raise ConfigError(f"[train.{key}] has options, and no {key} is used; take it out, or ask for one")
    return Methods(
        advantages=section.member("advantages"),
        filter=section.member("filter"),
        curriculum=Curriculum(section.member("sampler"), section.member("allocator")),
        retrying=retrying_of(section, generations.profile_of(config.policy)),
        branching=branching_of(section),
    )


def rolled_out(
    config: Config, folder: Path, trainer: Trainer, methods: Methods, report: Report
) -> tuple[str, tuple[Weighed, ...]]:
    """Train by rollouts; return why a guard stopped it, and what became of the texts it measured.

    Raises as `load_tasks` and as `learn`, and `BadInput` where no tasks make a chain.
    """
    policy = rollout_policy(config, folder, trainer)
    environment = make_environment(config)
    with open_store(config, policy.count_tokens, owner=False) as store:
        world = world_of(environment, config, store, policy, folder / SNAPSHOT)
        acting = acting_of(config, environment, policy.profile)
        worlds = [(config, world), *_older(config, acting, policy, store, folder)]
        begin(folder, lambda: outcomes(filter(trainable, store.trajectories())))
        matching = _matching(config, store, policy, world, folder)
        parts = Learning(
            policy,
            trainer,
            methods.advantages,
            methods.filter,
            acting,
            methods.curriculum,
            methods.retrying,
            methods.branching,
            matching,
            evaluation_of(config, environment, world.recall),
        )
        observers = Observers()
        with traced(config, Traced(folder.name, "train", policy, environment.name), observers):
            stopped = asyncio.run(_learned(config, worlds, parts, folder, report))
            observers.notify(RunFinished(run_id=folder.name, status="stopped" if stopped else "done", reason=stopped))
        return stopped, weigh(config, matching) if matching else ()


async def _learned(
    config: Config, worlds: Sequence[tuple[Config, World]], parts: Learning, folder: Path, report: Report
) -> str:
    """Return what `learn` does, with its episodes where `run.executor` wants them; end the policy."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(parts.policy.aclose)
        if config.run.executor == "ray":
            from evolve.loop.executors import ray_worlds

            executor = await stack.enter_async_context(ray_worlds.opened(config.run.workers))
            for own, world in worlds:
                executor.know(own, world.environment)
            parts = replace(parts, acting=replace(parts.acting, executor=executor))
        return await learn([world for _, world in worlds], parts, plan_of(config), folder, report)


def _older(
    config: Config, acting: RolloutConfig, policy: Policy, store: Store, folder: Path
) -> list[tuple[Config, World]]:
    """Return the other worlds of the workspace from which a training draws, with the settings that make them.

    Those that it began with, whose agent is told what it is told in the configured one, and whose tasks make chains of
    the asked length.
    None where nothing is replayed, where the groups measure texts, which are of one namespace (`train.candidates`), or
    where the training was begun by a version that drew from none. Raises `RunMismatch` for one that is gone.
    """
    if not config.train.replay or config.train.candidates:
        return []
    _, *others = known_worlds(config)
    there = {
        each.name: (_as_here(config, each.config), make_environment(each.config)) for each in others if not each.missing
    }
    if not (folder / WORLDS).exists():
        begun = (folder / ledger.METRICS).exists()
        same = [
            name
            for name, (own, world) in there.items()
            if not begun and acting_of(own, world, policy.profile) == acting and has_chains(config, own, world)
        ]
        left = [each.name for each in others if each.name not in same]
        ledger.write(folder / WORLDS, json.dumps({"drawn": same, "left_out": left}))
    drawn: list[str] = json.loads((folder / WORLDS).read_text())["drawn"]
    if gone := [name for name in drawn if name not in there]:
        raise RunMismatch(f"{folder.name} draws tasks of {gone[0]}, which cannot be opened; restore it, or begin anew")
    return [
        (own, world_of(world, own, store, policy, folder / f"{SNAPSHOT}-{at}"))
        for at, (own, world) in enumerate(there[name] for name in drawn)
    ]


def has_chains(config: Config, own: Config, world: Environment) -> bool:
    """Tell whether a world has chains as the training takes them."""
    try:
        return bool(chains(load_tasks(own, world, own.run.split), config.train.length, 0, config.train.by))
    except (BadInput, ConfigError):
        return False


def _as_here(config: Config, own: Config) -> Config:
    """Return another world's settings with the limits that an episode has in the configured one."""
    limits = config.environment.model_dump(include=set(LIMITS))
    return own.model_copy(update={"environment": own.environment.model_copy(update=limits)})


def left_out(folder: Path) -> tuple[str, ...]:
    """Return the other worlds from which a training draws no tasks."""
    return tuple(json.loads((folder / WORLDS).read_text())["left_out"]) if (folder / WORLDS).exists() else ()


def plan_of(config: Config) -> Plan:
    """Return what `[train]` says of a training by rollouts."""
    section = config.train
    sampling = Sampling(
        rollouts=section.rollouts // 2 if section.retries else section.rollouts - section.branching.branches,
        skills=section.skills,
        seed=config.run.seed,
    )
    return Plan(
        iterations=section.iterations,
        chains=section.chains,
        length=section.length,
        by=section.by,
        sampling=sampling,
        limits=section.limits,
        partial=section.partial,
        refill=section.refill,
        reuse=section.reuse,
    )


def acting_of(config: Config, environment: Environment, profile: Profile) -> RolloutConfig:
    """Return how the episodes of a training are done by a model whose prompts are of that profile."""
    return replace(
        plain_rollouts(config, environment, profile),
        temperature=config.train.temperature,
        skills=config.train.skills,
        same_name=config.train.same_name,
        require_code=config.train.require_code,
    )


def world_of(environment: Environment, config: Config, store: Store, policy: Policy, kept: Path) -> World:
    """Return where a training draws its tasks from; `kept`: as in `recall_of`. Raises as `load_tasks`."""
    tasks = load_tasks(config, environment, config.run.split)
    return World(environment, recall_of(environment, config, store, policy, kept), tasks)


def recall_of(environment: Environment, config: Config, store: Store, policy: Policy, kept: Path) -> Recall:
    """Return what is shown for a task, by the knowledge as it was when the training began: `kept` names that state."""
    if not config.playbook.enabled:
        return unknowing
    if not kept.exists():
        ledger.write(kept, address(store.snapshot(config.memory.namespace)))
    return recall_at(environment, config, store, policy, kept.read_text())


def recall_at(environment: Environment, config: Config, store: Store, policy: Policy, snapshot_id: str) -> Recall:
    """Return what is shown for a task by the knowledge of a snapshot; `policy` counts its tokens."""
    view = store.view(config.memory.namespace, snapshot_id)
    core = core_records(choose_core(config, view, policy, 0), view)
    return lambda task: recall_for(store, config, sought(task, environment), core, policy, snapshot_id=snapshot_id)


def _matching(config: Config, store: Store, policy: Policy, world: World, folder: Path) -> Matching | None:
    """Return what splits groups so that they measure quarantined texts, None where none are to be measured."""
    if not config.train.candidates:
        return None
    frozen = (folder / SNAPSHOT).read_text()
    return asyncio.run(matching_of(config, store, policy, world.environment, folder, frozen))
