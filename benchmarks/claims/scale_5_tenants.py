"""Claim scale_5: tenants of `evolve serve` reach nothing of each other's, and a revoked token stops at once.

Two namespaces of one workspace, served by a process of its own. Tenant b has 20 rules with a made-up word each, a run,
and lessons that wait for a person. Somebody with every scope in namespace a, who was told all ids of b's, makes ten
kinds of attempts on each rule to read or change it. What could be inferred is looked for in errors, and in what a is
answered over REST and MCP. Controls: the same attempts by b itself come through; and where b's knowledge is not there
at all, every answer to a is the same, scores included. Then each route with each scope, and the time until a token that
another process revokes is refused.

    python -m benchmarks.claims.scale_5_tenants [--quick]        --quick: 3 rules
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from benchmarks.claim import Row, at_most, begin, exactly
from benchmarks.shell import listening
from evolve.config.file import load_config
from evolve.gates.review_queue import submit
from evolve.loop.assembly import open_store
from evolve.service.access_tokens import SCOPES, issue, revoke
from memory.records import DeltaOp, Op, Provenance, Record, Status, Trust

RULES, QUICK = 20, 3
WORD = "zq{:02d}vault"
SETTINGS = '[memory]\nindex = "exact"\n[playbook]\nreflector = "none"\ncurator = "direct"\n'
STEP = [{"action": "open()"}]
LESSON = "Close door {} of the archive behind you."
"""What both tenants propose, in the same words."""
DRAWN = re.compile(r"\b(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{64})\b")
"""Ids of sessions and records, and hashes of such: they are random, so no two workspaces have the same."""


def secret(at: int) -> str:
    """Return a rule of tenant b."""
    return f"Say {WORD.format(at)} when door {at} of the archive is opened."


def rule(content: str, status: Status = Status.ACTIVE) -> DeltaOp:
    """Return the change that adds one."""
    return DeltaOp(op=Op.ADD, payload={"content": content}, status=status, provenance=Provenance(trust=Trust.OPERATOR))


def build(folder: Path, rules: int, *, other: bool = True) -> tuple[list[Record[Any]], list[int]]:
    """Make the workspace; return b's records and the numbers of what waits there. Without `other`, b is empty."""
    (folder / "evolve.toml").write_text(SETTINGS)
    with open_store(load_config(folder / "evolve.toml")) as store:
        store.commit("a", [rule(f"Knock before door {at} of the archive is opened.") for at in range(rules)], actor="x")
        if not other:
            return [], []
        store.commit("b", [rule(secret(at)) for at in range(rules)], actor="x")
        submit(store, "b", "run-b", [rule(f"{secret(at)} Loudly.") for at in range(rules)])
        return list(store.records("b")), [event.seq for event in store.events(type="review.pending")]


def token(folder: Path, name: str, scopes: Sequence[str], namespace: str) -> str:
    """Return a new token."""
    with open_store(load_config(folder / "evolve.toml"), owner=False) as store:
        return issue(store, name, scopes, namespace)[1]


def client(url: str, given: str) -> httpx.Client:
    """Return who has a token."""
    return httpx.Client(base_url=f"{url}/api/v1", headers={"authorization": f"Bearer {given}"}, timeout=60)


Attempt = Callable[[httpx.Client], bool]
"""Tells whether it came through."""


def attempts(record: Record[Any], number: int, run_id: str, at: int) -> list[Attempt]:
    """Return the attempts over REST on one rule."""
    word, key = WORD.format(at), record.id

    def shows(answer: httpx.Response) -> bool:
        return answer.is_success and (word in answer.text or key in answer.text)

    def asked(method: str, path: str, **more: Any) -> Attempt:
        return lambda who: shows(who.request(method, path, **more))

    def done(method: str, path: str, **more: Any) -> Attempt:
        return lambda who: who.request(method, path, **more).is_success

    return [
        asked("GET", f"/knowledge/{key}"),
        asked("GET", "/knowledge", params={"show": "all", "namespace": "b"}),
        asked("GET", "/search", params={"query": secret(at), "k": 100}),
        asked("POST", "/playbook", json={"task": secret(at)}),
        done("POST", "/outcomes", json={"task": secret(at), "steps": STEP, "cited": [key]}),
        done("PATCH", f"/knowledge/{key}", json={"content": f"{secret(at)} Softly."}),
        done("POST", f"/knowledge/{key}/retire", json={}),
        done("POST", f"/knowledge/{key}/restore"),
        done("POST", f"/proposals/{number}/accept", json={}),
        done("GET", f"/runs/{run_id}"),
    ]


def told_apart(who: httpx.Client, key: str) -> int:
    """Return how many answers tell a record of b's from one that never was."""
    never = "0" * len(key)
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/knowledge/{}", {}),
        ("PATCH", "/knowledge/{}", {"json": {"content": "x"}}),
        ("POST", "/knowledge/{}/retire", {"json": {}}),
    ]
    found = 0
    for method, path, more in asked:
        answers = {name: who.request(method, path.format(name), **more) for name in (key, never)}
        said = [(answer.status_code, answer.text.replace(name, "?")) for name, answer in answers.items()]
        found += said[0] != said[1]
    return found


def seen(url: str, given: str, rules: int) -> list[str]:
    """Return every answer that tenant a gets, over REST and MCP, whole but for what is drawn at random."""
    with client(url, given) as who:
        answers = [who.get("/search", params={"query": secret(at), "k": 50}).text for at in range(rules)]
        answers += [who.post("/playbook", json={"task": secret(at)}).text for at in range(rules)]
    return [DRAWN.sub("?", answer) for answer in (*answers, *asyncio.run(over_mcp(url, given, rules)))]


