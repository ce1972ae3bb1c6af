"""Callers by token: the workspace in its namespace, its limits, and its sessions, each of which is a run."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from evolve.config.file import changed
from evolve.config.model import Config
from evolve.gates import review_queue
from evolve.integrations.client_limits import Limits, TooManyCalls
from evolve.integrations.client_session import ClientSession
from evolve.loop.runs import MCP, REST
from evolve.service.access_tokens import EVERYWHERE, Scope, Token, listed
from memory.errors import EvolveError, NotFound
from memory.store import Store

SESSIONS, VISITS = 100, 100
"""REST sessions of one token that are kept open, and its MCP sessions, at most."""


class Forbidden(EvolveError):
    """A token that may not do what was asked."""


@dataclass(frozen=True)
class Caller:
    """A token and the namespace of one request."""

    token: Token
    config: Config
    """With the namespace of the request."""
    store: Store
    limits: Limits

    @property
    def namespace(self) -> str:
        return self.config.memory.namespace

    @property
    def actor(self) -> str:
        """Return who changes something, for the journal."""
        return f"token:{self.token.name}"

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` where the token lacks a scope."""
        if not self.token.may(scope):
            raise Forbidden(f"token {self.token.name!r} has no scope {scope!r}; ask the operator for one that has")


class Callers:
    """Every token that asked, with what it may spend and the sessions that it began."""

    def __init__(self, config: Config, store: Store) -> None:
        self._config, self._store = config, store
        self._limits: dict[str, Limits] = {}
        self._sessions: OrderedDict[tuple[str, str, str], ClientSession] = OrderedDict()
        self._visits: Counter[str] = Counter()
        self._opening = asyncio.Lock()

    def caller(self, token: Token, namespace: str | None = None) -> Caller:
        """Return who asks. Raises `Forbidden` for a namespace that is not the token's, `NotFound` for none at all."""
        own = self._config.memory.namespace
        if token.namespace != EVERYWHERE:
            if namespace not in (None, token.namespace):
                raise Forbidden(f"got namespace {namespace!r}; token {token.name!r} is for another one: leave it out")
            own = token.namespace
        elif namespace not in (None, own) and namespace not in self._namespaces():
            raise NotFound(f"no namespace {namespace!r}; a token of its own begins one")
        config = changed(self._config, {"memory.namespace": namespace or own})
        return Caller(token, config, self._store, self._limits.setdefault(token.id, Limits()))

    def _namespaces(self) -> set[str]:
        """Return where something is known or proposed, or a token is for."""
        tokens = (each.namespace for each in listed(self._store))
        return {*review_queue.namespaces(self._store), *tokens} - {EVERYWHERE}

    async def session(self, caller: Caller, name: str = "") -> ClientSession:
        """Return a REST session of a caller, begun when it is first asked for; `name` tells workers of a token apart.

        Of more than `SESSIONS` of a token the one that was used least lately is ended.
        """
        key = (caller.token.id, caller.namespace, name)
        async with self._opening:
            if key not in self._sessions:
                session = await self._opened(caller, REST).__aenter__()
                session.greet(name, "http")
                self._sessions[key] = session
                mine = [each for each in self._sessions if each[0] == caller.token.id]
                for oldest in mine[:-SESSIONS]:
                    await self._sessions.pop(oldest).__aexit__(None, None, None)
            self._sessions.move_to_end(key)
            return self._sessions[key]

    def admit_visit(self, token: Token) -> None:
        """Look whether a token may begin one more MCP session. Raises `Forbidden`, and `TooManyCalls`."""
        if token.namespace == EVERYWHERE:
            raise Forbidden(f"token {token.name!r} is for all namespaces; MCP takes one for the namespace it works in")
        self.caller(token).require("read")
        if self._visits[token.id] >= VISITS:
            raise TooManyCalls(f"token {token.name!r} has {VISITS} MCP sessions open; end some, or wait half an hour")

    @asynccontextmanager
    async def visit(self, token: Token) -> AsyncGenerator[ClientSession]:
        """Give an MCP session of a token that was admitted."""
        self._visits[token.id] += 1
        try:
            async with self._opened(self.caller(token), MCP) as session:
                yield session
        finally:
            self._visits[token.id] -= 1

    def _opened(self, caller: Caller, kind: str) -> ClientSession:
        token, limits = caller.token, caller.limits
        writes = token.may("report")
        session = ClientSession(
            caller.config, self._store, kind=kind, writes=writes, limits=limits, layers=token.layers
        )
        session.holder = token.name
        return session

    async def close(self) -> None:
        """End the sessions, each of them, and then raise what the first one raised."""
        sessions, self._sessions = self._sessions, OrderedDict()
        async with AsyncExitStack() as stack:
            for session in sessions.values():
                stack.push_async_exit(session)
