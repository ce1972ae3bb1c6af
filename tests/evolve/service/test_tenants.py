"""Tenants of `evolve serve`: each token stays in its namespace, and a revoked one is refused from the next request on.

N1  no route reads or changes what another namespace knows, and none tells a foreign name from one that is not there
N2  a token for all namespaces names the one it means
N3  a user's token is shown what the layers below its namespace know, within their tokens, and changes nothing there
N4  a token that is revoked, or past its time, opens nothing; the workspace keeps its hash alone
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from evolve.config.file import load_config
from evolve.gates.review_queue import submit
from evolve.integrations.agent import Agent, Asked
from evolve.integrations.client_session import ClientSession, Layer
from evolve.loop.assembly import open_store
from evolve.service.access_tokens import issue, listed, revoke, verified
from memory.errors import BadInput, JournalError, NotFound
from memory.records import DeltaOp, Op, Status, Trajectory
from memory.redact import redact
from tests.evolve.command import complaint, evolve, evolve_json
from tests.evolve.service.conftest import ALL, SECRET_RULE, Client, Served
from tests.evolve.service.test_api import OUTCOME


def test_no_route_leaves_the_namespace_of_the_token(served: Served) -> None:
    a, b = served.client("a", *ALL), served.client("b", *ALL, namespace="b")
    run = b.ask("POST", "/outcomes", 201, json=OUTCOME)["session"]
    (theirs,) = b.ask("GET", "/knowledge")
    assert theirs["content"] == SECRET_RULE
    key = b.ask("GET", "/knowledge/1")["record"]["id"]
    for name in (key, "1" * 32):
        for method, path, more in (
            ("GET", "/knowledge/{}", {}),
            ("PATCH", "/knowledge/{}", {"json": {"content": "x"}}),
            ("POST", "/knowledge/{}/retire", {"json": {}}),
            ("POST", "/knowledge/{}/restore", {}),
            ("GET", "/skills/{}", {}),
        ):
            said = a.error(method, path.format(name), 404, **more)
            assert said.replace(name, "nobody") == a.error(method, path.format("nobody"), 404, **more)
    assert "azure" not in str(a.ask("GET", "/search", params={"query": SECRET_RULE, "k": 100}))
    assert "azure" not in a.ask("POST", "/playbook", json={"task": SECRET_RULE})["text"]
    assert a.error("GET", f"/runs/{run}", 404).replace(run, "nobody") == a.error("GET", "/runs/nobody", 404)
    assert run not in {row["run_id"] for row in a.ask("GET", "/runs", params={"limit": 200})}
    assert {row["run_id"] for row in b.ask("GET", "/runs")} == {run}
    assert key not in str(a.ask("GET", "/audit", params={"limit": 200}))
    lesson = {"lesson": "Ask twice before you pay more than a thousand."}
    answers = [who.ask("POST", "/proposals", 201, json=lesson) for who in (a, b)]
    assert [each["answer"] for each in answers] == ["quarantined"] * 2
    for who, answer, namespace in zip((a, b), answers, ("default", "b"), strict=True):
        assert who.ask("GET", f"/knowledge/{answer['name']}")["record"]["namespace"] == namespace
    assert "another one" in a.error("GET", "/knowledge", 403, params={"namespace": "b"})
    assert b.ask("GET", "/knowledge/1")["record"]["payload"]["content"] == SECRET_RULE


def test_no_answer_tells_how_much_others_write(served: Served) -> None:
    a = served.client("a", *ALL)
    a.ask("POST", "/knowledge", 201, json={"content": "Greet gnus."})
    shown = a.ask("POST", "/playbook", json={"task": "Greet a gnu."})
    runs = a.ask("GET", "/runs")
    named = [each["snapshot"] for each in (shown, *runs, *(a.ask("GET", f"/runs/{r['run_id']}") for r in runs))]
    assert any(named[1:])
    assert "@" not in "".join(filter(None, named))
    with open_store(load_config(served.folder / "evolve.toml"), read_only=True) as store:
        assert store.get_snapshot(shown["snapshot"]).namespace == "default"
    assert all("seq" not in row for row in a.ask("GET", "/audit"))


def test_a_token_for_all_namespaces_says_which(served: Served) -> None:
    client = served.client("operator", "admin", namespace="*")
    assert "no namespace 'c'" in client.error("POST", "/playbook", 404, params={"namespace": "c"}, json={})
    (rule,) = client.ask("GET", "/knowledge", params={"namespace": "b"})
    assert rule["content"] == SECRET_RULE
    assert SECRET_RULE not in str(client.ask("GET", "/knowledge"))
    client.ask("POST", "/knowledge", 201, params={"namespace": "b"}, json={"content": "Say teal."})
    assert len(client.ask("GET", "/knowledge", params={"namespace": "b"})) == 2


def test_a_user_is_shown_what_the_team_knows_below_its_own(served: Served) -> None:
    config = load_config(served.folder / "evolve.toml")
    with open_store(config, owner=False) as store:
        rules = [f"{SECRET_RULE} Door {at}." for at in range(30)]
        ops = [DeltaOp(op=Op.ADD, payload={"content": rule}) for rule in (*rules, "Vaults are opened at noon.")]
        store.commit("everybody", [each.model_copy(update={"status": Status.ACTIVE}) for each in ops], actor="x")
        own = DeltaOp(op=Op.ADD, payload={"content": SECRET_RULE}, status=Status.ACTIVE)
        assert store.commit("ann", [own], actor="x").applied
        layers = [Layer(namespace="b", tokens=500), Layer(namespace="everybody", tokens=100)]
        _, secret = issue(store, "ann", ["read", "report"], "ann", layers=layers)
        other, _ = issue(store, "bob", ["read", "report", "admin"], "bob")
        assert other.layers == ()
    ann = Client(served.http, secret)
    shown = ann.ask("POST", "/playbook", json={"task": "Open the vault."})
    assert shown["text"].count("azure") >= 1
    places = [label.partition("/")[0] for label in shown["ids"] if "/" in label]
    assert "b" not in places  # it says what stands above it
    assert 1 <= places.count("everybody") < 10
    hits = ann.ask("GET", "/search", params={"query": "vault azure", "k": 5})
    assert {hit["id"].partition("/")[0] for hit in hits if "/" in hit["id"]} <= {"b", "everybody"}
    told = ann.ask("POST", "/outcomes", 201, json={**OUTCOME, "cited": [next(i for i in shown["ids"] if "/" in i)]})
    assert "/" in told["cited"][0]
    assert not any("/" in label for label in told["shown"])
    assert "expected one that" in ann.error("POST", "/outcomes", 404, json={**OUTCOME, "cited": ["team/shr-00001"]})
    with open_store(config, read_only=True) as store:
        assert not any(record.usage.cited for name in ("b", "everybody") for record in store.records(name))
        assert store.events(type="knowledge.refused", namespace="ann") == []


def test_what_is_pinned_in_a_layer_is_in_every_playbook(served: Served) -> None:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        ops = [DeltaOp(op=Op.ADD, payload={"content": f"Open door {at} of the vault at noon."}) for at in range(30)]
        ops += [DeltaOp(op=Op.ADD, payload={"content": text}, pinned=True) for text in ("Greet gnus.", "Own words.")]
        assert store.commit("team", [op.model_copy(update={"status": Status.ACTIVE}) for op in ops], actor="x").applied
        own = DeltaOp(op=Op.ADD, payload={"content": "Own words."}, status=Status.ACTIVE)
        assert store.commit("eve", [own], actor="x").applied
        _, secret = issue(store, "eve", ["read"], "eve", layers=[Layer(namespace="team", tokens=40)])
        texts = {f"team/{record.label}": record.payload.text() for record in store.records("team")}
        count = store.count_tokens
    eve = Client(served.http, secret)
    for task in ("Open the vault.", "", " "):
        shown = eve.ask("POST", "/playbook", json={"task": task})
        told = [texts[label] for label in shown["ids"] if label in texts]
        assert "Greet gnus." in told
        assert "Own words." not in told  # it stands above
        assert 1 < len(told) < 10
        assert sum(map(count, told)) <= 40
        assert shown["text"].count("Greet gnus.") == 1


def test_what_a_layer_pushed_out_of_an_answer_was_not_shown(served: Served) -> None:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        for place, rules in (("eve", ("Open the vault at noon.", "Vaults close at noon.")), ("team", (SECRET_RULE,))):
            ops = [DeltaOp(op=Op.ADD, payload={"content": rule}, status=Status.ACTIVE) for rule in rules]
            assert store.commit(place, ops, actor="x").applied
        _, secret = issue(store, "eve", ["read", "report"], "eve", layers=[Layer(namespace="team", tokens=100)])
    eve = Client(served.http, secret)
    hits = {hit["id"] for hit in eve.ask("GET", "/search", params={"query": "vault tenant azure", "k": 2})}
    own = {each for each in hits if not each.startswith("team/")}
    assert len(hits) == 2
    assert len(own) == 1
    assert set(eve.ask("POST", "/outcomes", 201, json=OUTCOME)["shown"]) == own


def test_a_skill_of_a_layer_is_read_by_its_label(served: Served) -> None:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        for place, name in (("eve", "own"), ("team", "shared")):
            source = f'def {name}(room: str) -> str:\n    """Return the room that is {name}."""\n    return room\n'
            op = DeltaOp(op=Op.ADD, kind="skill", payload={"source": source}, status=Status.ACTIVE)
            (done,) = store.commit(place, [op], actor="x").results
            assert done.applied, done.reason
        layers = [Layer(namespace="team", tokens=100)]
        _, secret = issue(store, "eve", ["read"], "eve", layers=layers)
    eve = Client(served.http, secret)
    hits = {hit["id"] for hit in eve.ask("GET", "/search", params={"query": "room", "kind": "skill"})}
    (label,) = (each for each in hits if each.startswith("team/"))
    told = eve.ask("GET", f"/skills/{label}")
    assert (told["id"], told["name"]) == (label, "shared")
    assert eve.ask("GET", "/skills/own")["name"] == "own"
    assert "no skill" in eve.error("GET", f"/skills/other{label[4:]}", 404)


def test_a_layer_is_asked_for_texts_alone_and_only_where_they_fit(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(served.folder / "evolve.toml")
    only_skills = config.model_copy(update={"memory": config.memory.model_copy(update={"kinds": ("skill",)})})
    with open_store(config, owner=False) as store:
        source = 'def shared(room: str) -> str:\n    """Open the vault of a room."""\n    return room\n'
        skill = DeltaOp(op=Op.ADD, kind="skill", payload={"source": source}, status=Status.ACTIVE)
        rule = DeltaOp(op=Op.ADD, payload={"content": "Greet gnus."}, status=Status.ACTIVE, pinned=True)
        assert store.commit("team", [skill, rule], actor="x").applied
        full = store.count_tokens("Greet gnus.")
        asked: list[str] = []
        recall = store.recall
        monkeypatch.setattr(store, "recall", lambda query: asked.append(query.namespace) or recall(query))
        for settings, tokens in ((only_skills, 100), (config, full)):
            layers = [Layer(namespace="team", tokens=tokens)]
            session = ClientSession(settings, store, writes=False, layers=layers)
            shown = asyncio.run(session.playbook("Open the vault of the room."))
            assert "shared(" not in shown.text
            assert "Greet gnus." in shown.text
        assert "team" not in asked


def test_a_skill_that_is_not_in_use_is_handed_to_nobody(served: Served) -> None:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        source = 'def pay(name: str) -> str:\n    """Pay somebody."""\n    return name\n'
        op = DeltaOp(op=Op.ADD, kind="skill", payload={"source": source}, status=Status.CANDIDATE)
        (done,) = store.commit("eve", [op], actor="x").results
        assert done.applied, done.reason
    eve = served.client("eve", "read", namespace="eve")
    assert "is candidate" in eve.error("GET", "/skills/pay", 404)
    assert eve.ask("GET", "/knowledge/pay")["record"]["status"] == "candidate"


def test_all_namespaces_together_are_none(served: Served) -> None:
    everywhere = served.client("operator", "admin", namespace="*")
    said = everywhere.error("POST", "/knowledge", 404, params={"namespace": "*"}, json={"content": "Greet gnus."})
    assert "no namespace '*'" in said


def test_an_outcome_that_could_not_be_stored_is_told_once_more(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = served.client("own", "read", "report", namespace="own")
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        op = DeltaOp(op=Op.ADD, payload={"content": "Feed the gnus at noon."}, status=Status.ACTIVE)
        assert store.commit("own", [op], actor="x").applied
    told = OUTCOME | {"task": "Feed the gnus."}
    shown = agent.ask("POST", "/playbook", json={"task": told["task"]})["ids"]
    learn, fails = Agent.learn, [JournalError("the disk is busy")]

    async def once(self: Agent, asked: Asked, given: Trajectory) -> Trajectory:
        stored = await learn(self, asked, given)
        if fails:
            raise fails.pop()
        return stored

    monkeypatch.setattr(Agent, "learn", once)
    agent.error("POST", "/outcomes", 503, json=told)
    assert agent.ask("POST", "/outcomes", 201, json=told)["shown"] == shown != []
    with open_store(load_config(served.folder / "evolve.toml"), owner=False, read_only=True) as store:
        assert [t.task.instruction for t in store.trajectories()].count(told["task"]) == 1


def test_where_something_was_only_proposed_it_can_be_decided(served: Served) -> None:
    everywhere = served.client("operator", "admin", namespace="*")
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        assert submit(store, "new", "run", [DeltaOp(op=Op.ADD, payload={"content": "Greet gnus."})]) == 1
    (waiting,) = everywhere.ask("GET", "/proposals", params={"namespace": "new"})
    everywhere.ask("POST", f"/proposals/{waiting['number']}/accept", params={"namespace": "new"}, json={})
    (row,) = everywhere.ask("GET", "/knowledge", params={"namespace": "new"})
    assert row["content"] == "Greet gnus."
    served.client("tenant", "read", namespace="newer")
    assert everywhere.ask("GET", "/runs", params={"namespace": "newer"}) == []


def test_layers_are_named_with_their_tokens(served: Served) -> None:
    given = ("tokens", "add", "eve", "--scope", "read", "--namespace", "eve")
    told = evolve_json(served.folder, *given, "--over", "b:300", "--over", "everybody:100")
    assert told["layers"] == [{"namespace": "b", "tokens": 300}, {"namespace": "everybody", "tokens": 100}]
    assert "b:300 everybody:100" in evolve(served.folder, "tokens", "list")
    for wrong in ("b", "b:", ":3", "b:x", "b:0"):
        assert "expected a namespace and the most tokens" in complaint(served.folder, *given, "--over", wrong, code=2)
    evolve(served.folder, "tokens", "revoke", "eve")
    assert "name others" in complaint(served.folder, *given, "--over", "eve:3", code=2)


def test_a_revoked_token_opens_nothing(served: Served) -> None:
    client = served.client("guest", "read", "report")
    assert client.ask("GET", "/token")["name"] == "guest"
    assert client.ask("POST", "/playbook", json={})["ids"]
    assert evolve(served.folder, "tokens", "revoke", "guest") == "token 'guest' is revoked\n"
    assert "valid token" in client.error("GET", "/token", 401)
    assert "valid token" in client.error("POST", "/playbook", 401, json={})


def test_a_name_that_expired_can_be_given_again_and_the_new_token_is_the_one_revoked(served: Served) -> None:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        issue(store, "worker", ["read"], "default", timedelta(microseconds=1))
        _, secret = issue(store, "worker", ["read"], "default")
        assert verified(store, secret)
        revoke(store, "worker")
        assert verified(store, secret) is None


def test_a_token_ends_with_its_time(served: Served) -> None:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        _, long = issue(store, "long", ["read"], "default", timedelta(days=1))
        _, short = issue(store, "short", ["read"], "default", timedelta(microseconds=1))
        assert verified(store, long)
        assert verified(store, short) is None
        assert [(token.name, token.valid) for token in listed(store)] == [("long", True), ("short", False)]


def test_the_workspace_keeps_no_token(served: Served) -> None:
    told = evolve_json(served.folder, "tokens", "add", "ci", "--scope", "read", "--scope", "report", "--days", "1")
    secret = told["token"]
    assert secret.startswith("evolve_")
    (row,) = evolve_json(served.folder, "tokens", "list")
    assert row["valid"]
    assert row["scopes"] == ["read", "report"]
    assert "sha256" not in row
    assert secret not in evolve(served.folder, "tokens", "list")
    files = [path.read_bytes() for path in served.folder.rglob("*") if path.is_file()]
    assert not [body for body in files if secret.split("_", 2)[2].encode() in body]
    assert redact(f"curl -H {secret}") == "curl -H [REDACTED:evolve-token]"


def test_a_token_that_cannot_be_is_refused_in_a_sentence(served: Served) -> None:
    with open_store(load_config(served.folder / "evolve.toml"), owner=False) as store:
        issue(store, "ann", ["read"], "default")
        for name, scopes, lifetime, why in (
            ("ann", ["read"], None, "valid already"),
            (" ", ["read"], None, "1 to 100 characters"),
            ("x" * 101, ["read"], None, "1 to 100 characters"),
            ("bob", ["write"], None, "got scope 'write'"),
            ("bob", [], None, "needs a scope"),
            ("bob", ["read"], timedelta(0), "lifetime"),
        ):
            with pytest.raises(BadInput, match=why):
                issue(store, name, scopes, "default", lifetime)
        for wrong in ("", "team ", "te am", "team\n", "-team", "[team]", "x" * 65, "**"):
            with pytest.raises(BadInput, match="expected 1 to 64 letters"):
                issue(store, "bob", ["read"], wrong)
        for wrong in ("team ", "*"):
            with pytest.raises(BadInput, match="no layer can be that"):
                issue(store, "bob", ["read"], "default", layers=[Layer(namespace=wrong, tokens=9)])
        issue(store, "bob", ["read"], "team/ann.b@example.org-2", layers=[Layer(namespace="team_a", tokens=9)])
        revoke(store, "bob")
        revoke(store, "ann")
        issue(store, "ann", ["read"], "default")
        with pytest.raises(NotFound, match="no valid token 'bob'"):
            revoke(store, "bob")
    assert "got scope 'all'" in complaint(served.folder, "tokens", "add", "eve", "--scope", "all", code=2)
