"""A database without a manual: an agent answers questions in SQL, and has to find out what things are called.

    evolve run --env examples.worlds.bookkeeping:Bookkeeping

The names of table and column are drawn from a seed, and so is how an open order is marked: a wrong mark is no error,
it only gives a wrong answer. `clerk` stands for a model: it guesses names, and heeds what it has read.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from random import Random

from evolve import Action, Check, Message, Outcome, SamplingParams, ScriptedPolicy, StepResult, Task

TABLES, COLUMNS, MARKS = ("orders", "sales", "invoices"), ("customer", "client", "buyer"), ("open", "O", "1")
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jill")
SPLITS = {"train": ("Lee", "Moe", "Poe", "Ray"), "dev": ("Sol", "Tan"), "test_normal": ("Voss", "Wu", "Zay")}
"""Split -> surnames of the customers that its questions are about."""
MOST_ERRORS = 5
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}


class Bookkeeping:
    """Questions about open orders. `seed` draws the names."""

    name = "bookkeeping"
    action_format = "text"
    tools = ()
    seedless = True
    max_steps = 6

    def __init__(self, seed: int = 0) -> None:
        draw = Random(f"bookkeeping {seed}")
        self.table, self.column, self.mark = draw.choice(TABLES), draw.choice(COLUMNS), draw.choice(MARKS)

    def describe(self, profile: str) -> str:
        """Return how a question is answered."""
        return (
            f"Answer with one SQLite statement. The table is one of {', '.join(TABLES)}; it has the columns amount, "
            f"state (open, or shipped) and one of {', '.join(COLUMNS)}."
        )

    def tasks(self, split: str) -> Sequence[Task]:
        """Return one question for each customer of the split."""
        people = [f"{name} {surname}" for surname in SPLITS.get(split, ()) for name in NAMES]
        return [
            Task(id=f"{split}-{at}", instruction=f"How many open orders has '{person}'?", split=split)
            for at, person in enumerate(people)
        ]

    def start(self, task: Task, seed: int = 0) -> Query:
        """Return a fresh database with the orders of everybody in the split."""
        return Query(self, task)


@dataclass
class Query:
    """One episode: it ends with the first statement that runs."""

    world: Bookkeeping
    task: Task
    rows: list[tuple[object, ...]] | None = None
    errors: int = 0

    async def step(self, action: Action) -> StepResult:
        """Run a statement that reads."""
        with closing(self._filled()) as database:
            database.set_authorizer(lambda what, *_: sqlite3.SQLITE_OK if what in READING else sqlite3.SQLITE_DENY)
            try:
                self.rows = database.execute(action.text).fetchmany(10)
            except (sqlite3.Error, sqlite3.Warning) as error:
                self.errors += 1
                return StepResult(observation=str(error), error=str(error), done=self.errors == MOST_ERRORS)
        return StepResult(observation=repr(self.rows), done=True)

    async def grade(self) -> Outcome:
        """Compare with the right answer, with one error at most."""
        (person,) = re.findall("'(.+)'", self.task.instruction)
        right = self.rows == [(self._open(person),)]
        detail = f"state must be '{self.world.mark}' for an open order"
        checks = (Check(name="answer", passed=right, detail=detail), Check(name="errors", passed=self.errors <= 1))
        success = all(check.passed for check in checks)
        return Outcome(success=success, reward=float(success), checks=checks)

    async def close(self) -> None:
        """Hold nothing."""

    def _open(self, person: str) -> int:
        return 1 + Random(person).randrange(5)

    def _filled(self) -> sqlite3.Connection:
        database, world = sqlite3.connect(":memory:"), self.world
        database.execute(f"CREATE TABLE {world.table} ({world.column}, amount, state)")
        people = [f"{name} {surname}" for surname in SPLITS[self.task.split] for name in NAMES]
        rows = [(person, 10, state) for person in people for state in [world.mark] * self._open(person) + ["shipped"]]
        database.executemany(f"INSERT INTO {world.table} VALUES (?, ?, ?)", rows)
        return database


def clerk(section: object = None) -> ScriptedPolicy:
    """Return a stand-in for a model."""
    return ScriptedPolicy(_answer, name="clerk", version="1")


def _answer(messages: Sequence[Message], params: SamplingParams) -> str:
    read = "\n".join(message.content for message in messages)
    person = re.findall(r"How many open orders has '(.+)'", read)[-1]
    found = re.findall(r"Use `SELECT COUNT\(\*\) FROM (\w+) WHERE (\w+) =", read)
    wrong = set(re.findall(r"no such (?:table|column): (\w+)", read))
    table = next(name for name in [*(pair[0] for pair in found), *TABLES] if name not in wrong)
    column = next(name for name in [*(pair[1] for pair in found), *COLUMNS] if name not in wrong)
    mark = next(iter(re.findall(r"state must be '(\w+)'", read)), MARKS[0])
    return f"SELECT COUNT(*) FROM {table} WHERE {column} = '{person}' AND state = '{mark}'"
