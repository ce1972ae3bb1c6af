"""The office's state: tables of rows, seeded per task, comparable, hashable and restorable."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from evolve.environments.office.entities import Names

Row = dict[str, Any]
TABLES = ("contacts", "mails", "events", "files", "todos", "payments", "requests", "seals")


class State:
    """Six apps' tables. Rows are plain JSON values; new rows get ids that count up."""

    def __init__(self, tables: dict[str, dict[str, Row]]) -> None:
        self.tables = tables
        self.counter = 100

    @classmethod
    def seeded(cls, names: Names) -> State:
        """Return the state in which a task starts, filled from the task's own entities and distractors."""
        tables: dict[str, dict[str, Row]] = {name: {} for name in TABLES}
        for i, person in enumerate(names.people):
            low = person.lower()
            tables["contacts"][f"c{i}"] = {
                "name": person,
                "email": f"{low}@corp.org",
                "handle": f"@{low}",
                "phone": "0",
            }
        for i, (subject, sender) in enumerate(zip(names.subjects, names.senders, strict=True)):
            tables["mails"][f"m{i}"] = {"subject": subject, "sender": sender, "body": f"note {i}", "folder": "inbox"}
        for i, (title, date) in enumerate(zip(names.titles, names.dates, strict=True)):
            tables["events"][f"e{i}"] = {"title": title, "date": date}
        for i, name in enumerate(names.files):
            tables["files"][f"f{i}"] = {"name": name, "text": f"text {i}", "folder": "inbox", "shared": {}}
        for i, title in enumerate(names.chores):
            tables["todos"][f"t{i}"] = {"title": title, "done": False, "owner": None}
        return cls(tables)

    def add(self, table: str, prefix: str, row: Row) -> str:
        """Insert a row and return its new id."""
        self.counter += 1
        key = f"{prefix}{self.counter}"
        self.tables[table][key] = row
        return key

    def copy(self) -> State:
        """Return an independent copy: a snapshot that can be restored or forked."""
        twin = State(copy.deepcopy(self.tables))
        twin.counter = self.counter
        return twin

    def digest(self) -> str:
        """Return a hash of the whole state, equal for equal states."""
        return hashlib.sha256(json.dumps(self.tables, sort_keys=True).encode()).hexdigest()
