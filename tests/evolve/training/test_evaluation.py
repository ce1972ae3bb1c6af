"""Held-out tasks during a training: the weights that solved most are those that it ends with, killed or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evolve.config.model import Config, EnvironmentSection, RunSection
from evolve.environments.office.environment import Office, OfficeConfig, OfficeEpisode
from evolve.errors import ConfigError
from evolve.protocols import Action, StepResult
from evolve.training import ledger
from evolve.training.evaluation import BEST, FIGURE, Best, Evaluation, best, evaluation_of, keep_best, take_best
from evolve.training.ledger import CHECKPOINT, HISTORY, METRICS, STOPPED
from evolve.training.loop import Learning, learn
from evolve.training.rollouts import unknowing
from memory.errors import BadInput
from memory.records import Outcome, Task
from policies.rl.protocols import Array, Episodes
from tests.evolve.training.test_loop import SMALL, WORLDS, Stopped, learning, lines, stop


class CommentedEpisode(OfficeEpisode):
    """Solved where an action begins with a comment, as those of the pocket model do."""

    commented = False

    async def step(self, action: Action) -> StepResult:
        self.commented |= action.text.startswith("# ")
        return await super().step(action)

    async def grade(self) -> Outcome:
        return Outcome(success=self.commented, reward=float(self.commented))


class CommentedOffice(Office):
    """An office in which a policy that still writes code succeeds."""

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        made = super().start(task, seed)
        made.__class__ = CommentedEpisode
        return made


def ruined(folder: Path) -> Learning:
    """Return a training that learns nothing from its first batch, and then far too much; it counts batches in files."""
    mark = folder / "batches"

    def late(episodes: Episodes) -> Array:
        folder.mkdir(exist_ok=True)
        seen = mark.exists()
        mark.touch()
        return np.full(len(episodes.trajectory), float(seen))

    office = CommentedOffice(OfficeConfig(deployment=600))
    held_out = Evaluation(office.tasks("dev")[:2], office, unknowing, every=1)
    return replace(learning(late, learning_rate=0.5), evaluation=held_out)


@pytest.mark.slow
async def test_a_training_ends_with_the_weights_that_solved_most_also_when_it_was_killed(tmp_path: Path) -> None:
    plan = SMALL.model_copy(update={"iterations": 2})
    folder = tmp_path / "training"
    with pytest.raises(Stopped):
        await learn(WORLDS, ruined(folder), plan, folder, stop)
    (folder / BEST).unlink()  # killed between the checkpoint and its copy
    parts = ruined(folder)
    assert await learn(WORLDS, parts, plan, folder) == ""
    assert [line[FIGURE] for line in lines(folder / METRICS)] == [1.0, 0.0]
    assert best(folder) == Best(0, 1.0)
    assert parts.trainer.updates == 1
    assert [line["iteration"] for line in lines(folder / HISTORY)] == [0]
    plain, kept = dict(learning().trainer.merged()), dict(parts.trainer.merged())
    assert all(plain[name].equal(kept[name]) for name in plain), "nothing was learned by then, and nothing is ruined"


def told(folder: Path, *successes: float | None) -> None:
    (folder / METRICS).unlink(missing_ok=True)
    for at, each in enumerate(successes):
        ledger.append(folder / METRICS, {"iteration": at, "loss": 0.0} | ({} if each is None else {FIGURE: each}))


def test_the_best_is_kept_the_earlier_of_equals_and_asking_again_changes_nothing(tmp_path: Path) -> None:
    for at, (successes, expected) in enumerate(
        [((None,), None), ((None, 0.5), 1), ((None, 0.5, 0.5), 1), ((None, 0.5, 0.5, 0.75), 3)]
    ):
        told(tmp_path, *successes)
        (tmp_path / CHECKPOINT).write_text(str(at))
        for _ in range(2):
            keep_best(tmp_path)
        found = best(tmp_path)
        assert (found and found.iteration) == expected
        assert (tmp_path / BEST).exists() == (expected is not None)
        assert not found or (tmp_path / BEST).read_text() == str(expected)


def test_what_a_guard_stopped_at_has_no_checkpoint_and_is_not_the_best(tmp_path: Path) -> None:
    told(tmp_path, 0.25, 0.75)
    (tmp_path / STOPPED).write_text("entropy")
    (tmp_path / CHECKPOINT).write_text("0")
    keep_best(tmp_path)
    assert best(tmp_path) == Best(0, 0.25)
    assert (tmp_path / BEST).read_text() == "0"


def test_a_training_that_was_not_evaluated_has_no_best(tmp_path: Path) -> None:
    assert best(tmp_path) is None
    keep_best(tmp_path)
    assert not take_best(None, tmp_path)  # type: ignore[arg-type]


def test_it_is_due_every_so_many_iterations_and_after_the_last() -> None:
    held_out = Evaluation((), Office(OfficeConfig(deployment=600)), unknowing, every=3)
    assert [at for at in range(8) if held_out.due(at, 8)] == [2, 5, 7]


def test_it_takes_the_tasks_of_the_dev_split_and_refuses_those_that_are_trained_on() -> None:
    office = Office(OfficeConfig(deployment=600))
    world = EnvironmentSection.model_validate({"name": "office", "deployment": 600})
    plain = Config(environment=world)
    asked = plain.model_copy(update={"train": plain.train.model_copy(update={"evaluate_every": 2})})
    assert evaluation_of(plain, office, unknowing) is None
    found = evaluation_of(asked, office, unknowing)
    assert found is not None
    assert {task.split for task in found.tasks} == {"dev"}
    assert len(found.tasks) == len(office.tasks("dev"))
    same = asked.model_copy(update={"run": RunSection(dev_split="train")})
    with pytest.raises((BadInput, ConfigError), match=r"shares scenario|no tasks"):
        evaluation_of(same, office, unknowing)
