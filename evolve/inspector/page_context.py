"""Context of every page: the open workspace and who may do what."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Request

from evolve.config.model import Config
from evolve.gates import review_queue
from evolve.inspector.security import Refused, cookie_name
from evolve.workspace.editing import OPERATOR
from memory.errors import NotFound
from memory.store import Store


@dataclass
class PageContext:
    """An open workspace."""

    config: Config
    store: Store
    key: str
    """Who knows it may look; from it follows what a form has to bring."""
    read_only: bool = False
    file: Path | None = None
    """The evolve.toml that was named; None = the nearest one."""
    tickets: set[str] = field(default_factory=lambda: set())
    """Keys for one visit each: what opens a browser stands in its arguments, where others can read it."""
    actor: str = OPERATOR
    """Who changes something, for the journal."""
    said: list[str] = field(default_factory=lambda: [])
    """What the last change came to, shown once on the next page."""
    home: str = ""
    """The configured namespace, where another one is shown."""
    may_look: Callable[[], bool] = lambda: True
    """Tells whether who opened a page may still see it. It asks the store."""

    @property
    def namespace(self) -> str:
        return self.config.memory.namespace

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that the pages can show, by name."""
        return tuple(sorted({*review_queue.namespaces(self.store), self.home or self.namespace}))

    @property
    def csrf(self) -> str:
        """Return what a form of this page brings along. No other page knows it, nor one of another namespace."""
        return hmac.new(self.key.encode(), f"form {self.namespace}".encode(), "sha256").hexdigest()

    def within(self, namespace: str) -> PageContext:
        """Return this desk in another namespace. Raises `NotFound` where there is no such namespace."""
        if namespace not in self.namespaces:
            raise NotFound(f"no namespace {namespace!r} in this workspace; there are: {', '.join(self.namespaces)}")
        memory = self.config.memory.model_copy(update={"namespace": namespace})
        config = self.config.model_copy(update={"memory": memory})
        return replace(self, config=config, home=self.home or self.namespace)


def namespace_cookie(request: Request) -> str:
    """Return the name of the cookie that holds the chosen namespace."""
    return cookie_name(request.headers.get("host", ""), "evolve_namespace")


def given_desk(request: Request) -> PageContext:
    """Return the server's desk, or that of who sent this request. It asks the store nothing."""
    return request.scope.get("desk", request.app.state.desk)


def desk_of(request: Request) -> PageContext:
    """Return the desk of who sent this request, in the namespace that this browser chose."""
    desk = given_desk(request)
    chosen = unquote(request.cookies.get(namespace_cookie(request), ""))
    with suppress(NotFound):  # it was chosen in a workspace that this server shows no more
        return desk.within(chosen) if chosen else desk
    return desk


async def own_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that one of our pages sent. Raises `Refused` for any other, and when read-only."""
    desk = desk_of(request)
    if desk.read_only:
        raise Refused(
            "this page only shows: `evolve ui` was started with --read-only, or your token has no scope for this change"
        )
    fields = {name: value for name, value in (await request.form()).items() if isinstance(value, str)}
    if not hmac.compare_digest(fields.pop("csrf", "").encode(), desk.csrf.encode()):
        raise Refused("this form is not from the page that is open now; load the page again and repeat it")
    return fields


At = Annotated[PageContext, Depends(desk_of)]
Form = Annotated[dict[str, str], Depends(own_form)]
