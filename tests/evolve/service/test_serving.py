"""`evolve serve` as a process, with a real MCP client and a real HTTP client.

P1  MCP and REST answer on one port, each token in its namespace; a session is the token's that began it
P2  a token that another process revokes is refused from the next request on
P3  Ctrl-C ends it, and every session with it
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from evolve.config.file import load_config
from evolve.integrations.client_limits import TooManyCalls
from evolve.loop.assembly import open_store
from evolve.service.access_tokens import issue
from evolve.service.callers import VISITS, Callers
from tests.evolve.command import evolve, evolve_json, finish, start
from tests.evolve.integrations.test_mcp_server import CLIENT, TASK, call, refused


@contextmanager
def running(folder: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Start the command on a free port; give it and its URL."""
    process = start(folder, "serve", "--port", "0", "--json")
    assert process.stdout is not None
    printed = ""
    while not printed.rstrip().endswith("}"):
        printed += process.stdout.readline()
    with process:
        try:
            yield process, json.loads(printed)["url"]
        finally:
            process.kill()


def secret(folder: Path, name: str, *scopes: str, namespace: str = "default") -> str:
    given = [word for scope in scopes for word in ("--scope", scope)]
    return str(evolve_json(folder, "tokens", "add", name, *given, "--namespace", namespace)["token"])


@asynccontextmanager
async def mcp(url: str, token: str, **headers: str) -> AsyncGenerator[ClientSession]:
    """Give the session of an MCP client that has a token."""
    async with (
        httpx.AsyncClient(headers={"authorization": f"Bearer {token}", **headers}, timeout=60) as http,
        streamable_http_client(f"{url}/mcp", http_client=http) as (read, write, _),
        ClientSession(read, write, client_info=CLIENT) as session,
    ):
        await session.initialize()
        yield session


async def test_agents_over_mcp_and_rest_stay_in_their_namespaces(learned: Path) -> None:
    agent, reader = secret(learned, "agent", "read", "report"), secret(learned, "reader", "read")
    other = secret(learned, "other", "read", "report", namespace="b")
    with running(learned) as (process, url):
        async with mcp(url, agent) as session:
            shown = await call(session, "get_playbook", task=TASK)
            assert shown["ids"]
            told = await call(session, "record_outcome", task=TASK, steps=[{"action": "x"}], cited=[shown["ids"][0]])
            lesson = await call(session, "propose", lesson="Ask twice before you pay more than a thousand.")
            assert lesson["answer"] == "quarantined"
        async with mcp(url, reader) as session:
            assert await call(session, "search", query="payments")
            assert "scope `report`" in await refused(session, "propose", lesson="Be kind.")
        async with mcp(url, other) as session:
            assert await call(session, "search", query="payments") == []
            assert "expected one that search" in await refused(
                session, "record_outcome", task=TASK, steps=[{"action": "x"}], cited=[shown["ids"][0]]
            )
        found = httpx.get(f"{url}/api/v1/runs", headers={"authorization": f"Bearer {agent}"}, timeout=60).json()
        assert told["session"] in {row["run_id"] for row in found}
        process.send_signal(signal.SIGINT)
        finish(process)
    with open_store(load_config(learned / "evolve.toml"), read_only=True) as store:
        run = store.get_run(told["session"]) or {}
        assert (run["kind"], run["client"], run["status"]) == ("mcp", "agent tester 1", "done")
        assert store.doctor() == []


async def test_a_session_is_of_the_token_that_began_it(learned: Path) -> None:
    first, second = secret(learned, "first", "read"), secret(learned, "second", "read", namespace="b")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_playbook", "arguments": {}}}
    opening = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    accept = {"accept": "application/json, text/event-stream"}
    with running(learned) as (_, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            began = await http.post("/mcp", json=opening, headers={"authorization": f"Bearer {first}", **accept})
            assert began.status_code == 200
            session = {"mcp-session-id": began.headers["mcp-session-id"], **accept}
            stolen = await http.post("/mcp", json=body, headers={"authorization": f"Bearer {second}", **session})
            assert stolen.status_code == 404
            own = await http.post("/mcp", json=body, headers={"authorization": f"Bearer {first}", **session})
            assert own.status_code == 200


async def test_a_token_opens_so_many_sessions_and_one_for_all_namespaces_opens_none(learned: Path) -> None:
    config = load_config(learned / "evolve.toml")
    with open_store(config, owner=False) as store:
        many, one = Callers(config, store), issue(store, "one", ["read"], "default")[0]
        async with AsyncExitStack() as stack:
            for _ in range(VISITS):
                many.admit_visit(one)
                await stack.enter_async_context(many.visit(one))
            with pytest.raises(TooManyCalls, match="MCP sessions open"):
                many.admit_visit(one)
        many.admit_visit(one)
    everywhere = secret(learned, "everywhere", "read", namespace="*")
    with running(learned) as (_, url):
        answer = httpx.post(f"{url}/mcp", json={}, headers={"authorization": f"Bearer {everywhere}"}, timeout=60)
        assert answer.status_code == 403
        assert "for all namespaces" in answer.json()["error"]["message"]


async def test_a_revoked_token_is_refused_from_the_next_request_on(learned: Path) -> None:
    token = secret(learned, "guest", "read")
    with running(learned) as (_, url), httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60) as http:
        assert http.get(f"{url}/api/v1/token").json()["name"] == "guest"
        evolve(learned, "tokens", "revoke", "guest")
        assert http.get(f"{url}/api/v1/token").status_code == 401
        assert http.post(f"{url}/mcp", json={}).status_code == 401
