"""Rollouts, then an update, then rollouts under the new weights: online training, and resumable.

The policy that answers takes each update at once, so that every batch is sampled by the weights it trains, in this
process or on servers (`evolve.training.rollout_policy`). Killed at any moment, a training goes on from its last
checkpoint: the iteration it was in is rolled out again, from the replies that were kept and then from the same seeds,
and `history.jsonl` names each episode that the surviving weights saw, once for each update that did.
`training.partial` lets an iteration end before its slowest groups do, `training.reuse` takes some of an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evolve.config.training import PartialRollouts, RolloutReuse, TrainingLimits
from evolve.episode.instrumentation import watched
from evolve.episode.rollout import RolloutConfig
from evolve.protocols import Environment
from evolve.seeds import seed_for
from evolve.training import ledger, partial, reuse, rollout_store
from evolve.training.ab_groups import Matching
from evolve.training.batch_figures import SampledTokens, rollout_figures
from evolve.training.batch_rollouts import stored
from evolve.training.batches import Prepared, episodes_of, prepared
from evolve.training.branches import Branching, Grown
from evolve.training.chain_tasks import By, chains
from evolve.training.curriculum import Curriculum
from evolve.training.estimates import OUTCOMES, estimates, outcomes
from evolve.training.evaluation import Evaluation, keep_best, success, take_best
from evolve.training.guards import collapse, sound
from evolve.training.ledger import CHECKPOINT, GOOD, HISTORY, MATCHED, METRICS, REUSED, STOPPED
from evolve.training.partial import Rolling
from evolve.training.refill import Refill
from evolve.training.replies import Kept, sweep
from evolve.training.retries import Retrying
from evolve.training.rollout_policy import RolloutPolicy
from evolve.training.rollouts import ChainSpec, Recall, Rollout, Sampling, unknowing
from evolve.training.state_replay import Calls
from memory.records import Frozen, Task
from policies.rl.protocols import AdvantageEstimator, Array, GroupFilter
from policies.rl.rows import TrainRow
from policies.rl.tracker import BetaTracker
from policies.rl.trainer import NothingToPublish, Trainer, TrainingStopped


class Plan(Frozen):
    """What a training does besides optimising."""

    iterations: int = 40
    chains: int = 8
    """Chains of an iteration, rolled out `sampling.rollouts` times each, or so often on average."""
    length: int = 2
    """Tasks of a chain."""
    by: By = "scenario"
    sampling: Sampling = Sampling()
    limits: TrainingLimits = TrainingLimits()
    partial: PartialRollouts = PartialRollouts()
    refill: int = 0
    """Rounds that replace groups of which the filter keeps nothing."""
    reuse: RolloutReuse = RolloutReuse()


@dataclass(frozen=True)
class World:
    """Where chains are drawn from: tasks of an environment, and the knowledge its agent is shown."""

    environment: Environment
    recall: Recall = unknowing
    tasks: Sequence[Task] | None = None
    """What its chains are made of; None = the train tasks that the environment itself has."""


@dataclass(frozen=True)
class Learning:
    """The parts of a training: who acts, what makes advantages, what is trained on, what trains, what is done next."""

    policy: RolloutPolicy
    trainer: Trainer
    advantages: AdvantageEstimator
    filter: GroupFilter
    acting: RolloutConfig
    curriculum: Curriculum = field(default_factory=Curriculum)
    retrying: Retrying | None = None
    """Rolls out retries of what failed; None = nothing is retried."""
    branching: Branching | None = None
    """Branches rollouts where the policy is unsure; None = each is done from the start."""
    matching: Matching | None = None
    """Splits groups, so that they measure a text too; None = groups are whole."""
    evaluation: Evaluation | None = None
    """Does held-out tasks now and then; None = the last weights are the ones to publish."""


async def learn(
    worlds: Sequence[World],
    learning: Learning,
    plan: Plan,
    folder: Path,
    report: Callable[[dict[str, float]], None] = lambda _: None,
) -> str:
    """Train to the end of the plan, or go on where `folder` stands; `report` is told the figures of each iteration, and
    how many `iterations` there will be.

    Returns why a guard stopped it, empty where none did. The weights are then those that solved most held-out tasks;
    where none were done, the last, and of a training that was stopped those of the last iteration within the limits.
    Raises `TrainingStopped` where there are none, where most episodes of an iteration could not be graded, and
    where a gradient is no number.
    """
    told = await _begin(learning, folder)
    while len(told) < plan.iterations and not ledger.stopped(folder):
        told.append(await _iterate(worlds, learning, plan, folder, len(told)))
        settle(learning.trainer, plan, folder, told)
        report(told[-1] | {"iterations": float(plan.iterations)})
    (folder / REUSED).unlink(missing_ok=True)
    if take_best(learning.trainer, folder) or not ledger.stopped(folder):
        return ledger.stopped(folder)
    return returned(learning.trainer, folder)


async def _begin(learning: Learning, folder: Path) -> list[dict[str, float]]:
    """Return the figures of the iterations that are done, with the weights as they were; drop what came after."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = next((path for path in (folder / CHECKPOINT, folder / GOOD) if path.exists()), None)
    done = int(learning.trainer.resume(kept)["iterations"]) if kept else 0
    await learning.policy.sync_weights(learning.trainer)
    if not ledger.stopped(folder):
        for name in (HISTORY, METRICS, MATCHED):
            ledger.keep(folder / name, done)
        ledger.keep(folder / partial.FILE, done + 1)
        rollout_store.drop(folder, done)
    _sweep(folder, done)
    keep_best(folder)
    return ledger.lines(folder / METRICS)


