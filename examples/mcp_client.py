"""An MCP client works with what was learned: it asks, does a task, says how it went, and proposes a lesson.

    python examples/mcp_client.py

Any MCP client does the same: give it the command `evolve mcp` in the folder of the workspace. This one is a few lines
that know their task; yours would be an assistant that is offered the tools.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import evolve

TASK = "Pay 250 to Ann."
COMMAND = [sys.executable, "-m", "evolve.cli.main", "mcp"]


def prepare(folder: Path) -> None:
    """Make a workspace with one rule, as `evolve init` and `evolve playbook add` do."""
    (folder / "evolve.toml").write_text('[memory]\nindex = "exact"\n')
    with evolve.open(folder) as memory:
        memory.add("Ask before you pay more than 100.", pin=False)


async def call(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return what a tool answers; an error of the tool is raised."""
    answer = await session.call_tool(tool, arguments)
    if answer.isError or answer.structuredContent is None:
        raise RuntimeError(str(answer.content))
    return answer.structuredContent


async def main() -> None:
    """Do one task and print what the server said."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], cwd=folder, env=dict(os.environ))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            playbook = await call(session, "get_playbook", task=TASK)
            print(f"known: {', '.join(playbook['ids'])} in {playbook['tokens']} tokens")
            steps = [{"action": "ask('Pay 250 to Ann?')", "observation": "yes"}, {"action": "pay('Ann', 250)"}]
            told = await call(
                session, "record_outcome", task=TASK, steps=steps, success=True, cited=list(playbook["ids"])
            )
            print(f"recorded: cited {', '.join(told['cited'])}")
            lesson = await call(session, "propose", lesson="A question names the receiver and the amount.")
            print(f"proposed: {lesson['name']} is {lesson['answer']}")


if __name__ == "__main__":
    asyncio.run(main())
