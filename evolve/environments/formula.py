"""ACE's finance benchmark "Formula": a question, answered by a number. The files are the reader's own.

A line of a file is `{"context": ..., "target": ...}`. Of the context the question alone is shown, as ACE poses it; the
formula's name is the task's `family`, which no prompt holds. The first number that is printed or said ends the episode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pydantic import Field, FiniteFloat, ValidationError

from evolve.config.tables import RootPath, Section
from evolve.protocols import Action, ActionFormat, Demonstration, StepResult
from memory.errors import BadInput
from memory.records import Check, Frozen, Outcome, StopReason, Task, Trajectory
from policies.protocols import ToolSpec
from skills.protocols import SandboxSession
from skills.sandbox.monty import EPISODES, shared
from skills.sandbox.output import was_cut

_CONTEXT = re.compile(r"Use formula (.+?) to answer the question\..*?Question:(.*?)\.? Answer:\s*", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w.])(-?)[$€£]?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)((?:[eE][-+]?\d+)?)(?:x\b)?(?!\w|\.\d)"
)
"""Sign, digits and exponent of a number as people write one: `-$1,234.50`, `8.33x`."""


class FormulaConfig(Section):
    """Where the files are. Their paths start from the folder of evolve.toml."""

    train: RootPath
    """JSON Lines file of the split `train`."""
    validation: RootPath
    """JSON Lines file that is divided into `dev` (for gates) and `test_normal` (held out)."""
    dev: int = Field(default=100, ge=0)
    """Questions of the validation file that are `dev`."""
    seed: int = 0
    """Draws which those are."""


class _Line(Frozen):
    context: str
    target: FiniteFloat


class _Question(NamedTuple):
    task: Task
    target: float


class Formula:
    """Questions about finance with one right number each."""

    name = "formula"
    action_format: ActionFormat = "code"
    tools: tuple[ToolSpec, ...] = ()
    seedless = True
    max_concurrency = EPISODES
    max_steps = 3
    """The answer, and two more where code failed or printed none."""

    def __init__(self, config: FormulaConfig) -> None:
        """Read both files. Raises `BadInput` for one that is not there, or that holds something else."""
        train = _questions(Path(config.train), "train")
        validation = _questions(Path(config.validation), "validation")
        if config.dev >= len(validation):
            raise BadInput(
                f"dev is {config.dev} and {config.validation!r} has {len(validation)} questions; leave some held out"
            )
        dev = set(Random(config.seed).sample(range(len(validation)), config.dev))
        placed = [("train", each) for each in train]
        placed += [("dev" if at in dev else "test_normal", each) for at, each in enumerate(validation)]
        self._tasks = [each.task.model_copy(update={"split": split}) for split, each in placed]
        self._targets = {each.task.id: each.target for _, each in placed}

    def describe(self, profile: str) -> str:
        """Return how a question is answered."""
        return "Answer the question about finance with one number. Reply with one Python block that prints the answer."

    def demonstration(self) -> Demonstration:
        """Return a sum that needs no formula: the givens become variables, and the last line prints the answer."""
        return Demonstration(
            instruction="A shop sells 40 shirts at $12.50 each and pays 20% of that as rent. What is left?",
            reply="```python\nshirts = 40\nprice = 12.50\nrent = 0.20\nsales = shirts * price\n"
            "print(sales - rent * sales)\n```",
        )

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the questions of a split."""
        return [task for task in self._tasks if task.split == split]

    def start(self, task: Task, seed: int = 0) -> FormulaEpisode:
        """Return a fresh episode. Raises `BadInput` for a task of another environment."""
        return FormulaEpisode(self._target(task))

    def gold(self, task: Task) -> Sequence[Action]:
        """Return code that prints the right number."""
        return [Action(text=f"print({self._target(task)!r})")]

    def answer(self, episode: Trajectory) -> str | None:
        """Return the number that ended the episode, as it is graded: rounded to two decimals."""
        ended = episode.stop is StopReason.DONE and bool(episode.steps)
        number = last_number(episode.steps[-1].observation) if ended else None
        return None if number is None else f"{number:.2f}"

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return nothing: what is observed is what the agent's own code printed."""
        return ()

    def _target(self, task: Task) -> float:
        if task.id not in self._targets:
            raise BadInput(f"formula has no task {task.id!r}; its tasks come from the files that [environment] names")
        return self._targets[task.id]


