"""A Chroma server as the vector index, for several machines: `memory.index = "chroma-http:http://HOST:8000/NAME"`.

`chroma run` starts a server; it asks nobody who they are, so what keeps strangers from it is the network.
"""

from __future__ import annotations

from typing import Any, cast

import chromadb
import httpx

from memory.errors import EvolveError, IndexUnavailable
from memory.index_address import parse_address
from memory.indexes.chroma import ChromaCollections, fresh_settings

SECONDS = 30.0


class ChromaHttpIndex(ChromaCollections):
    """The collections of one workspace on a Chroma server. Raises `IndexUnavailable` where that does not answer."""

    errors = (Exception,)  # its client raises bare ones for what a proxy answers
    keeps_handles = False

    def __init__(self, address: str, database: str, *, model: str, dim: int) -> None:
        """Raises `BadInput` for an address that is none; the server is not asked yet."""
        super().__init__(model=model, dim=dim)
        self._server = parse_address("chroma-http", address)
        self.prefix = self._server.prefix
        self._connected = False

    def connect(self) -> None:
        """Connect. Raises `IndexUnavailable`."""
        self.close()
        try:
            httpx.get(f"{self._server.url}/api/v2/heartbeat", timeout=SECONDS).raise_for_status()
            client = chromadb.HttpClient(
                self._server.host, self._server.port, ssl=self._server.tls, settings=fresh_settings()
            )
        except Exception as error:
            raise self.error_of(error) from error
        # Chroma's client waits for ever, and leaves its connections open; it has no settings for either
        self._sessions = [each._server._session for each in (cast(Any, client), cast(Any, client)._admin_client)]
        for session in self._sessions:
            session.timeout = httpx.Timeout(SECONDS)
        self._connected = True
        self.use(client)

    def close(self) -> None:
        """Disconnect; closing twice is allowed."""
        if self._connected:
            super().close()
            for session in self._sessions:
                session.close()
            self._connected = False

    def error_of(self, error: Exception) -> EvolveError:
        """Return what is raised in place of an error of Chroma's, or of the network."""
        said = f"{type(error).__name__}: {error}"
        return IndexUnavailable.of(f"the Chroma server at {self._server.url}", said, "Is it running (`chroma run`)?")


MEMBER = ChromaHttpIndex
