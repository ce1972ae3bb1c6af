"""Tools of an MCP server, over one explicit session per episode, so that what the server remembers belongs to it.

Needs the `mcp` extra (`langchain-mcp-adapters`). For a stdio connection each episode starts its own server process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream

from evolve.environments.tools import Tools, ToolsBroken, spec_of
from memory.content import clean
from memory.errors import BadInput
from memory.records import Task
from policies.protocols import ToolSpec

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from langchain_mcp_adapters.interceptors import MCPToolCallRequest

_SECRET = ("env", "headers", "auth")
"""Keys of a connection that no error repeats: they hold the user's keys."""
_TIMED_OUT = 408
"""Error code that the MCP client gives a request that ran into its timeout."""


class McpTools:
    """A `ToolSource` for one MCP server.

    `connection` is what langchain-mcp-adapters takes: `{"transport": "stdio", "command": ..., "args": [...]}` or
    `{"transport": "http", "url": ...}`.
    """

    copyable = False

    def __init__(self, connection: Mapping[str, Any], *, timeout: float = 30.0, call_timeout: float = 300.0) -> None:
        """Take the seconds that the server may take to start, and to answer one call."""
        self._connection = dict(connection)
        self._timeout, self._call_timeout = timeout, call_timeout

    def broke(self, error: Exception) -> bool:
        """Return True for a lost connection or a server that no longer answers."""
        from mcp.shared.exceptions import McpError
        from mcp.types import CONNECTION_CLOSED

        if isinstance(error, McpError):
            return error.error.code in (CONNECTION_CLOSED, _TIMED_OUT)
        return isinstance(error, (ClosedResourceError, BrokenResourceError, EndOfStream, TimeoutError))

    def specs(self) -> tuple[ToolSpec, ...]:
        """Ask the server once, in a thread of its own, since the caller may or may not run an event loop."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._listed()).result()

    async def open(self, task: Task, stack: AsyncExitStack) -> Tools:
        """Open a session that lives until `stack` closes. Raises `ToolsBroken` when the server does not answer."""
        session = _Session(self._connection, self._call_timeout)
        stack.push_async_callback(session.close)
        return {tool.name: tool for tool in await session.start(self._timeout)}

    async def _listed(self) -> tuple[ToolSpec, ...]:
        async with AsyncExitStack() as stack:
            tools = await self.open(Task(id="", instruction=""), stack)
            return tuple(spec_of(tool) for tool in tools.values())


class _Session:
    """Holds the session open in a task of its own: MCP sessions must be closed by the task that opened them."""

    def __init__(self, connection: dict[str, Any], call_timeout: float) -> None:
        self._connection, self._call_timeout = connection, call_timeout
        self._server = {key: clean(value) for key, value in connection.items() if key not in _SECRET}
        self._done = asyncio.Event()
        self._ready: asyncio.Future[list[BaseTool]] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self, timeout: float) -> list[BaseTool]:
        self._task = asyncio.create_task(self._hold())
        await asyncio.wait([self._ready, self._task], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done():
            return self._ready.result()
        if not self._task.done():
            self._task.cancel()
            raise ToolsBroken(f"the MCP server did not answer within {timeout} s: {self._server}")
        error = self._task.exception()
        if isinstance(error, ValueError):
            raise BadInput(f"bad MCP connection {self._server}: {error}") from error
        raise ToolsBroken(f"the MCP server did not start: {self._server} ({error!r})") from error

    async def close(self) -> None:
        self._done.set()
        if self._task is not None:
            if not self._ready.done():  # it waits for the server, and would go on to
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _hold(self) -> None:
        from langchain_mcp_adapters.sessions import create_session
        from langchain_mcp_adapters.tools import load_mcp_tools

        async with create_session(self._connection) as session:  # pyright: ignore[reportArgumentType] - checked there
            await session.initialize()
            self._ready.set_result(await load_mcp_tools(session, tool_interceptors=[self._in_time]))
            await self._done.wait()

    async def _in_time(
        self, request: MCPToolCallRequest, handler: Callable[[MCPToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Make one call. Raises `TimeoutError`; what a tool itself raises comes as an answer."""
        try:
            async with asyncio.timeout(self._call_timeout):
                return await handler(request)
        except TimeoutError as late:
            raise TimeoutError(f"no answer within {self._call_timeout:g} s") from late