class FormulaEpisode:
    """Single use. Pickles between steps (the sandbox session travels as its dump)."""

    def __init__(self, target: float) -> None:
        self._target = target
        self._answer: float | None = None
        self._session: SandboxSession | None = None
        self._dump: bytes | None = None

    async def step(self, action: Action) -> StepResult:
        """Take a bare number as the answer, or run the code and take the last number that it printed."""
        said = action.text.strip()
        if _NUMBER.fullmatch(said.rstrip(".% ")):
            return self._answered(said)
        result = self._sandbox().run(action.text)
        if result.fatal:
            self._session, self._dump = None, None
        if result.error:
            return StepResult(observation=f"{result.stdout}error: {result.error}", error=result.error)
        if was_cut(result.stdout):  # the note holds a number
            error = "more was printed than is read; print the answer alone"
            return StepResult(observation=f"{result.stdout}\nerror: {error}", error=error)
        return self._answered(result.stdout.strip())

    def _answered(self, text: str) -> StepResult:
        number = last_number(text)
        if number is not None:
            self._answer = number
            return StepResult(observation=text, done=True)
        if text:
            error = "no number was printed; print the answer as a number"
            return StepResult(observation=f"{text}\nerror: {error}", error=error)
        return StepResult(observation="nothing was printed; print the answer")  # definitions alone are no mistake

    async def grade(self) -> Outcome:
        """Compare with the target, both rounded to two decimals."""
        right = self._answer is not None and round(self._answer, 2) == round(self._target, 2)
        got = "no number" if self._answer is None else f"{self._answer:.10g}"
        check = Check(name="answer", passed=right, detail="" if right else f"expected {self._target:.10g}, got {got}")
        return Outcome(success=right, reward=float(right), checks=(check,))

    async def close(self) -> None:
        """Give the sandbox worker back."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _sandbox(self) -> SandboxSession:
        if self._session is None:
            self._session = shared().load(self._dump, {}) if self._dump else shared().session({})
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        dump = self._session.dump() if self._session is not None else self._dump
        return self.__dict__ | {"_session": None, "_dump": dump}


def last_number(text: str) -> float | None:
    """Return the last number of a text as people write one, None without any."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return None
    sign, digits, exponent = found[-1].groups()
    return float(f"{'-' if sign else ''}{digits.replace(',', '')}{exponent}")


def _questions(path: Path, name: str) -> list[_Question]:
    """Return the lines of a file; a task is named by its line, whatever its split. Raises `BadInput`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the Formula file {str(path)!r}: {error}; docs/guides/environments.md") from error
    found = [_question(f"{path}:{at}", f"{name}-{at}", line) for at, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise BadInput(f'{path}: holds no question; expected lines like {{"context": "...", "target": "2.0"}}')
    return found


def _question(where: str, name: str, line: str) -> _Question:
    try:
        given = _Line.model_validate(json.loads(line))
    except (ValidationError, ValueError) as error:
        raise BadInput(f'{where}: got {line[:60]!r}; expected {{"context": "...", "target": "2.0"}}') from error
    asked = _CONTEXT.fullmatch(given.context)
    if asked is None:
        raise BadInput(
            f"{where}: got the context {given.context[:60]!r}; expected 'Use formula NAME to answer the "
            'question. ... Question: "...". Answer:\''
        )
    question = asked[2].strip().strip('"“”').strip()
    family = {"family": asked[1]}
    return _Question(Task(id=name, instruction=question, environment="formula", metadata=family), given.target)


MEMBER = Formula
