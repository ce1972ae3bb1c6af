"""Everything that happened is a run: listed, filtered, reported on and shown, whoever made it.

R1  an evaluation has tasks, episodes and figures in lists and on its page, and a bare report stays about learning
R2  sessions of `Agent`, the LangChain middleware, MCP and the store are runs with episodes, figures and snapshots
R3  a comparison is a run, and the episodes of its lives are found
R4  runs have names and tags that decide nothing; lists are filtered by them, by kind and by date; two are compared
R5  what an earlier version journalled without a record is listed; what vanished is called stale, what ended ended
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from langchain.agents import create_agent

from evolve import Agent, Outcome, Step, Trajectory
from evolve.compare.listed import Listing, listed
from evolve.compare.plan import Plan
from evolve.config.file import load_config
from evolve.config.model import Config
from evolve.integrations.client_answers import Done
from evolve.integrations.client_session import ClientSession
from evolve.integrations.langchain_middleware import Learning
from evolve.integrations.langgraph_store import open_journal_store
from evolve.loop.assembly import open_store
from evolve.workspace.opening import open as open_workspace
from examples.langgraph_learns import Doorman, open_door, politely
from memory.records import Event, Task
from tests.evolve.command import complaint, evolve, evolve_json, settings
from tests.evolve.inspector.conftest import opened
from tests.evolve.toy_doors import password


def solve(task: Task, knowledge: str) -> Trajectory:
    """Open the red door with its password where that is known, else hear it from the refusal."""
    said = f"the red door must hear the word {password('red')}"
    right = Step(index=0, action=f"doors.open(color='red', word='{password('red')}')", observation="ok")
    if password("red") in knowledge:
        return Trajectory(task=task, steps=(right,), outcome=Outcome(success=True, reward=1.0))
    wrong = Step(index=0, action="doors.open(color='red')", observation=f"error: {said}", error=said)
    steps = (wrong, right.model_copy(update={"index": 1}))
    return Trajectory(task=task, steps=steps, outcome=Outcome(success=False, reward=0.0))


def own_agent(config: Config) -> None:
    """Do three tasks with an agent of one's own."""

    async def work() -> None:
        async with Agent(solve, config) as agent:
            await agent.run([Task(id=f"d{at}", instruction="Open the red door.") for at in range(3)])

    asyncio.run(work())


def langchain_agent(config: Config) -> None:
    """Do two tasks with a LangChain agent."""
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        for color in ("red", "blue"):
            agent.invoke({"messages": [("user", f"Open the {color} door.")]})


def mcp_client(config: Config) -> None:
    """Record one outcome as an MCP client does."""

    async def work() -> None:
        with open_store(config, owner=False) as store:
            async with ClientSession(config, store) as visit:
                visit.greet("tester 1", "stdio")
                await visit.record("Open the red door.", [Done(action="open('red')")], True, "", ())

    asyncio.run(work())


def vanished_client(config: Config) -> None:
    """Record one outcome and never say goodbye."""

    async def work() -> None:
        with open_store(config, owner=False) as store:
            visit = await ClientSession(config, store).__aenter__()
            visit.greet("tester 1", "stdio")
            await visit.record("Open the red door.", [Done(action="open('red')")], True, "", ())

    asyncio.run(work())


SESSIONS: dict[str, tuple[Callable[[Config], None], int]] = {
    "agent": (own_agent, 3),
    "langchain": (langchain_agent, 2),
    "mcp": (mcp_client, 1),
}


def test_an_evaluation_is_listed_with_its_tasks_and_episodes(learned: Path) -> None:
    evaluation = evolve_json(learned, "eval", "--limit", "3")["run_id"]
    row = next(row for row in evolve_json(learned, "logs", "list") if row["run"] == evaluation)
    assert row["tasks"] == 3
    assert len(evolve_json(learned, "logs", "list", "--run", evaluation)) >= 3
    with opened(learned) as visitor:
        page = visitor.text(f"/runs/{evaluation}")
        assert "No task is done yet" not in page
        assert f"/runs/{evaluation}" in visitor.text(visitor.first(f"/runs/{evaluation}", "episodes"))