def _sweep(folder: Path, iteration: int) -> None:
    """Keep the replies that this iteration may replay; none where there is no iteration to come."""
    carried = {each.born for each in partial.carried(folder, iteration)}
    sweep(folder, set[int]() if ledger.stopped(folder) else {iteration} | carried)


@watched("iteration")
async def _iterate(
    worlds: Sequence[World], learning: Learning, plan: Plan, folder: Path, iteration: int
) -> dict[str, float]:
    kept, expected = Kept(folder), estimates(folder)
    again = reuse.drawn(folder, plan.reuse, plan.chains, iteration, plan.sampling.seed)
    plan = plan.model_copy(update={"chains": plan.chains - len(again)})
    started = _started(worlds, learning, plan, folder, iteration, expected)
    sampled = SampledTokens(learning.policy)
    rolling = Rolling(sampled, learning.acting, plan.sampling, kept, plan.partial.staleness)
    choice, rollouts = await _gathered(started, rolling, plan, folder, iteration)
    refilled: dict[str, float] = {}
    if plan.refill:
        every = [offered(worlds, plan, iteration, number) for number in range(1, plan.refill + 1)]
        refill = Refill(every, learning.curriculum, expected, learning.filter)
        rollouts, refilled = await refill.refilled(rollouts, rolling, iteration)
        require_graded(rollouts, iteration)
    settings = [each.setting for each in started]
    rollouts, batch, figures = await _grown(rollouts, settings, learning, rolling, iteration, expected)
    figures |= refilled | {"iteration": float(iteration)} | rollout_figures(rollouts) | sampled.figures
    figures |= elsewhere(worlds, settings)
    if learning.matching is not None:
        figures |= learning.matching.note(iteration, rollouts)
    whole = reuse.joined(batch, again)
    chosen = learning.filter.keep(whole.episodes)
    figures["kept"] = float(chosen.sum())
    rows, advantages = whole.advantages(learning.advantages(whole.episodes), chosen)
    if plan.reuse.share:
        figures["reused"] = float(len(again))
    if plan.partial.oversampling > 1:
        figures |= choice.figures | {"off_policy": partial.off_policy_share(rows, learning.policy.version)}
    if plan.partial.off_policy == "masked":
        advantages = partial.masked(rows, advantages, learning.policy.version)
    if rows:
        figures |= await _update(learning, rows, advantages)
    figures |= await _evaluated(learning, plan, iteration)
    episodes = sorted({row.trajectory_id for row in rows})
    came_to = outcomes(link.trajectory for each in rollouts if not each.candidate for link in each.links)
    ledger.append(folder / HISTORY, {"iteration": iteration, "episodes": episodes, OUTCOMES: came_to})
    known = {each.trajectory.id for each in batch.scored}
    left_out = (each for each in episodes_of(rollouts, expected) if each.trajectory.id not in known)
    told = stored(iteration, (*batch.scored, *left_out), batch.rows, (rows, advantages), kept.asked)
    rollout_store.write(folder, iteration, told)
    reuse.keep(folder, plan.reuse, iteration, batch, rows)
    ledger.append(folder / METRICS, figures)
    return figures


