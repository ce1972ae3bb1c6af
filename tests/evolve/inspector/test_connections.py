"""Connections to `evolve ui` and `evolve mcp --http` that want nothing, or something else than a page.

S7  a WebSocket is refused without an error, with the key and without
S8  a connection that never says what it wants is closed
S9  an origin that only begins like ours is another's
"""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.testclient import WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from benchmarks.browser import inspector
from tests.evolve.inspector.conftest import CHANGES, HOST, Visitor
from tests.evolve.integrations.test_mcp_server import listening

UPGRADE = (
    "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
HALVES = {
    "nothing": b"",
    "half a request": b"GET / HTTP/1.1\r\nHost: 127",
    "no body": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf",
}


@pytest.mark.parametrize("known", [True, False])
def test_a_web_socket_is_refused_and_nothing_breaks(known: bool, visitor: Visitor) -> None:
    if not known:
        visitor.client.cookies.clear()
    with pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)), visitor.client.websocket_connect("/"):
        pass
    assert visitor.client.get("/").status_code == (200 if known else 403)


def test_an_upgrade_by_a_stranger_is_no_error_of_the_server(learned: Path) -> None:
    with inspector(learned) as address:
        parts = urlsplit(address)
        with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=60) as stranger:
            stranger.sendall(UPGRADE.format(host=parts.netloc).encode())
            assert stranger.recv(4096).split()[1] == b"403"


def _closes(at: tuple[str, int]) -> None:
    """Open a connection for each half, and see each of them closed by the other side."""
    with ExitStack() as stack:
        made = {name: stack.enter_context(socket.create_connection(at, timeout=60)) for name in HALVES}
        for name, connection in made.items():
            connection.sendall(HALVES[name])
        for name, connection in made.items():
            while said := connection.recv(4096):
                assert b"200" not in said.split(b"\r\n")[0], name


def test_the_page_closes_connections_that_say_nothing(learned: Path) -> None:
    with inspector(learned) as address:
        parts = urlsplit(address)
        _closes((str(parts.hostname), parts.port or 0))


def test_so_does_the_mcp_server(learned: Path) -> None:
    process, url = listening(learned)
    try:
        parts = urlsplit(url)
        _closes((str(parts.hostname), parts.port or 0))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8765.evil.example", "http://localhost.evil", "http://127.0.0.1.evil:8765", f"{HOST}/"]
)
def test_an_origin_that_begins_like_ours_is_another(origin: str, visitor: Visitor) -> None:
    record = visitor.first("/playbook", "records")
    fields = {"csrf": visitor.desk.csrf}
    refused = visitor.client.post(f"{record}/retire", data=fields, headers=CHANGES | {"origin": origin})
    assert refused.status_code == 403
    shown = visitor.client.get("/", headers={"host": origin.removeprefix("http://").rstrip("/")})
    assert shown.status_code == (200 if origin == f"{HOST}/" else 403)
