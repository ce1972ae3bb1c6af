"""The inspector over a workspace in which the scripted worker has learned, asked without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from evolve.config.file import load_config
from evolve.inspector.page_context import PageContext
from evolve.inspector.server import create_app

HOST = "http://127.0.0.1:8765"
CHANGES = {"origin": HOST, "sec-fetch-site": "same-origin"}


class Visitor:
    """A browser that was given the address."""

    def __init__(self, client: TestClient, desk: PageContext) -> None:
        self.client, self.desk = client, desk

    def text(self, path: str, status: int = 200) -> str:
        """Return a page."""
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.text

    def does(self, path: str, status: int = 200, **fields: str) -> str:
        """Send a form as our page would; return the page that follows."""
        answer = self.client.post(path, data={"csrf": self.desk.csrf, **fields}, headers=CHANGES)
        assert answer.status_code == status, answer.text
        return answer.text

    def first(self, path: str, kind: str) -> str:
        """Return the first address of a kind on a page."""
        found = re.search(rf'href="(/{kind}/[^"]+)"', self.text(path))
        assert found is not None
        return found[1]


@contextmanager
def opened(folder: Path, *, read_only: bool = False) -> Iterator[Visitor]:
    """Open the inspector over a workspace."""
    made = create_app(load_config(folder / "evolve.toml"), read_only=read_only, file=folder / "evolve.toml")
    with TestClient(made, base_url=HOST) as client:
        assert client.get("/", params={"key": made.state.desk.key}).status_code == 200
        yield Visitor(client, made.state.desk)


@pytest.fixture
def visitor(learned: Path) -> Iterator[Visitor]:
    """Return a visitor of a copy of the workspace."""
    with opened(learned) as found:
        yield found
