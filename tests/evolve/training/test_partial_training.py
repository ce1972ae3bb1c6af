"""Whole trainings whose batches leave groups to the next one: rows of two versions, and a kill in each phase."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evolve.config.training import PartialRollouts
from evolve.environments.office.environment import OfficeConfig
from evolve.seeds import id_for
from evolve.training import partial
from evolve.training.chain_tasks import Chain
from evolve.training.ledger import HISTORY, METRICS, lines
from evolve.training.loop import Learning, Plan, World, draw, learn
from evolve.training.rollouts import Sampling
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.rl.filters.everything import Everything
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Array, Episodes
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer
from tests.evolve.training.held_office import Held, Killed
from tests.evolve.training.test_loop import ACTING

pytestmark = pytest.mark.slow
PLAN = Plan(
    iterations=3,
    chains=2,
    sampling=Sampling(rollouts=2, seed=4),
    partial=PartialRollouts(oversampling=1.5, staleness=1),
)


class Rising:
    """Gives each turn a number that is not 0."""

    killed = False

    def __call__(self, episodes: Episodes) -> Array:
        if self.killed:
            raise Killed
        return 0.1 + episodes.step_rewards


class Remembering(Trainer):
    """Keeps what it was given."""

    killed = False

    def step(self, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> dict[str, float]:
        self.given: list[tuple[list[TrainRow], list[Array]]] = [*getattr(self, "given", []), (list(rows), advantages)]
        return super().step(rows, advantages)

    def checkpoint(self, path: Path, progress: Any = None) -> None:
        if self.killed:
            raise Killed
        super().checkpoint(path, progress)


@dataclass
class Training:
    """A training in an office that holds up one chain of the first iteration, and one that the second begins."""

    learning: Learning
    office: Held
    held: list[Chain]

    @property
    def trainer(self) -> Remembering:
        assert isinstance(self.learning.trainer, Remembering)
        return self.learning.trainer

    async def go(self, folder: Path, plan: Plan = PLAN, then: Callable[[int], None] = lambda _: None) -> None:
        """Train; `then` is told how many iterations are done, after each."""

        def told(figures: dict[str, float]) -> None:
            assert self.office.under_way == 0
            self.hold(int(figures["iteration"]) + 1)
            then(int(figures["iteration"]) + 1)

        await learn([World(self.office)], self.learning, plan, folder, told)

    def hold(self, iteration: int) -> None:
        """Hold what an iteration is to leave to the next."""
        self.office.held = {chain.tasks[0].id for chain in self.held[iteration : iteration + 1]}


def training() -> Training:
    office = Held(OfficeConfig(deployment=600))
    drawn = [draw([World(office)], PLAN.model_copy(update={"chains": n}), at) for at, n in enumerate((3, 2))]
    trainer = Remembering(POCKET, Ppo(), OptimiserOptions(learning_rate=1e-3, rank=4, seed=1))
    parts = Learning(LocalPolicy.pocket(threads=1), trainer, Rising(), Everything(), ACTING)
    made = Training(parts, office, [settings[0].chain for settings in drawn])
    made.hold(0)
    return made


def held_episodes(made: Training, iteration: int) -> set[str]:
    """Return the ids of the episodes that an iteration began and cut off at their first step."""
    return {id_for("ro", PLAN.sampling.seed, iteration, made.held[iteration].id, member, 0) for member in (0, 1)}


def versions(rows: Sequence[TrainRow], episodes: set[str] | None = None) -> set[str]:
    """Return whose turns the rows of some episodes hold."""
    chosen = (row for row in rows if episodes is None or row.trajectory_id in episodes)
    return {span.policy_version for row in chosen for span in row.spans}


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, Path]:
    """A training that nothing disturbed, and its folder."""
    made, folder = training(), tmp_path_factory.mktemp("through")
    asyncio.run(made.go(folder))
    return made, folder


def test_what_was_cut_off_is_trained_on_next_with_turns_of_two_versions(through: tuple[Training, Path]) -> None:
    made, folder = through
    first, second, third = (rows for rows, _ in made.trainer.given)
    cut = held_episodes(made, 0)
    assert not cut & {row.trajectory_id for row in (*first, *third)}
    (old,) = versions(first)
    own = [row for row in second if row.trajectory_id in cut]
    assert {row.trajectory_id for row in own} == cut
    assert any(len(versions([row])) == 2 for row in own)
    for row in own:
        assert [span.policy_version == old for span in row.spans] == [at == 0 for at in range(len(row.spans))]
    assert old not in versions(second, {row.trajectory_id for row in second} - cut)
    told = lines(folder / METRICS)
    assert [each["groups_begun"] for each in told] == [3, 3, 2]
    assert [each["groups_carried"] for each in told] == [1, 1, 0]
    assert [each["groups_stale"] for each in told] == [0, 1, 1]
    tokens = [(span.stop - span.start, span.policy_version == old) for row in second for span in row.spans]
    assert told[0]["off_policy"] == 0
    assert told[1]["off_policy"] == pytest.approx(sum(n for n, older in tokens if older) / sum(n for n, _ in tokens))
    assert 0 < told[1]["off_policy"] < 1


def test_nothing_that_was_begun_is_dropped_and_each_episode_stands_in_history_once(
    through: tuple[Training, Path],
) -> None:
    _, folder = through
    episodes = [name for line in lines(folder / HISTORY) for name in line["episodes"]]
    assert len(episodes) == len(set(episodes)) == 3 * 2 * 2 * 2
    chosen = partial.choices(folder)
    assert [len(chosen[at].done) for at in range(3)] == [2, 2, 2]
    assert [len(chosen[at].carried) for at in range(3)] == [1, 1, 0]
    assert not list(folder.glob("replies-*"))


async def test_masked_turns_get_no_advantage(tmp_path: Path) -> None:
    masked = PLAN.partial.model_copy(update={"off_policy": "masked"})
    made = training()
    made.held = made.held[:1]
    await made.go(tmp_path, PLAN.model_copy(update={"partial": masked, "iterations": 2}))
    (first, given), (rows, advantages) = made.trainer.given
    (old,) = versions(first)
    assert all((own != 0).all() for own in given)
    pairs = [
        (span.policy_version == old, value)
        for row, own in zip(rows, advantages, strict=True)
        for span, value in zip(row.spans, own, strict=True)
    ]
    assert {older for older, _ in pairs} == {True, False}
    assert all((value == 0) == older for older, value in pairs)


def rolling_out(made: Training) -> None:
    made.office.steps = 4


def having_chosen(made: Training) -> None:
    assert isinstance(made.learning.advantages, Rising)
    made.learning.advantages.killed = True


def having_learned(made: Training) -> None:
    made.trainer.killed = True


def having_settled(made: Training) -> None:
    raise Killed


@pytest.mark.parametrize(
    ("phase", "iteration"), [(rolling_out, 1), (having_chosen, 0), (having_learned, 1), (having_settled, 0)]
)
async def test_a_kill_in_any_phase_ends_in_the_same_weights(
    phase: Callable[[Training], None], iteration: int, through: tuple[Training, Path], tmp_path: Path
) -> None:
    whole, folder = through
    killed = training()
    resumed = iteration + (phase is having_settled)
    if not resumed:
        phase(killed)
    with pytest.raises(Killed):
        await killed.go(tmp_path, then=lambda done: phase(killed) if done == resumed else None)
    noted, done = set(partial.choices(tmp_path)), len(lines(tmp_path / HISTORY))
    assert noted == set(range(iteration + (phase is not rolling_out)))
    assert done == iteration + (phase in (having_learned, having_settled))
    again = training()
    again.hold(resumed)
    if resumed in noted:  # those that were left would be done first now: what was chosen counts
        chosen = set(partial.choices(folder)[resumed].done)
        drawn = draw([World(again.office)], PLAN.model_copy(update={"chains": 3 - resumed}), resumed)
        again.office.held = {each.chain.tasks[0].id for each in drawn if each.chain.id in chosen}
        await asyncio.gather(again.go(tmp_path), again.office.let_go())
    else:
        await again.go(tmp_path)
    assert lines(tmp_path / HISTORY) == lines(folder / HISTORY)
    assert [each.done for each in partial.choices(tmp_path).values()] == [
        each.done for each in partial.choices(folder).values()
    ]
    one, other = dict(whole.trainer.merged()), dict(again.trainer.merged())
    assert all(one[name].equal(other[name]) for name in one)
    assert not list(tmp_path.glob("replies-*"))
