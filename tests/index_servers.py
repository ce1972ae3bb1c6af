"""Servers that hold vector indexes, for tests: Chroma's own and PostgreSQL with pgvector, one each for a test process.

No package brings a server of Qdrant. Its client's mode in memory stands for it: the same calls, no network, and exact.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from qdrant_client import QdrantClient

from memory.index_place import ServedIndex
from memory.indexes.chroma_http import ChromaHttpIndex
from memory.indexes.pgvector import PgvectorIndex
from memory.indexes.qdrant import QdrantIndex
from memory.journal import Journal
from policies.server_process import free_port
from tests.postgres import workspace_address

SERVED = ("chroma-http", "pgvector", "qdrant")
_MADE: dict[int, tuple[str, str, Any]] = {}
"""Index -> its address, database, and Qdrant's memory."""


@contextmanager
def chroma_server(port: int) -> Generator[str]:
    """Run a server of Chroma, and yield its address."""
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="evolve-chroma-") as home:
        command = [Path(sys.executable).with_name("chroma"), "run", "--path", home, "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(url)
            yield url
        finally:
            server.kill()
            server.wait()


def _wait_for(url: str) -> None:
    for _ in range(1200):
        try:
            if httpx.get(f"{url}/api/v2/heartbeat", trust_env=False).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise RuntimeError("chroma run does not answer")


@cache
def chroma_url() -> str:
    """Start the server of this test process, and return its address."""
    kept = ExitStack()
    atexit.register(kept.close)
    return kept.enter_context(chroma_server(free_port()))


def served_index(kind: str, *, model: str, dim: int, beside: ServedIndex | None = None) -> ServedIndex:
    """Return an index of a new workspace on a server of this kind, or of the same one as `beside`."""
    address, database, memory = _MADE[id(beside)] if beside else _new(kind)
    if kind == "pgvector":
        made: ServedIndex = PgvectorIndex(address, database, model=model, dim=dim)
    elif kind == "qdrant":
        made = QdrantIndex(address, database, model=model, dim=dim, client=lambda: memory)
    else:
        made = ChromaHttpIndex(address, database, model=model, dim=dim)
    _MADE[id(made)] = address, database, memory
    return made


def _new(kind: str) -> tuple[str, str, Any]:
    """Return the address and the database of a new workspace, and Qdrant's memory."""
    if kind == "pgvector":
        database = workspace_address(vector=True)
        Journal(Path("nowhere.db"), database=database).close()  # makes the workspace
        return "", database, None
    name = f"w{uuid4().hex}"
    if kind == "qdrant":
        return f"http://localhost/{name}", "", _Kept(":memory:")
    return f"{chroma_url()}/{name}", "", None


class _Kept(QdrantClient):
    """A client whose memory outlives it, as a server's does."""

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Keep what is there."""

    def query_points(self, *args: Any, search_params: Any = None, **kwargs: Any) -> Any:
        """Search; in memory it is exact, and warns of parameters that it does not need."""
        return super().query_points(*args, **kwargs)