async def _gathered(
    started: Sequence[partial.Begun], rolling: Rolling, plan: Plan, folder: Path, iteration: int
) -> tuple[partial.Choice, tuple[Rollout, ...]]:
    """Roll out what was started, as much of it as the plan takes; what was chosen is noted before it is used."""
    ahead, known = plan.partial.oversampling > 1, partial.choices(folder).get(iteration)
    choice, rollouts = await partial.gathered(
        started, plan.chains if ahead else len(started), rolling, iteration, known
    )
    require_graded(rollouts, iteration)
    if ahead and known is None:
        ledger.append(folder / partial.FILE, choice.model_dump())
    return choice, rollouts


async def _grown(
    bases: tuple[Rollout, ...],
    settings: Sequence[ChainSpec],
    learning: Learning,
    rolling: Rolling,
    iteration: int,
    expected: BetaTracker,
) -> tuple[tuple[Rollout, ...], Prepared, dict[str, float]]:
    """Return the whole rollouts, the batch with branches and retries of them, and its counts."""
    calls, grown = Calls(rolling.replaying(iteration), rolling.acting, rolling.kept.get_reply), Grown()
    if learning.branching is not None:
        grown = await learning.branching.grown(bases, settings, calls, rolling.sampling, iteration)
    rollouts = (*bases, *grown.filled)
    done = episodes_of((*rollouts, *grown.branches), expected)
    batch = prepared(done, calls.replies)
    if learning.retrying is not None:
        batch = await learning.retrying.added(batch, done, settings, calls)
    return rollouts, batch, batch.figures | {name: float(count) for name, count in grown.counts.items()}


def _started(
    worlds: Sequence[World], learning: Learning, plan: Plan, folder: Path, iteration: int, expected: BetaTracker
) -> list[partial.Begun]:
    """Return the groups that an iteration goes on with, and those that it begins."""
    going = partial.resumed(partial.carried(folder, iteration), lambda born: offered(worlds, plan, born))
    size = plan.partial.size(plan.chains, last=iteration == plan.iterations - 1)
    fresh = plan.model_copy(update={"chains": max(size - len(going), 0)})
    settings = draw(worlds, fresh, iteration, learning.curriculum, expected)
    if learning.matching is not None:
        settings = list(learning.matching.split(settings, plan.sampling.rollouts))
    return going + partial.begun(settings, plan.sampling, iteration)