def test_an_evaluation_without_memory_is_listed_too(learned: Path) -> None:
    evaluation = evolve_json(learned, "eval", "--no-memory", "--limit", "2")["run_id"]
    (row,) = evolve_json(learned, "logs", "list", "--kind", "eval")
    assert (row["run"], row["tasks"], row["control_tasks"]) == (evaluation, 0, 2)
    with opened(learned) as visitor:
        assert visitor.first(f"/runs/{evaluation}", "episodes")


def test_an_evaluation_that_stopped_before_its_first_task_is_listed(learned: Path) -> None:
    assert "no snapshot 'deadbeef'" in complaint(learned, "eval", "--set", "run.snapshot=deadbeef", code=1)
    (row,) = evolve_json(learned, "logs", "list", "--kind", "eval")
    assert row["tasks"] == 0
    assert evolve_json(learned, "report")["curve"]


def test_a_run_that_would_do_no_task_does_not_begin(learned: Path) -> None:
    assert "none is left" in complaint(learned, "run", "--set", "run.skip=1000", code=2)
    assert len(evolve_json(learned, "logs", "list")) == 1


def test_filters_that_do_not_go_together_are_refused(learned: Path) -> None:
    assert "--failed without --run" in complaint(learned, "logs", "list", "--failed", code=2)
    assert "--run with a filter of runs" in complaint(learned, "logs", "list", "--run", "x", "--tag", "a", code=2)
    assert "--plot with two runs" in complaint(learned, "report", "a", "b", "--plot", "x.png", code=2)


def test_after_an_evaluation_the_report_is_about_the_run_that_learned(learned: Path) -> None:
    (run,) = evolve_json(learned, "logs", "list")
    evaluation = evolve_json(learned, "eval", "--limit", "3")["run_id"]
    report = evolve_json(learned, "report")
    assert report["run_id"] == run["run"]
    assert report["curve"]
    assert {each["run_id"] for each in report["held_out"]} == {evaluation}
    assert {each["report"]["arm"] for each in report["held_out"]} == {"main", "no_memory"}
    assert evolve_json(learned, "report", evaluation)["run_id"] == evaluation
    assert "held out with memory" in evolve(learned, "report")


def test_a_task_that_a_session_does_many_times_counts_each_time(tmp_path: Path) -> None:
    done = [("Book room 4", mark) for mark in (True, True, False, True)] + [("Book room 5", True)]
    with open_workspace(tmp_path / ".evolve") as memory:
        for instruction, mark in done:
            with memory.task(instruction) as task:
                task.finish("booked", success=mark)
        (row,) = memory.runs()
        report, parts = memory.report(row.run_id), memory.figures(row.run_id)
    assert report.whole is not None
    assert (report.whole.tasks, report.whole.coverage) == (5, 1.0)
    assert report.whole.tgc == row.success == 0.8
    assert report.whole.sgc == 0.5  # one of the two tasks was done each time
    assert [(part.tasks, part.coverage) for part in parts] == [(2, 1.0), (3, 1.0), (5, 1.0)]


@pytest.mark.parametrize("kind", SESSIONS)
def test_a_session_is_a_run_with_episodes_figures_and_snapshots(kind: str, tmp_path: Path) -> None:
    folder, (act, tasks) = settings(tmp_path), SESSIONS[kind]
    act(load_config(folder / "evolve.toml"))
    (row,) = evolve_json(folder, "logs", "list")
    assert (row["kind"], row["status"], row["tasks"]) == (kind, "done", tasks)
    episodes = evolve_json(folder, "logs", "list", "--run", row["run"])
    assert len(episodes) == tasks
    report = evolve_json(folder, "report")
    assert (report["run_id"], report["whole"]["tasks"], len(report["curve"])) == (row["run"], tasks, tasks)
    assert evolve_json(folder, "playbook", "log")
    with opened(folder) as visitor:
        assert f"/runs/{row['run']}" in visitor.text("/runs")
        assert episodes[0]["episode"] in visitor.text(f"/runs/{row['run']}")
        assert "Nothing was learned here yet" not in visitor.text("/")


