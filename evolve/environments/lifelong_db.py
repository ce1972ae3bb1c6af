"""The database part of LifelongAgentBench: one SQL statement against one table. The file is the reader's own.

The file is a JSON object: task id -> `instruction`, `table_info`, `answer_info`, `skill_list`, the last three perhaps
as the text of Python literals. Each step runs in a fresh SQLite database in memory, and the first statement that runs
ends the episode. What it returned, or left in the table, must equal what the gold statement gives there, in any order
and at two decimals. Tasks whose gold statement SQLite does not run (5 of 361) are left out.
"""

from __future__ import annotations

import ast
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from decimal import ROUND_HALF_UP, Decimal
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator, model_validator

from evolve.config.tables import RootPath, Section
from evolve.protocols import Action, ActionFormat, StepResult
from memory.base import first_error
from memory.errors import BadInput
from memory.records import Check, Outcome, Task, Trajectory
from policies.protocols import ToolSpec

MOST_OPERATIONS, EVERY, SECONDS = 200_000, 100, 5.0
"""Steps of SQLite's machine that a statement may take (no gold needs 3,000), looked at after every 100; time it may."""
MOST_ROWS, MOST_PAGES, SHOWN_ROWS = 1_000, 1_000, 5
"""Rows that a statement may return, pages of 4 KB that its database may have, rows that are told."""
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
}
"""Most bytes of a value or a row, of a statement, and of a pattern."""

_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
_ALLOWED = _WRITES | _READS
_REFUSED = {"load_extension", "random", "randomblob", "printf", "format"}
"""Functions that load code, that answer differently each time, or that work for long in a single step."""
_FENCE = re.compile(r"```\w*[ \t]*\n(.*?)```", re.DOTALL)

Row = tuple[Any, ...]


class LifelongDbConfig(Section):
    """Where the file is, and how it is divided."""

    data: RootPath
    """JSON file of the tasks, from the folder of evolve.toml."""
    test: int = Field(default=61, ge=1)
    """Tasks that are held out (`test_normal`): spread over the skill labels, about tables that no other task has."""
    dev: int = Field(default=40, ge=0)
    """Tasks for gates, chosen likewise from what is left; the others are `train`."""
    seed: int = 0
    """Draws which those are."""


class _Column(BaseModel):
    name: str
    type: str = Field(pattern=r"^\w+$")


class _Table(BaseModel):
    name: str
    column_info_list: tuple[_Column, ...] = Field(min_length=1)
    row_list: tuple[tuple[int | float | str | None, ...], ...]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        wide = len(self.column_info_list)
        if any(len(row) != wide for row in self.row_list):
            raise ValueError(f"a row of {self.name} has not {wide} values, as many as the table has columns")
        return self


class _Gold(BaseModel):
    sql: str


class _Entry(BaseModel):
    instruction: str
    table_info: _Table
    answer_info: _Gold
    skill_list: tuple[str, ...]

    @field_validator("table_info", "answer_info", "skill_list", mode="before")
    @classmethod
    def _literal(cls, value: Any) -> Any:
        try:
            return ast.literal_eval(value) if isinstance(value, str) else value
        except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError(f"no Python literal: {error}") from error


class Result(NamedTuple):
    """What a statement returned (None where it does not read), and the rows of the table after it."""

    rows: Counter[Row] | None
    table: Counter[Row]


