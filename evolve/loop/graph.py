"""The controller: recall, act, judge, attempt, expose, reflect, curate, gate, commit, retire, one batch after another.

The only module that knows LangGraph. Nodes are plain functions `(state, context) -> update`; the state holds ids, which
a checkpoint stores after each step, so a killed pass goes on where it stopped. What a node did before the kill it
finds in the journal again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")  # read once, when langgraph is imported

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from evolve.loop.nodes.act import act
from evolve.loop.nodes.attempt import attempt
from evolve.loop.nodes.commit import commit
from evolve.loop.nodes.curate import curate
from evolve.loop.nodes.expose import expose
from evolve.loop.nodes.gate import gate
from evolve.loop.nodes.judge import judge
from evolve.loop.nodes.recall import recall
from evolve.loop.nodes.reflect import reflect
from evolve.loop.nodes.retire import retire
from evolve.loop.state import EpisodeJob, RunContext, State, batch_of
from memory.sqlite.database import PATIENCE, clear_errors, use_wal

_STEPS = 10
"""Graph steps a batch takes."""
_CHAIN: tuple[tuple[str, Callable[[State, RunContext], Awaitable[dict[str, Any]]]], ...] = (
    ("recall", recall),
    ("judge", judge),
    ("attempt", attempt),
    ("expose", expose),
    ("reflect", reflect),
    ("curate", curate),
    ("gate", gate),
    ("commit", commit),
    ("retire", retire),
)


def build(context: RunContext) -> StateGraph[State]:
    """Return the graph, not yet compiled."""
    graph: StateGraph[State] = StateGraph(State)
    for name, node in _CHAIN:
        graph.add_node(name, partial(_awaited, node, context=context))
    graph.add_node("act", partial(_awaited, act, context=context))
    graph.add_edge(START, "recall")
    graph.add_conditional_edges("recall", partial(_fan_out, context=context), ["act"])
    graph.add_edge("act", "judge")
    for (name, _), (following, _) in pairwise(_CHAIN[1:]):
        graph.add_edge(name, following)
    graph.add_conditional_edges("retire", partial(_next, context=context), ["recall", END])
    return graph


_DAMAGED = "Delete this file: the journal holds what was done, and `evolve resume` takes the run up from it."


async def run_pass(context: RunContext, checkpoints: Path) -> None:
    """Work through `context.stream`, from its start or its last checkpoint; forget the checkpoints when done."""
    thread = context.stream.key()
    limit = _STEPS * context.stream.batches + 10
    config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": limit}
    checkpoints.parent.mkdir(parents=True, exist_ok=True)
    with clear_errors(str(checkpoints), damaged=_DAMAGED):
        await _finish(context, checkpoints, thread, config)


async def _finish(context: RunContext, checkpoints: Path, thread: str, config: Any) -> None:
    await asyncio.to_thread(use_wal, checkpoints)
    async with _Saver.from_conn_string(str(checkpoints)) as saver:
        assert isinstance(saver, _Saver)
        saver.serde = JsonPlusSerializer(allowed_msgpack_modules=None)  # plain values, whoever imported langgraph first
        await saver.conn.execute(PATIENCE)
        graph = build(context).compile(checkpointer=saver)
        try:
            stopped = await graph.aget_state(config)
            batch = stopped.values.get("batch", 0)
            while batch < context.stream.batches or stopped.tasks:
                # `tasks`, not `next`: a step that was killed after its last write has tasks and no next
                start: State | None = None if stopped.tasks else {"batch": batch}
                batch = (await graph.ainvoke(start, config, durability="async"))["batch"]
                stopped = await graph.aget_state(config)
            await saver.adelete_thread(thread)
        finally:
            await saver.settle()


class _Saver(AsyncSqliteSaver):
    """A saver that can wait for its writes.

    LangGraph leaves writes under way where a node fails. Closed under them, the file stays locked for as long as
    somebody keeps the error, whose frames hold an open statement.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._writes = set[asyncio.Task[Any]]()

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._writes.add(task)
        try:
            await super().aput_writes(*args, **kwargs)
        finally:
            self._writes.discard(task)

    async def settle(self) -> None:
        """Return when no write is under way; undo one that was cancelled half way."""
        await asyncio.sleep(0)  # those that were only planned begin
        while self._writes:
            await asyncio.wait(self._writes)
        await self.conn.rollback()


async def _awaited(
    node: Callable[[Any, RunContext], Awaitable[dict[str, Any]]], state: Any, *, context: RunContext
) -> dict[str, Any]:
    return await node(state, context)


def _fan_out(state: State, *, context: RunContext) -> list[Send]:
    """Send every task of the batch, and the control of those that have one, to a node of its own."""
    batch = batch_of(state)
    plan = context.stream.plan(batch)
    return [Send("act", EpisodeJob(batch=batch, task_id=task.id, arm=arm)) for task, arm in plan]


def _next(state: State, *, context: RunContext) -> str:
    return "recall" if batch_of(state) < context.stream.batches else END