def test_a_session_can_be_rolled_back(tmp_path: Path) -> None:
    folder = settings(tmp_path)
    own_agent(load_config(folder / "evolve.toml"))
    first = evolve_json(folder, "playbook", "log")[0]
    assert first["bullets"] == 0
    assert evolve_json(folder, "playbook", "list")
    evolve(folder, "playbook", "rollback", first["snapshot"])
    assert evolve_json(folder, "playbook", "list") == []


def test_what_a_store_was_given_is_a_run(tmp_path: Path) -> None:
    folder = settings(tmp_path)
    config = load_config(folder / "evolve.toml")
    with open_journal_store(config) as store:
        store.get(("people",), "ann")
        store.put(("people",), "ann", {"likes": "tea"})
        store.put(("people",), "bob", {"likes": "soup"})
    with open_journal_store(config) as store:
        store.search(("people",), query="tea")
    (row,) = evolve_json(folder, "logs", "list")
    assert (row["kind"], row["status"], row["changes"]) == ("langgraph", "done", 2)
    puts = evolve_json(folder, "logs", "list", "--run", row["run"])
    assert [(put["verb"], "tea" in put["text"]) for put in puts] == [("add", True), ("add", False)]


def test_a_comparison_is_a_run_and_its_episodes_are_found(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=2)
    arms = ("default", "default playbook.token_budget=100")
    asked = ("compare", *arms, "--report-tasks", "2", "--no-controls", "--name", "budget", "--tag", "tokens")
    evolve(folder, *asked)
    evolve(folder, *asked)
    (row,) = evolve_json(folder, "logs", "list")
    assert (row["kind"], row["name"], row["tags"], row["status"]) == ("compare", "budget", ["tokens"], "done")
    assert row["tasks"] == 2
    episodes = evolve_json(folder, "logs", "list", "--run", row["run"])
    assert len(episodes) == 8
    assert "success: " in evolve(folder, "logs", "show", episodes[-1]["episode"])
    assert "minus default" in evolve(folder, "report", row["run"])
    with opened(folder) as visitor:
        page = visitor.text(f"/runs/{row['run']}")
        assert all(each["episode"] in page for each in episodes)
        assert f"/runs/{row['run']}" in visitor.text(f"/episodes/{episodes[0]['episode']}")


def test_a_comparison_that_could_not_begin_is_listed_as_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    folder = settings(tmp_path)
    plan = Plan(split="test_normal", arms=(), replicates=())
    monkeypatch.setattr(Listing, "begun", full)
    with pytest.raises(OSError, match="no space left"), listed(load_config(folder / "evolve.toml"), plan, folder / "c"):
        pass
    (row,) = evolve_json(folder, "logs", "list")
    assert (row["kind"], row["status"]) == ("compare", "stopped")


def test_runs_are_named_and_found_by_name_tag_kind_and_date(learned: Path) -> None:
    evolve(learned, "run", "--limit", "1", "--name", "Nightly 7", "--tag", "ci", "--tag", "office")

    def found(*conditions: str) -> list[str]:
        return [row["name"] for row in evolve_json(learned, "logs", "list", *conditions)]

    def day(away: int) -> str:
        return f"{datetime.now(UTC) + timedelta(days=away):%Y-%m-%d}"

    assert found() == ["", "Nightly 7"]
    assert found("--name", "night") == found("--tag", "ci") == ["Nightly 7"]
    assert found("--kind", "learn", "--since", day(-7), "--until", day(7)) == ["", "Nightly 7"]
    assert (
        found("--until", day(-7)) == found("--since", day(7)) == found("--tag", "nope") == found("--kind", "eval") == []
    )
    past, coming = (f"{datetime.now(UTC) + timedelta(minutes=away):%Y-%m-%d %H:%M}" for away in (-60, 60))
    assert found("--since", coming) == found("--until", past) == []
    assert found("--since", past) == found("--since", past.replace("-", "").split()[0]) == ["", "Nightly 7"]
    assert "expected one of learn" in complaint(learned, "logs", "list", "--kind", "nope", code=2)
    assert "such as 2026-11-22" in complaint(learned, "logs", "list", "--since", "monday", code=2)
    assert "Nightly 7" in evolve(learned, "report")
    evolve(learned, "run", "--limit", "1", "--name", "Nightly 71")
    assert evolve_json(learned, "report", "Nightly 7")["name"] == "Nightly 7"
    assert len(evolve_json(learned, "logs", "list", "--run", "Nightly 7")) >= 1
    assert "no run 'Nightly'" in complaint(learned, "report", "Nightly", code=1)