@watched("update")
async def _update(learning: Learning, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> dict[str, float]:
    await learning.policy.make_room()
    figures = learning.trainer.step(rows, advantages)
    await learning.policy.sync_weights(learning.trainer)
    return figures


async def _evaluated(learning: Learning, plan: Plan, iteration: int) -> dict[str, float]:
    """Return how the weights do held-out tasks, nothing where that is not due or they were not changed yet."""
    asked = learning.evaluation
    if asked is None or not learning.trainer.updates or not asked.due(iteration, plan.iterations):
        return {}
    done = await asked.rollouts(learning.policy, learning.acting, plan.sampling.seed)
    require_graded(done, iteration)
    return success(done)


def require_graded(rollouts: Sequence[Rollout], iteration: int) -> None:
    """Stop where the world broke: what is left of such a batch is no sample of it."""
    done = [link.trajectory for rollout in rollouts for link in rollout.links]
    errors = [each.error or "no grade" for each in done if each.outcome is None]
    if 2 * len(errors) > len(done):
        raise TrainingStopped(
            f"{len(errors)} of the {len(done)} episodes of iteration {iteration} could not be graded, the first for "
            f"{errors[0]}; mend that, then the same command goes on; nothing was trained on them"
        )


def settle(
    trainer: Trainer,
    plan: Plan,
    folder: Path,
    told: Sequence[dict[str, float]],
    progress: Mapping[str, int] | None = None,
) -> None:
    """End an iteration: with a checkpoint, which keeps `progress`, too, or with why training stops here."""
    if reason := collapse(told, plan.limits):
        ledger.write(folder / STOPPED, reason)
    else:
        if sound(told, plan.limits) and (folder / CHECKPOINT).exists():
            (folder / CHECKPOINT).replace(folder / GOOD)
        trainer.checkpoint(folder / CHECKPOINT, {"iterations": len(told), **(progress or {})})
        keep_best(folder)
    _sweep(folder, len(told))


def returned(trainer: Trainer, folder: Path) -> str:
    """Go back to the last weights that acted within the limits, and return why."""
    reason = ledger.stopped(folder)
    if not (folder / GOOD).exists():
        raise NothingToPublish(
            f"{reason}; no iteration before was within the limits, so there is nothing to publish; lower "
            "train.learning_rate, or set that limit for this model in [train.limits]"
        )
    ledger.keep(folder / HISTORY, int(trainer.resume(folder / GOOD)["iterations"]))
    return reason


def draw(
    worlds: Sequence[World],
    plan: Plan,
    iteration: int,
    curriculum: Curriculum | None = None,
    expected: BetaTracker | None = None,
) -> list[ChainSpec]:
    """Return the chains that an iteration begins, drawn from those of all worlds; `expected`: what is known of tasks.

    None where the plan wants none.
    """
    if not plan.chains:
        return []
    choice, every = curriculum or Curriculum(), offered(worlds, plan, iteration)
    seed = _chain_seed(plan, iteration)
    return choice.chosen(every, expected or BetaTracker(), plan.chains, plan.sampling.rollouts, seed)


def offered(worlds: Sequence[World], plan: Plan, iteration: int, refill: int = 0) -> list[ChainSpec]:
    """Return the chains of all worlds that an iteration draws from: by the seed alone, whatever was learned since.

    No world offers more of them than the first one, so that a large world that is replayed does not take the batch.
    `refill`: the round that draws, 0 = the first one.
    """
    seed = _chain_seed(plan, iteration, *([refill] if refill else []))
    every = [chains(_tasks(world), plan.length, seed_for(seed, at), plan.by) for at, world in enumerate(worlds)]
    most = len(every[0])
    return [
        ChainSpec(each, world.environment, world.recall)
        for world, own in zip(worlds, every, strict=True)
        for each in own[:most]
    ]


def _tasks(world: World) -> Sequence[Task]:
    return world.environment.tasks("train") if world.tasks is None else world.tasks


def elsewhere(worlds: Sequence[World], begun: Sequence[ChainSpec]) -> dict[str, float]:
    """Return how much of what was begun is of other worlds than the first one; nothing where there is one world."""
    if len(worlds) == 1 or not begun:
        return {}
    return {"elsewhere": sum(each.environment is not worlds[0].environment for each in begun) / len(begun)}


def _chain_seed(plan: Plan, *of: int) -> int:
    return seed_for(plan.sampling.seed, "chains", *of)
