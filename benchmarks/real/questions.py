"""Questions of reasoning-gym (`pip install reasoning-gym`) as an environment: a task is a question of a family."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Outcome, Task, Trajectory
from policies.protocols import ToolSpec

DRAWN = 20
"""Questions that are drawn for each that is wanted: some families ask the same again."""
FIRST_SEEDS = {"train": 0, "test_normal": 1_000_000}


@dataclass
class Asked:
    """One question; the first action is the answer."""

    questions: Any
    entry: Any
    reward: float = 0.0

    async def step(self, action: Action) -> StepResult:
        self.reward = self.questions.score_answer(action.text.strip(), self.entry)
        return StepResult(observation="", done=True)

    async def grade(self) -> Outcome:
        return Outcome(success=self.reward == 1.0, reward=self.reward)

    async def close(self) -> None:
        """Holds nothing."""


class Questions:
    """As many questions of each family; none stands twice, nor in the other split, in whatever order its words are."""

    name = "questions"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(
        self, families: Mapping[str, Mapping[str, Any]], train: int, test: int, notes: Mapping[str, str] | None = None
    ) -> None:
        """Take families by name with settings of their own, and how many questions of each family a split has.

        `notes`: family -> what is said below each of its questions.
        """
        self._notes = notes or {}
        self._asked: dict[str, Asked] = {}
        self._tasks: dict[str, list[Task]] = {}
        seen: set[str] = set()
        for split, count in (("test_normal", test), ("train", train)):
            drawn = [list(self._drawn(family, families[family], split, count, seen)) for family in families]
            self._tasks[split] = [task for several in zip(*drawn, strict=True) for task in several]

    def _drawn(
        self, family: str, settings: Mapping[str, Any], split: str, count: int, seen: set[str]
    ) -> Iterator[Task]:
        questions = import_module("reasoning_gym").create_dataset(
            family, size=count * DRAWN, seed=FIRST_SEEDS[split], **settings
        )
        for number, entry in enumerate(questions):
            words = " ".join(sorted(entry["question"].replace(",", " ").split()))
            if words in seen:
                continue
            seen.add(words)
            task = Task(
                id=f"{split}-{family}-{number}",
                instruction="\n".join(filter(None, (entry["question"], self._notes.get(family)))),
                environment=self.name,
                split=split,
                metadata={"family": family},
            )
            self._asked[task.id] = Asked(questions, entry)
            yield task
            count -= 1
            if not count:
                return
        raise ValueError(f"{family} has too few different questions with {dict(settings)}: {count} are missing")

    def describe(self, profile: str) -> str:
        return "Answer the question. Reply with the answer and nothing else."

    def tasks(self, split: str) -> Sequence[Task]:
        return self._tasks.get(split, ())

    def start(self, task: Task, seed: int = 0) -> Asked:
        known = self._asked[task.id]
        return Asked(known.questions, known.entry)

    def always(self, split: str) -> dict[str, bool | None]:
        """Return which questions of a split are solved by the answer that is right most often in their family.

        It is counted in the train split.
        """
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for task in self._tasks["train"]:
            counted[task.metadata["family"]][self._asked[task.id].entry["answer"]] += 1
        solved: dict[str, bool | None] = {}
        for task in self._tasks[split]:
            ((text, _),) = counted[task.metadata["family"]].most_common(1)
            asked = self._asked[task.id]
            solved[task.id] = asked.questions.score_answer(text, asked.entry) == 1.0
        return solved

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return nothing: questions are drawn from seeds."""
        return ()