def test_a_name_decides_nothing() -> None:
    plain = Config()
    named = Config.model_validate({"run": {"name": "a", "tags": ["b"]}})
    assert plain.digest == named.digest


def test_two_runs_are_compared_task_by_task(learned: Path) -> None:
    (first,) = evolve_json(learned, "logs", "list")
    evolve(learned, "run", "--seed", "1", "--set", "gate.held_out.alpha=0.2")
    second = evolve_json(learned, "logs", "list")[-1]
    found = evolve_json(learned, "report", first["run"], second["run"])
    assert found["shared"] == first["tasks"]
    assert found["settings"] == {"run.seed": [0, 1], "gate.held_out.alpha": [None, 0.2]}
    gained = second["solved"] - first["solved"]
    assert (len(found["gained"]) - len(found["lost"])) == gained
    assert "points [" in evolve(learned, "report", first["run"], second["run"])


def test_sessions_of_earlier_versions_are_listed(tmp_path: Path) -> None:
    """Their episodes and events name a run that has no record."""
    folder = settings(tmp_path)
    config = load_config(folder / "evolve.toml")
    with open_store(config, owner=False) as store:
        task = Task(id="t", instruction="Open the red door.")
        for name in ("old-session", "old-session/gates", "old-visit"):
            episode = solve(task, "").model_copy(update={"id": f"tr-{name}", "run_id": name})
            store.add_trajectory(episode)
        store.append(Event(type="session.opened", run_id="old-visit", subject="old-visit", data={"client": "c 1"}))
    rows = evolve_json(folder, "logs", "list")
    assert {(row["run"], row["kind"], row["tasks"]) for row in rows} == {
        ("old-session", "session", 1),
        ("old-visit", "mcp", 1),
    }
    assert evolve_json(folder, "report", "old-session")["whole"]["tasks"] == 1
    with opened(folder) as visitor:
        assert "tr-old-session" in visitor.text("/runs/old-session")


def test_a_client_that_vanished_is_stale_after_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settings(tmp_path)
    vanished_client(load_config(folder / "evolve.toml"))
    (row,) = evolve_json(folder, "logs", "list")
    assert row["status"] == "running"
    monkeypatch.setattr("evolve.loop.history.LEASE", timedelta(0))
    (row,) = evolve_json(folder, "logs", "list")
    assert (row["status"], row["tasks"]) == ("stale", 1)


def test_a_session_cannot_be_resumed_and_no_session_is_taken_for_a_stopped_run(tmp_path: Path) -> None:
    folder = settings(tmp_path)
    vanished_client(load_config(folder / "evolve.toml"))
    (row,) = evolve_json(folder, "logs", "list")
    assert "no unfinished run" in complaint(folder, "resume", code=1)
    assert "only runs of tasks" in complaint(folder, "resume", row["run"], code=1)


def test_a_run_that_is_done_is_not_resumed_by_its_name_either(tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=4)
    evolve(folder, "run", "--name", "first")
    before = evolve_json(folder, "logs", "list")
    assert "is done, there is nothing to go on with" in complaint(folder, "resume", "first", code=1)
    assert evolve_json(folder, "logs", "list") == before


def test_an_agent_in_which_nothing_happens_leaves_no_run(tmp_path: Path) -> None:
    folder = settings(tmp_path)
    config = load_config(folder / "evolve.toml")

    async def nothing() -> None:
        async with Agent(None, config):
            pass

    asyncio.run(nothing())
    assert evolve_json(folder, "logs", "list") == []
