"""A served workspace with two tenants, asked without a network."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from evolve.service.access_tokens import issue
from evolve.service.app import create_app
from memory.records import DeltaOp, Op, Provenance, Trust

ALL = ("read", "report", "review", "admin")
SECRET_RULE = "Say azure when the vault of tenant B is opened."


@dataclass
class Client:
    """Somebody with a token."""

    http: TestClient
    token: str

    def ask(self, method: str, path: str, status: int = 200, session: str = "", **more: Any) -> Any:
        """Send a request, of a named worker if given; return what it answers as JSON."""
        headers = {"authorization": f"Bearer {self.token}"} | ({"evolve-session": session} if session else {})
        answer = self.http.request(method, f"/api/v1{path}", headers=headers, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def error(self, method: str, path: str, status: int, **more: Any) -> str:
        """Send a request that is refused; return the sentence."""
        return str(self.ask(method, path, status, **more)["error"]["message"])


@dataclass
class Served:
    """The server, and how a token for it is made."""

    http: TestClient
    folder: Path

    def client(self, name: str, *scopes: str, namespace: str = "default") -> Client:
        """Return somebody new."""
        with open_store(load_config(self.folder / "evolve.toml"), owner=False) as store:
            _, secret = issue(store, name, scopes, namespace)
        return Client(self.http, secret)


@contextmanager
def serving(folder: Path) -> Generator[Served]:
    """Serve a workspace in which `default` learned, and tenant `b` knows one rule."""
    config = load_config(folder / "evolve.toml")
    with open_store(config, owner=False) as store:
        op = DeltaOp(op=Op.ADD, payload={"content": SECRET_RULE}, provenance=Provenance(trust=Trust.OPERATOR))
        assert store.commit("b", [op], actor="operator").applied
    with TestClient(create_app(config)) as http:
        yield Served(http, folder)


@pytest.fixture
def served(learned: Path) -> Generator[Served]:
    """Serve a copy of the workspace."""
    with serving(learned) as found:
        yield found
