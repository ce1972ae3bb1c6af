"""The REST API of `evolve serve`: what an agent asks and reports, and what a person decides.

A1  an agent asks, reports and proposes over HTTP; it is a run of kind `rest`, and what it reports is hearsay
A2  a person reviews and edits with a token, and the audit names the token
A3  each scope opens what is its own and nothing else; a wrong token, body or name is one sentence
A4  sizes, and calls within a minute, are bounded
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import pytest
from fastapi.testclient import TestClient
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from evolve.config.file import load_config
from evolve.gates.review_queue import submit
from evolve.integrations.client_limits import PROPOSALS, SESSIONS
from evolve.loop.assembly import open_store
from evolve.service import callers
from evolve.service.access import BODY, whole
from evolve.workspace import editing
from memory.embedders.hashing import HashingEmbedder
from memory.protocols import Vector
from memory.records import DeltaOp, Op, Status, Trust
from memory.sqlite.sql import sqlite3
from tests.evolve.service.conftest import ALL, Client, Served, serving

TASK = "Pay the invoice of Ann."
STEPS = [{"action": "apps.payments.send()", "error": "no"}, {"action": "apps.payments.send(to='Ann')"}]
OUTCOME: dict[str, Any] = {"task": TASK, "steps": STEPS, "success": True, "feedback": "the bank said yes"}
LESSON = "Ask twice before you pay more than a thousand."

ROUTES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("read", "GET", "/search", {"params": {"query": "payments"}}),
    ("read", "POST", "/playbook", {"json": {"task": TASK}}),
    ("read", "GET", "/skills/none", {}),
    ("read", "GET", "/knowledge", {}),
    ("read", "GET", "/knowledge/1", {}),
    ("read", "GET", "/runs", {}),
    ("read", "GET", "/runs/none", {}),
    ("report", "POST", "/outcomes", {"json": OUTCOME}),
    ("report", "POST", "/proposals", {"json": {"lesson": LESSON}}),
    ("review", "GET", "/proposals", {}),
    ("review", "POST", "/proposals/1/accept", {"json": {}}),
    ("review", "POST", "/proposals/1/reject", {"json": {}}),
    ("review", "POST", "/proposals/1/defer", {"json": {}}),
    ("admin", "POST", "/knowledge", {"json": {"content": "Be brief."}}),
    ("admin", "PATCH", "/knowledge/1", {"json": {"content": "Be brief."}}),
    ("admin", "POST", "/knowledge/1/retire", {"json": {}}),
    ("admin", "POST", "/knowledge/1/restore", {}),
    ("admin", "GET", "/audit", {}),
]


def test_an_agent_elsewhere_asks_reports_and_proposes(served: Served) -> None:
    agent = served.client("worker 7", "read", "report")
    hit, *_ = agent.ask("GET", "/search", params={"query": "payments", "k": 3})
    shown = agent.ask("POST", "/playbook", json={"task": TASK})
    assert hit["text"] in agent.ask("POST", "/playbook", json={})["text"]
    cited = shown["ids"][0]
    told = agent.ask("POST", "/outcomes", 201, json={**OUTCOME, "cited": [cited]})
    assert {cited, hit["id"]} <= set(told["shown"])
    proposed = agent.ask("POST", "/proposals", 201, json={"lesson": LESSON})
    assert proposed["answer"] == "quarantined"
    run = agent.ask("GET", f"/runs/{told['session']}")
    assert (run["kind"], run["client"], run["episodes"], run["success"]) == ("rest", "worker 7", 1, 1.0)
    with open_store(load_config(served.folder / "evolve.toml"), read_only=True) as store:
        record = next(r for r in store.records("default") if r.label == cited)
        (tag,) = [e for e in store.history(record.id) if e.type == "knowledge.tag" and e.run_id == told["session"]]
        assert tag.data["reported"] == {"success": 1, "helpful": 1}
        held = next(r for r in store.records("default") if r.label == proposed["name"])
        assert (held.status, held.provenance.trust) == (Status.CANDIDATE, Trust.IMPORTED)
        assert held.provenance.author == "worker 7"


class Held(HashingEmbedder):
    """Embeds one text when it is let go, or after a while."""

    begun, let_go = Event(), Event()

    def embed(self, texts: Sequence[str]) -> Vector:
        if "held" in texts:
            self.begun.set()
            self.let_go.wait(20)
        return super().embed(texts)


def test_an_embedding_keeps_nobody_else_waiting(learned: Path) -> None:
    file = learned / "evolve.toml"
    file.write_text(file.read_text().replace("[memory]\n", f'[memory]\nembedder = "{__name__}:Held"\n'))
    with serving(learned) as served, ThreadPoolExecutor(1) as pool:
        agent = served.client("worker", "read", "report")
        held = pool.submit(agent.ask, "GET", "/search", params={"query": "held"})
        assert Held.begun.wait(20)
        agent.ask("GET", "/skills/none", 404)
        assert not held.done()
        Held.let_go.set()
        held.result()


def test_a_session_ends_with_the_server(learned: Path) -> None:
    with serving(learned) as served:
        agent = served.client("worker", "read", "report")
        session = agent.ask("POST", "/outcomes", 201, json=OUTCOME)["session"]
        assert agent.ask("GET", f"/runs/{session}")["status"] == "running"
    with open_store(load_config(learned / "evolve.toml"), read_only=True) as store:
        assert (store.get_run(session) or {})["status"] == "done"


def test_what_a_person_changes_is_audited_with_the_token(served: Served) -> None:
    keeper = served.client("Ann", "admin")
    (added,) = keeper.ask("POST", "/knowledge", 201, json={"content": "Greet zebras politely."})["ids"]
    keeper.ask("PATCH", f"/knowledge/{added}", json={"content": "Greet zebras loudly."})
    assert keeper.ask("GET", f"/knowledge/{added}")["record"]["payload"]["content"] == "Greet zebras loudly."
    keeper.ask("POST", f"/knowledge/{added}/retire", json={"reason": "no zebras"})
    keeper.ask("POST", f"/knowledge/{added}/restore")
    made = keeper.ask("GET", "/audit", params={"limit": 5})
    assert [row["event"] for row in reversed(made)] == [
        "token.issued",
        *(f"knowledge.{verb}" for verb in ("add", "edit", "remove", "restore")),
    ]
    assert {row["by"] for row in made[:4]} == {"token:Ann"}
    assert [row["data"]["version"] for row in made[:4]] == [4, 3, 2, 1]
    now = keeper.ask("GET", f"/knowledge/{added}")["record"]
    hashes = [row["data"]["content_hash"] for row in made[:4]]
    assert hashes == [now["content_hash"]] * 3 + [hashes[3]]
    assert hashes[3] != hashes[2]
    assert made[-1]["by"] == "operator"
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        store.rollback("default", store.snapshot("default").id, actor="token:Ann")
        store.forget(record_id=added)
    latest = keeper.ask("GET", "/audit", params={"limit": 2})
    assert [row["event"] for row in latest] == ["forgotten", "knowledge.rollback"]


def test_a_proposal_is_decided_by_who_may(served: Served) -> None:
    toml = served.folder / "evolve.toml"
    with open_store(load_config(toml), owner=False) as store:
        ops = [DeltaOp(op=Op.ADD, payload={"content": f"Greet {each} politely."}) for each in ("zebras", "gnus")]
        assert submit(store, "default", "run", ops) == 2
    reviewer = served.client("Bob", "review")
    first, second = reviewer.ask("GET", "/proposals")
    reviewer.ask("POST", f"/proposals/{first['number']}/accept", json={"content": "Greet zebras first."})
    reviewer.ask("POST", f"/proposals/{second['number']}/defer", 204, json={"reason": "later"})
    reviewer.ask("POST", f"/proposals/{second['number']}/reject", 204, json={"reason": "no gnus"})
    assert reviewer.ask("GET", "/proposals") == []
    said = reviewer.error("POST", f"/proposals/{second['number']}/accept", 400, json={})
    assert "was rejected already" in said
    keeper = served.client("Ann", "admin")
    assert "token:Bob" in {row["by"] for row in keeper.ask("GET", "/audit")}
    assert "Greet zebras first." in {row["content"] for row in keeper.ask("GET", "/knowledge")}


def test_each_scope_opens_its_own(served: Served) -> None:
    for scope in ALL:
        client = served.client(f"only {scope}", scope)
        for wanted, method, path, more in ROUTES:
            if scope not in (wanted, "admin"):
                assert f"has no scope {wanted!r}" in client.error(method, path, 403, **more), (scope, path)
    paths = {(method, path) for _, method, path, _ in ROUTES}
    described = served.client("reader", "read").ask("GET", "/openapi.json")
    operations = [each for path in described["paths"].values() for each in path.values()]
    assert len(operations) == len(paths) + 1  # `/token`, which needs none
    assert all(each["security"] == [{"token": []}] for each in operations)
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer x", "Bearer evolve_0_x", "Basic YTpi"])
def test_without_a_token_nothing_is_answered(given: str, served: Served) -> None:
    for path in ("/api/v1/search", "/api/v1/openapi.json", "/api/none", "/mcp", "/mcp/none"):
        answer = served.http.get(path, headers={"authorization": given} if given else {})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "evolve tokens add" in answer.json()["error"]["message"]
    assert served.http.get("/healthz").text == "ok"


def test_exemplars_and_models_of_roles_are_no_matter_of_a_session(learned: Path) -> None:
    more = '\n[exemplars]\nenabled = true\n[policy.judge]\nname = "local"\nmodel = "no-such-folder"\n'
    (learned / "evolve.toml").write_text((learned / "evolve.toml").read_text() + more)
    with serving(learned) as served:
        client = served.client("Ann", "read", "report")
        assert client.ask("POST", "/playbook", json={"task": TASK})
        assert client.ask("POST", "/outcomes", 201, json=OUTCOME)


def test_what_a_person_changed_is_in_the_next_prompt(served: Served) -> None:
    agent, keeper = served.client("agent", "read", "report"), served.client("keeper", "admin")
    shown = agent.ask("POST", "/playbook", json={"task": TASK})
    gone = shown["ids"][0]
    keeper.ask("POST", f"/knowledge/{gone}/retire", json={})
    (pinned,) = keeper.ask("POST", "/knowledge", 201, json={"content": "Greet zebras politely.", "pin": True})["ids"]
    label = keeper.ask("GET", f"/knowledge/{pinned}")["record"]["number"]
    after = agent.ask("POST", "/playbook", json={"task": "Move the meeting with Bob."})
    assert gone not in agent.ask("POST", "/playbook", json={"task": TASK})["ids"]
    assert any(each.endswith(f"-{label:05d}") for each in after["ids"])


def test_workers_of_one_token_keep_apart_what_they_were_shown(served: Served) -> None:
    one = served.client("pool", "read", "report")
    hit, *_ = one.ask("GET", "/search", params={"query": "payments", "k": 1}, session="w1")
    second = one.ask("POST", "/outcomes", 201, json={**OUTCOME, "task": "Another task."}, session="w2")
    first = one.ask("POST", "/outcomes", 201, json={**OUTCOME, "task": "A third task."}, session="w1")
    assert hit["id"] not in second["shown"]
    assert hit["id"] in first["shown"]
    clients = {row["client"] for row in one.ask("GET", "/runs") if row["kind"] == "rest"}
    assert clients == {"pool w1", "pool w2"}


def test_no_more_sessions_are_kept_than_may_be(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "SESSIONS", 2)
    agent = served.client("pool", "read", "report")
    runs = [agent.ask("POST", "/outcomes", 201, json=OUTCOME, session=f"w{at}")["session"] for at in range(3)]
    assert [agent.ask("GET", f"/runs/{run}")["status"] for run in runs] == ["done", "running", "running"]


def test_what_is_wrong_is_said_in_a_sentence(served: Served) -> None:
    client = served.client("all", "admin")
    assert "no record 'nobody'" in client.error("GET", "/knowledge/nobody", 404)
    client.error("GET", f"/knowledge/{'9' * 5000}", 404)
    assert "expected 1 to 100" in client.error("GET", "/search", 400, params={"query": "x", "k": 0})
    assert "query.query: Field required" in client.error("GET", "/search", 422)
    assert "body.lesson: Field required" in client.error("POST", "/proposals", 422, json={})
    assert "at least one step" in client.error("POST", "/outcomes", 400, json={"task": TASK, "steps": []})
    assert "Not Found" in client.error("GET", "/nothing", 404)
    assert "expected one that search or get_playbook gave" in client.error(
        "POST", "/outcomes", 404, json={**OUTCOME, "cited": ["shr-99999"]}
    )


def test_a_bug_is_a_sentence_too_and_tells_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = served.client("reader", "read")

    def broken(*_: object) -> None:
        raise RuntimeError("the vault's word is azure")

    monkeypatch.setattr(editing, "detail", broken)
    http = TestClient(served.http.app, raise_server_exceptions=False)
    answer = http.get("/api/v1/knowledge/1", headers={"authorization": f"Bearer {client.token}"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "RuntimeError"
    assert "azure" not in answer.text


@pytest.mark.parametrize("table", ["events", "runs"])  # what a token is looked up in, and what is asked for
def test_a_journal_that_does_not_answer_is_said_until_it_does(served: Served, table: str) -> None:
    client = served.client("reader", "read")
    with closing(sqlite3.connect(served.folder / ".evolve" / "evolve.db")) as conn:
        conn.execute(f"ALTER TABLE {table} RENAME TO away")
        assert f"no such table: {table}" in client.error("GET", "/runs", 503)
        conn.execute(f"ALTER TABLE away RENAME TO {table}")
    assert client.ask("GET", "/runs")


def test_a_body_is_bounded_and_so_is_each_text_in_it(served: Served) -> None:
    client = served.client("all", "admin")
    assert f"{BODY:,}" in client.error("POST", "/proposals", 413, content=b"x" * (BODY + 1))
    for path, body in (
        ("/playbook", {"task": "x" * 60_000}),
        ("/proposals", {"lesson": "x" * 3_000}),
        ("/knowledge", {"content": "x" * 60_000}),
        ("/outcomes", {**OUTCOME, "steps": [{"action": "x" * 99_000}] * 30}),
    ):
        assert "expected at most" in client.error("POST", path, 400, json=body)


def test_so_is_a_body_over_mcp_with_a_length_and_without(served: Served) -> None:
    headers = {
        "authorization": f"Bearer {served.client('agent', 'read').token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    parts = (b"x" * (BODY // 4) for _ in range(5))
    for body in (b"x" * (BODY + 1), parts):
        answer = served.http.post("/mcp", content=body, headers=headers)
        assert answer.status_code == 413, answer.text
        assert f"{BODY:,}" in answer.json()["error"]["message"]


async def test_a_body_that_says_that_it_is_too_large_is_not_read() -> None:
    async def receive() -> NoReturn:
        raise AssertionError("it was read")

    with pytest.raises(HTTPException, match="send less"):
        await whole(Headers({"content-length": str(BODY + 1)}), receive)


LEFT = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("end", "handed_on"),
    [({"type": "http.request", "body": b"c"}, {"type": "http.request", "body": b"abc"}), (LEFT, LEFT)],
)
async def test_a_body_in_parts_is_handed_on_in_one(end: dict[str, Any], handed_on: dict[str, Any]) -> None:
    begun = [{"type": "http.request", "body": each, "more_body": True} for each in (b"a", b"b")]
    parts = iter([*begun, end, LEFT])

    async def receive() -> dict[str, Any]:
        return next(parts)

    read = await whole(Headers(), receive)
    assert [await read(), await read()] == [handed_on, LEFT]


def test_who_calls_without_end_is_told_to_wait_and_nobody_else(served: Served) -> None:
    busy, calm = served.client("busy", "report"), served.client("calm", "read", "report")
    answers = [_status(busy, {"lesson": ""}) for _ in range(PROPOSALS * SESSIONS + 20)]
    assert answers.count(429) >= 1
    assert set(answers) == {400, 429}
    assert calm.ask("GET", "/search", params={"query": "payments"})
    assert "expected a sentence" in calm.error("POST", "/proposals", 400, json={"lesson": " "})


def _status(client: Client, body: dict[str, str]) -> int:
    asked = client.http.post("/api/v1/proposals", json=body, headers={"authorization": f"Bearer {client.token}"})
    return asked.status_code
