"""What a token works with: the workspace in its namespace, its limits, and its REST session, which is one run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from evolve.config.file import changed
from evolve.config.model import Config
from evolve.integrations.client_limits import Limits
from evolve.integrations.client_session import ClientSession
from evolve.loop.runs import REST
from evolve.service.tokens import EVERYWHERE, Scope, Token
from memory.errors import EvolveError
from memory.store import Store


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
    """Every token that asked, with what it may spend and the REST sessions that it began."""

    def __init__(self, config: Config, store: Store) -> None:
        self._config, self._store = config, store
        self._limits: dict[str, Limits] = {}
        self._sessions: dict[tuple[str, str], ClientSession] = {}
        self._opening = asyncio.Lock()

    def caller(self, token: Token, namespace: str | None = None) -> Caller:
        """Return who asks. Raises `Forbidden` for a namespace that is not the token's."""
        own = self._config.memory.namespace if token.namespace == EVERYWHERE else token.namespace
        if namespace not in (None, own) and token.namespace != EVERYWHERE:
            raise Forbidden(f"got namespace {namespace!r}; token {token.name!r} is for another one: leave it out")
        config = changed(self._config, {"memory.namespace": namespace or own})
        return Caller(token, config, self._store, self._limits.setdefault(token.id, Limits()))

    async def session(self, caller: Caller) -> ClientSession:
        """Return the REST session of a caller, begun when it is first asked for."""
        key = (caller.token.id, caller.namespace)
        async with self._opening:
            if key not in self._sessions:
                session = self.opened(caller, REST)
                self._sessions[key] = await session.__aenter__()
                session.greet(caller.token.name, "http")
        return self._sessions[key]

    def opened(self, caller: Caller, kind: str) -> ClientSession:
        """Return a session that is not entered yet."""
        writes = caller.token.may("report")
        return ClientSession(caller.config, self._store, kind=kind, writes=writes, limits=caller.limits)

    async def close(self) -> None:
        """End the sessions."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.__aexit__(None, None, None)