async def over_mcp(url: str, given: str, rules: int) -> list[str]:
    """Search, and propose lessons, as an MCP client that is called like every other one."""
    async with (
        httpx.AsyncClient(headers={"authorization": f"Bearer {given}"}, timeout=60) as http,
        streamable_http_client(f"{url}/mcp", http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        called = [await session.call_tool("search", {"query": secret(at), "k": 50}) for at in range(rules)]
        called += [await session.call_tool("propose", {"lesson": LESSON.format(at)}) for at in range(rules)]
        return [json.dumps(each.structuredContent, sort_keys=True) for each in called]


def wrong_scopes(folder: Path, url: str) -> tuple[int, int]:
    """Return how many pairs of a route and a scope are answered wrongly, and how many there are."""
    routes = _routes(url, token(folder, "lister", ["read"], "a"))
    wrong = 0
    for scope in SCOPES:
        with client(url, token(folder, f"only {scope}", [scope], "a")) as who:
            for method, path, wanted in routes:
                answer = who.request(method, path.replace("{name}", "none").replace("{number}", "0"), json={})
                wrong += (answer.status_code == 403) is (scope in (wanted, "admin"))
    return wrong, len(routes) * len(SCOPES)


def _routes(url: str, given: str) -> list[tuple[str, str, str]]:
    """Return method, path and wanted scope of every route but `/token`: reading is what agents and lists do, and what
    changes or audits knowledge is the administrator's."""
    with client(url, given) as who:
        paths = who.get("/openapi.json").json()["paths"]
    found: list[tuple[str, str, str]] = []
    for path, methods in paths.items():
        name = path.removeprefix("/api/v1")
        for method in methods:
            if name == "/token":
                continue
            if name == "/outcomes" or (name, method) == ("/proposals", "post"):
                wanted = "report"
            elif name.startswith("/proposals"):
                wanted = "review"
            elif name == "/audit" or (name.startswith("/knowledge") and method != "get"):
                wanted = "admin"
            else:
                wanted = "read"
            found.append((method.upper(), name.replace("{run_id}", "none"), wanted))
    return found


def until_refused(folder: Path, url: str) -> float:
    """Return the seconds from when a token is revoked elsewhere until the server refuses it."""
    given = token(folder, "guest", ["read"], "a")
    with client(url, given) as who, open_store(load_config(folder / "evolve.toml"), owner=False) as store:
        assert who.get("/token").is_success
        revoke(store, "guest")
        begun = time.perf_counter()
        while who.get("/token").is_success:
            pass
        return time.perf_counter() - begun


def tried(folder: Path, url: str, records: Sequence[Record[Any]], numbers: Sequence[int]) -> dict[str, int]:
    """Let a and then b make every attempt; return what came of it."""
    a, b = (token(folder, name, SCOPES, name) for name in ("a", "b"))
    with client(url, a) as stranger, client(url, b) as owner:
        run_id = owner.post("/outcomes", json={"task": "open", "steps": STEP}).json()["session"]
        known = enumerate(zip(records, numbers, strict=True))
        every = [attempts(record, number, run_id, at) for at, (record, number) in known]
        return {
            "attempts": sum(map(len, every)),
            "came through": sum(did(stranger) for each in every for did in each),
            "told apart": sum(told_apart(stranger, record.id) for record in records),
            "of the owner": sum(did(owner) for each in every for did in each),
            "told to the owner": sum(told_apart(owner, record.id) for record in records),
        }


def main() -> None:
    """Serve, attempt, compare."""
    run = begin("scale_5_tenants", __doc__)
    rules = QUICK if run.quick else RULES
    with tempfile.TemporaryDirectory() as place:
        shared, alone = Path(place) / "shared", Path(place) / "alone"
        for folder in (shared, alone):
            folder.mkdir()
        records, numbers = build(shared, rules)
        build(alone, rules, other=False)
        answers: list[list[str]] = []
        for folder in (shared, alone):
            agent, theirs = (token(folder, f"agent of {name}", ["read", "report"], name) for name in ("a", "b"))
            with listening(folder, "serve") as url:
                if folder == shared:
                    asyncio.run(over_mcp(url, theirs, rules))
                answers.append(seen(url, agent, rules))
        with listening(shared, "serve") as url:
            found = tried(shared, url, records, numbers)
            wrong, pairs = wrong_scopes(shared, url)
            seconds = max(until_refused(shared, url) for _ in range(3))
    n = found["attempts"]
    run.conclude(
        [
            Row("attempts on another namespace that came through", found["came through"], exactly(0), n=n),
            Row("control: the same attempts by its own tenant", found["of the owner"], exactly(n), n=n),
            Row("errors that tell a foreign record from none", found["told apart"], exactly(0), n=3 * rules),
            Row("control: the same for its own tenant", found["told to the owner"], exactly(3 * rules), n=3 * rules),
            Row(
                "answers that differ where the other namespace is empty",
                sum(x != y for x, y in zip(*answers, strict=True)),
                exactly(0),
                n=4 * rules,
            ),
            Row("pairs of route and scope answered wrongly", wrong, exactly(0), n=pairs),
            Row("seconds until a revoked token is refused, longest", seconds, at_most(1.0), n=3),
        ]
    )


if __name__ == "__main__":
    main()
