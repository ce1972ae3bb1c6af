"""Agents that somebody brings along, each at work in a workspace: `python -P brought_along.py FOLDER KIND COUNT`.

It uses the public names only, but for what reads a file of settings, so it runs under the source of any commit that has
them. What it leaves in the journal is looked for by claim mend_3.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from evolve import Agent, Config, Outcome, Step, Task, Trajectory

COLORS = ("red", "blue", "green", "grey", "pink", "gold", "teal", "plum")


def solve(task: Task, knowledge: str) -> Trajectory:
    """Open a door that wants its color backwards; a refusal says so."""
    color = task.instruction.split()[2]
    word = color[::-1]
    said = f"the {color} door must hear the word {word}"
    right = Step(index=0, action=f"doors.open(color='{color}', word='{word}')", observation="ok")
    if word in knowledge:
        return Trajectory(task=task, steps=(right,), outcome=Outcome(success=True, reward=1.0))
    wrong = Step(index=0, action=f"doors.open(color='{color}')", observation=f"error: {said}", error=said)
    steps = (wrong, right.model_copy(update={"index": 1}))
    return Trajectory(task=task, steps=steps, outcome=Outcome(success=False, reward=0.0))


def agent(config: Config, count: int) -> None:
    """Do tasks with an agent of one's own."""

    async def work() -> None:
        async with Agent(solve, config) as mine:
            await mine.run(f"Open the {COLORS[at % len(COLORS)]} door for guest {at}." for at in range(count))

    asyncio.run(work())


def langchain(config: Config, count: int) -> None:
    """Do tasks with a LangChain agent under the middleware."""
    from langchain.agents import create_agent

    from evolve.integrations.langchain_middleware import Learning
    from examples.langgraph_learns import Doorman, open_door, politely

    with Learning(config, grade=politely) as learning:
        doorman: Any = create_agent(Doorman(), [open_door], middleware=[learning])
        for at in range(count):
            doorman.invoke({"messages": [("user", f"Open the {COLORS[at % len(COLORS)]} door.")]})


def mcp(config: Config, count: int) -> None:
    """Record outcomes as clients of `evolve mcp`, one session each; the last one is cut off."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def visit(at: int) -> None:
        arguments = ["-m", "evolve.cli.main", "--config", str(config.root / "evolve.toml"), "mcp"]
        server = StdioServerParameters(command=sys.executable, args=arguments, cwd=config.root, env=dict(os.environ))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            given = {"task": f"Pay the bill of guest {at}.", "steps": [{"action": "pay()"}], "success": at % 2 == 0}
            answer = await session.call_tool("record_outcome", given)
            assert not answer.isError, answer
            if at == count - 1:
                os._exit(0)  # the client is gone without a goodbye

    for at in range(count):
        asyncio.run(visit(at))


def langgraph(config: Config, count: int) -> None:
    """Put items into the LangGraph store."""
    from evolve.integrations.langgraph_store import open_journal_store

    with open_journal_store(config) as store:
        for at in range(count):
            store.put(("guests",), f"guest {at}", {"likes": COLORS[at % len(COLORS)]})


def read_config(file: Path) -> Config:
    """Return the settings in a file, by the module that reads them under the source that is imported."""
    try:
        reader = import_module("evolve.config.file")
    except ModuleNotFoundError:
        reader = import_module("evolve.configfile")  # its name in the source that the audit read
    return reader.load_config(file)


def main() -> None:
    """Do what the command line says."""
    folder, kind, count = sys.argv[1:]
    works = {"agent": agent, "langchain": langchain, "mcp": mcp, "langgraph": langgraph}
    works[kind](read_config(Path(folder) / "evolve.toml"), int(count))


if __name__ == "__main__":
    main()
