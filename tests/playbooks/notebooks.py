"""A scripted note writer, and a notebook kept in a real store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from memory.embedders.hashing import HashingEmbedder
from memory.records import Check, Commit, Outcome, Reflection, Step, Task, Trajectory
from memory.store import Store
from playbooks.notebook.failure_judge import Audit
from playbooks.notebook.note_curator import Episodes, NotebookCurator, Settings
from policies.protocols import Message, Policy, SamplingParams
from tests.playbooks.conftest import PARTS

UNITS = "payments.send amount: expected cents, got dollars"
LOGIN = "mail.send: E7 log in before"
APART = 0.6
"""A distance at which these two stay two clusters."""


def question(messages: Sequence[Message]) -> str:
    """Return what is asked, without the examples before it and a re-ask behind it."""
    records = [message.content for message in messages if message.role == "user" and "BEGIN " in message.content]
    return records[-1] if records else messages[0].content


def role(messages: Sequence[Message]) -> str:
    """Return which prompt this is: note, merge or judge."""
    text = question(messages)
    if "BEGIN NOTES" in text or text.startswith("note merge\n"):
        return "merge"
    return "judge" if "BEGIN TRANSCRIPT" in text or text.startswith("judge\n") else "note"


def about(messages: Sequence[Message]) -> str:
    """Return what the prompt is about: the first thing found wrong."""
    found = re.search(r"^(?:found wrong|fail): (?:check: )?(.*)$", question(messages), re.MULTILINE)
    return found[1] if found else "?"


def writer(messages: Sequence[Message], params: SamplingParams) -> str:
    """Answer as a good model would: a note whose subject is what was found wrong, a merge that says so."""
    if role(messages) == "judge":
        return json.dumps({"verdict": "incorrect" if "error" in question(messages) else "correct"})
    if role(messages) == "merge":
        subject = re.search(r"^subject: (.*)$", question(messages), re.MULTILINE)
        assert subject
        return json.dumps(PARTS | {"subject": subject[1], "mistake_summary": "merged"})
    return json.dumps(PARTS | {"subject": about(messages), "mistake_summary": f"seen: {about(messages)}"})


def episode(number: int, complaint: str = "", *, instruction: str = "", graded: bool = True) -> Trajectory:
    """Return an episode that failed with `complaint`, or succeeded without one."""
    checks = (Check(name="check", passed=False, detail=complaint),) if complaint else ()
    observation = f"error: {complaint}" if complaint else "ok"
    return Trajectory(
        id=f"t{number}",
        task=Task(id=f"task-{number}", instruction=instruction or f"do thing {number}"),
        steps=(Step(index=0, action="f()", observation=observation, error=complaint or None),),
        outcome=Outcome(success=not complaint, reward=float(not complaint), checks=checks) if graded else None,
    )


class Notebook:
    """A notebook in a store: `await learn(episodes)` curates and commits."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        faults: Callable[[Trajectory], tuple[str, ...]] | None = None,
        **settings: Any,
    ) -> None:
        self.store = store
        self.kept: list[Reflection] = []
        self.audits: list[Audit] = []
        self.curator = NotebookCurator(
            policy,
            HashingEmbedder(),
            Episodes(store.trajectory, faults or (lambda _: ())),
            settings=Settings(**{"distance": APART} | settings),
            keep=self.kept.append,
            record=self.audits.append,
        )

    async def propose(self, episodes: Sequence[Trajectory], **fields: Any) -> tuple[Any, ...]:
        """Return the proposed ops of a batch."""
        for trajectory in episodes:
            self.store.add_trajectory(trajectory)
        reflections = [Reflection(trajectory_id=t.id, task_id=t.task.id, author="test", **fields) for t in episodes]
        return await self.curator.curate(reflections, self.store.view("default"))

    async def learn(self, episodes: Sequence[Trajectory]) -> Commit:
        """Propose and apply."""
        commit = self.store.commit("default", await self.propose(episodes), actor="test")
        assert commit.refused == ()
        return commit

    def notes(self) -> list[Any]:
        """Return the live notes."""
        return list(self.store.view("default").records("note"))