class LifelongDb:
    """Questions about a table, and changes to it."""

    name = "lifelong_db"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()
    seedless = True
    max_steps = 3
    """The statement, and two more where it fails."""

    def __init__(self, config: LifelongDbConfig) -> None:
        """Read the file and run its gold statements. Raises `BadInput` for a file that holds something else."""
        entries = _read(Path(config.data), config.seed)
        self._entries = {name: entry for name, entry in entries.items() if _has_gold(entry)}
        self._splits = dict.fromkeys(self._entries, "train")
        tables = Counter(entry.table_info.name for entry in self._entries.values())
        for split, key, wanted in (("test_normal", "test", config.test), ("dev", "dev", config.dev)):
            left = {name: entry for name, entry in self._entries.items() if self._splits[name] == "train"}
            self._splits |= dict.fromkeys(_spread(left, tables, key, wanted), split)

    def describe(self, profile: str) -> str:
        """Return how a task is answered."""
        return (
            "Answer with one SQLite statement and nothing else. A question is answered by the rows that it returns, a "
            "change by what it does to the table."
        )

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split; a table is its tasks' scenario."""
        return [_task(name, self._entries[name], split) for name, of in self._splits.items() if of == split]

    def start(self, task: Task, seed: int = 0) -> LifelongDbEpisode:
        """Return a fresh episode. Raises `BadInput` for a task of another environment."""
        return LifelongDbEpisode(self._entry(task))

    def gold(self, task: Task) -> Sequence[Action]:
        """Return the gold statement."""
        return [Action(text=self._entry(task).answer_info.sql)]

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return nothing: the tables are the benchmark's own, and no stranger writes into them."""
        return ()

    def _entry(self, task: Task) -> _Entry:
        if task.id not in self._entries:
            raise BadInput(
                f"lifelong_db has no task {task.id!r}; its tasks come from the file that [environment] names"
            )
        return self._entries[task.id]


class LifelongDbEpisode:
    """Single use: it ends with the first statement that runs."""

    def __init__(self, entry: _Entry) -> None:
        self._entry = entry
        self._result: Result | None = None

    async def step(self, action: Action) -> StepResult:
        """Run the statement, or the first fenced block, in a fresh database."""
        fenced = _FENCE.search(action.text)
        statement = (fenced[1] if fenced else action.text).strip()
        if not statement:
            return _failed("no statement was given; answer with one SQLite statement")
        try:
            self._result = run(self._entry.table_info, statement)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # ValueError: a character that no text may hold
            return _failed(str(error))
        rows = self._result.rows
        return StepResult(observation="done" if rows is None else _listed(rows), done=True)

    async def grade(self) -> Outcome:
        """Compare with what the gold statement does."""
        wanted = run(self._entry.table_info, self._entry.answer_info.sql)
        right = self._result == wanted
        detail = "" if right else "no statement ran" if self._result is None else _difference(self._result, wanted)
        checks = (Check(name="answer", passed=right, detail=detail),)
        return Outcome(success=right, reward=float(right), checks=checks)

    async def close(self) -> None:
        """Hold nothing."""


def run(table: _Table, statement: str) -> Result:
    """Run one statement on a table in a database of its own.

    Raises `sqlite3.Error` for one that is wrong, reaches for anything but the table, or goes on for too long;
    `sqlite3.Warning` for several; and `ValueError` for a character that no text may hold.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        columns = ", ".join(f"{_quoted(column.name)} {column.type}" for column in table.column_info_list)
        database.execute(f"CREATE TABLE {_quoted(table.name)} ({columns})")
        places = ", ".join("?" for _ in table.column_info_list)
        database.executemany(f"INSERT INTO {_quoted(table.name)} VALUES ({places})", table.row_list)
        with _guarded(database, table.name):
            cursor = database.execute(statement)
            reads, rows = cursor.description is not None, cursor.fetchmany(MOST_ROWS + 1)
            cursor.close()
        if len(rows) > MOST_ROWS:
            raise sqlite3.OperationalError(f"the statement returns more than {MOST_ROWS} rows")
        after = database.execute(f"SELECT * FROM {_quoted(table.name)}")
        return Result(Counter(map(_plain, rows)) if reads else None, Counter(map(_plain, after)))


@contextmanager
def _guarded(database: sqlite3.Connection, table: str) -> Generator[None]:
    """Let a statement read and write one table alone, and stop it where it takes too long or grows too large."""

    def allowed(what: int, first: str | None, second: str | None, *_: str | None) -> int:
        named = first == table if what in _WRITES else second not in _REFUSED
        return sqlite3.SQLITE_OK if what in _ALLOWED and named else sqlite3.SQLITE_DENY

    database.execute(f"PRAGMA max_page_count = {MOST_PAGES}")
    for limit, most in LIMITS.items():
        database.setlimit(limit, most)
    looks, end = count(1), time.monotonic() + SECONDS
    database.set_progress_handler(lambda: next(looks) > MOST_OPERATIONS // EVERY or time.monotonic() > end, EVERY)
    database.set_authorizer(allowed)
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error) != "interrupted":
            raise
        raise sqlite3.OperationalError("the statement takes too long") from error
    finally:
        database.set_authorizer(None)
        database.set_progress_handler(None, 0)


def _plain(row: Row) -> Row:
    return tuple(_rounded(cell) if isinstance(cell, float) and abs(cell) < 1e15 else cell for cell in row)


def _rounded(value: float) -> float:
    """Round to two decimals as SQLite's ROUND does, so that whether a statement rounds makes no difference."""
    return float(Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_HALF_UP))


