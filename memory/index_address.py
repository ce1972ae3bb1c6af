"""Address of an index on a server: `http://HOST:PORT/NAME`. NAME keeps workspaces apart that share the server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import urlsplit

from memory.errors import BadInput

PORTS = {"chroma-http": 8000, "qdrant": 6333}
"""Index -> where its server listens, where an address does not say."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class IndexAddress:
    """A server, and this workspace on it."""

    host: str
    port: int
    tls: bool
    name: str
    """Of the workspace."""

    @property
    def url(self) -> str:
        """Return the server alone."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def prefix(self) -> str:
        """Return how the names of this workspace's collections begin on the server."""
        return f"evolve-{self.name}."


def parse_address(kind: str, given: str) -> IndexAddress:
    """Return the address of an index of `PORTS`. Raises `BadInput`."""
    port = PORTS[kind]
    try:
        parts = urlsplit(given)
        found, name = parts.port, parts.path.strip("/")
    except ValueError:
        parts, found, name = urlsplit(""), None, ""
    plain = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
    if not plain or not _NAME.fullmatch(name):
        raise BadInput(
            f"got index '{kind}:{given}'; expected '{kind}:http://HOST:{port}/NAME', where NAME (small letters, digits "
            "and '-') is this workspace's own on that server"
        )
    if parts.username or parts.password:
        raise BadInput(f"the address of index {kind!r} holds a user or a password, and settings are journalled")
    default = 443 if parts.scheme == "https" else port
    return IndexAddress(parts.hostname or "", found or default, parts.scheme == "https", name)


def legal_name(collection: str) -> str:
    """Return a name of `[a-zA-Z0-9-]`, at most 97 long, different for different collections and readable."""
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", collection)[:80].strip("-")
    return f"{readable}-{blake2b(collection.encode(), digest_size=8).hexdigest()}".lstrip("-")