def _difference(got: Result, wanted: Result) -> str:
    if (got.rows is None) != (wanted.rows is None):
        return "the task asks for rows, not a change" if got.rows is None else "the task asks for a change, not rows"
    of, is_ = (wanted.table, got.table) if wanted.rows is None or got.rows is None else (wanted.rows, got.rows)
    parts = (("missing", of - is_), ("too many", is_ - of))
    return "; ".join(f"{what}: {_listed(rows)}" for what, rows in parts if rows)


def _listed(rows: Counter[Row]) -> str:
    shown = ", ".join(map(repr, islice(rows.elements(), SHOWN_ROWS))) or "no rows"
    return f"{shown} and {rows.total() - SHOWN_ROWS} more" if rows.total() > SHOWN_ROWS else shown


def _failed(error: str) -> StepResult:
    return StepResult(observation=f"error: {error}", error=error)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _task(name: str, entry: _Entry, split: str) -> Task:
    table = entry.table_info
    columns = ", ".join(f"{column.name} {column.type}" for column in table.column_info_list)
    return Task(
        id=name,
        instruction=f"{entry.instruction}\nTable {table.name}: {columns}",
        environment="lifelong_db",
        scenario=table.name,
        split=split,
        metadata={"family": entry.answer_info.sql.split()[0].lower(), "skills": list(entry.skill_list)},
    )


def _has_gold(entry: _Entry) -> bool:
    """Tell whether SQLite runs the gold statement, and it does something."""
    try:
        return run(entry.table_info, entry.answer_info.sql) != run(entry.table_info, "")
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):
        return False


def _spread(left: Mapping[str, _Entry], tables: Mapping[str, int], key: str, wanted: int) -> set[str]:
    """Return as many tasks about tables of their own, spread over the skill labels. Raises `BadInput`."""
    alone = [name for name, entry in left.items() if tables[entry.table_info.name] == 1]
    if wanted > len(alone):
        raise BadInput(f"{key} is {wanted} and {len(alone)} tasks are about a table of their own; name fewer")
    alone.sort(key=lambda name: sorted(left[name].skill_list))
    return {alone[at * len(alone) // wanted] for at in range(wanted)}


def _read(path: Path, seed: int) -> dict[str, _Entry]:
    """Return the tasks of a file in an order drawn from the seed, since the file is sorted. Raises `BadInput`."""
    expected = "expected a JSON object: id -> instruction, table_info, answer_info and skill_list"
    try:
        found = TypeAdapter(dict[str, _Entry]).validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read the file of lifelong_db {str(path)!r}: {error}") from error
    except ValidationError as error:
        raise BadInput(f"{path}: {first_error(error, 'file')}; {expected}") from error
    names = sorted(found, key=lambda name: Random(f"{seed} {name}").random())
    return {f"db-{name}": found[name] for name in names}


MEMBER = LifelongDb
