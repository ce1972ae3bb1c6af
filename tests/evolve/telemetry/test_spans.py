"""What is traced of a real run: one tree, with the names of the GenAI conventions, and no content unless asked for.

T1  all spans of a run form one tree under its workflow span, at any concurrency, also when runs are concurrent
T2  an episode holds its model calls and its steps; names, kinds, attributes and metrics are those of the conventions
T3  grades, rewards and gate decisions are evaluation events
T4  content is absent by default; captured, it is there and redacted
T5  a failure ends its spans with the type of the error; what ended it is left out
T6  tracing changes nothing of what a run decides
T7  a session that is opened, asked, told and closed by different tasks is one tree, too
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from langchain.agents import create_agent
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import evolve
from evolve import Agent, Learning, Outcome, Step, Task, Trajectory
from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from evolve.telemetry import semconv
from evolve.telemetry.described import Begun, Noted
from evolve.telemetry.reading import metrics, traces, tree
from evolve.telemetry.tracing import Tracing
from examples.langgraph_learns import Doorman, open_door, politely
from memory.sqlite.telemetry_file import FILE
from policies.errors import PolicyUnavailable
from policies.scripted import ScriptedPolicy
from tests.evolve.loop.test_loop import outcome
from tests.evolve.telemetry.doors_traced import go, named, spans_of, traced
from tests.evolve.toy_doors import Doors, doors_config, doors_policy


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_run_is_one_tree(tmp_path: Path, concurrency: int) -> None:
    config = traced(tmp_path, run={"batch_size": 3, "concurrency": concurrency})
    policy = doors_policy()
    result = await go(config, policy=policy)
    spans = spans_of(config, result.run_id)
    assert len(named(spans, "chat doors")) == policy.calls
    by_id = {span["span_id"]: span for span in spans}
    (root,) = [span for span in spans if span["parent_id"] is None]
    assert root["name"] == "invoke_workflow doors"
    assert len({span["trace_id"] for span in spans}) == 1
    assert all(span["parent_id"] in by_id for span in spans if span is not root)
    for span in spans:
        parent = by_id.get(span["parent_id"], root)
        assert parent["start_ns"] <= span["start_ns"] <= span["end_ns"] <= parent["end_ns"]
    episodes = named(spans, "invoke_agent doors")
    with open_store(config, read_only=True) as store:
        stored = {t.id: t for t in store.trajectories(run_id=result.run_id)}
    assert {span["attributes"][semconv.ROLLOUT] for span in episodes} == set(stored)
    for episode in episodes:
        below = [span for span in spans if span["parent_id"] == episode["span_id"]]
        trajectory = stored[episode["attributes"][semconv.ROLLOUT]]
        assert len(named(below, "execute_tool environment")) == len(trajectory.steps)
        assert len(named(below, "chat doors")) <= trajectory.usage.calls  # a replayed reply is no call
        assert {span["task_id"] for span in below} == {trajectory.task.id}
    assert {by_id[span["parent_id"]]["name"] for span in named(spans, "chat")} == {
        "invoke_agent doors",
        "evolve.reflect",
        "evolve.curate",
    }


async def test_spans_say_what_the_conventions_name(tmp_path: Path) -> None:
    config = traced(tmp_path)
    result = await go(config)
    spans = spans_of(config, result.run_id)
    calls = named(spans, "chat")
    assert {span["kind"] for span in calls} == {"CLIENT"}
    assert {span["kind"] for span in spans if span not in calls} == {"INTERNAL"}
    given = calls[0]["attributes"]
    assert given["gen_ai.operation.name"] == "chat"
    assert (given["gen_ai.request.model"], given["gen_ai.provider.name"]) == ("doors", "scripted")
    assert given["gen_ai.request.max_tokens"] == 512
    assert given["gen_ai.request.temperature"] == 0
    assert given["gen_ai.response.finish_reasons"] == ["stop"]
    assert given["evolve.policy.version"] == doors_policy().version
    usage = (given["gen_ai.usage.input_tokens"], given["gen_ai.usage.output_tokens"])
    assert min(usage) > 0
    asked = {span["attributes"]["gen_ai.operation.name"] for span in spans if not span["name"].startswith("evolve.")}
    assert asked >= {"invoke_workflow", "invoke_agent", "chat", "execute_tool", "search_memory"}
    assert asked & {"create_memory", "upsert_memory"}
    (episode,) = [s for s in named(spans, "invoke_agent") if s["task_id"] == "train-5" and _arm(s) == "main"]
    shown = episode["attributes"]["evolve.playbook.bullet_ids"]
    (recalled,) = [s for s in named(spans, "search_memory") if s["task_id"] == "train-5"]
    assert recalled["attributes"]["evolve.playbook.bullet_ids"] == shown
    assert recalled["attributes"]["gen_ai.memory.record.count"] == len(shown) > 0
    assert episode["attributes"]["evolve.rollout.group_id"] == f"{result.run_id}/train-5"
    version = max(s["attributes"].get("evolve.playbook.version", 0) for s in spans)
    with open_store(config, read_only=True) as store:
        assert version == store.version("default")


def _arm(span: dict[str, dict[str, str]]) -> str:
    return span["attributes"][semconv.ARM]


async def test_metrics_count_what_the_spans_count(tmp_path: Path) -> None:
    config = traced(tmp_path)
    result = await go(config)
    spans, found = spans_of(config, result.run_id), metrics(config.workspace, result.run_id)
    assert {row["name"] for row in found} == set(semconv.METRICS)
    calls = named(spans, "chat")
    (tokens,) = [
        row for row in found if row["name"] == semconv.TOKEN_USAGE and row["attributes"]["gen_ai.token.type"] == "input"
    ]
    assert tokens["count"] == len(calls) == sum(tokens["counts"])
    assert tokens["sum"] == sum(span["attributes"]["gen_ai.usage.input_tokens"] for span in calls)
    steps = [row for row in found if row["name"] == semconv.TOOL_DURATION]
    assert sum(row["count"] for row in steps) == len(named(spans, "execute_tool"))


async def test_grades_and_decisions_are_evaluation_events(tmp_path: Path) -> None:
    config = traced(tmp_path)
    result = await go(config)
    spans = spans_of(config, result.run_id)
    episode = named(spans, "invoke_agent")[0]
    assert {event["name"] for event in episode["events"]} == {"gen_ai.evaluation.result"}
    graded = {e["attributes"]["gen_ai.evaluation.name"]: e["attributes"] for e in episode["events"]}
    assert set(graded) == {"reward", "opened", "politely"}
    assert graded["reward"]["gen_ai.evaluation.score.value"] == episode["attributes"]["evolve.reward"] == 0.0
    assert (graded["opened"]["gen_ai.evaluation.score.label"], graded["politely"][semconv.LABEL]) == (
        "pass",
        "fail",
    )
    decisions = [e["attributes"] for span in named(spans, "evolve.gate static") for e in span["events"]]
    assert {each["evolve.gate.decision"] for each in decisions} == {"accepted"}
    assert {each["evolve.delta.op"] for each in decisions} == {"ADD"}


async def test_a_frozen_run_says_what_it_measured(tmp_path: Path) -> None:
    config = traced(tmp_path, run={"mode": "frozen"})
    result = await go(config)
    (root,) = named(spans_of(config, result.run_id), "invoke_workflow")
    assert "tgc test_normal" in {e["attributes"]["gen_ai.evaluation.name"] for e in root["events"]}
    assert root["attributes"]["evolve.run.status"] == "done"


async def test_content_is_left_out_by_default(tmp_path: Path) -> None:
    config = traced(tmp_path)
    result = await go(config)
    assert {span["content"] for span in spans_of(config, result.run_id)} == {None}
    kept = b"".join(file.read_bytes() for file in config.workspace.glob(f"{FILE}*"))
    assert b"door wants the word" not in kept
    assert b"Open the red" not in kept


@pytest.mark.parametrize("by", ["configuration", "variable"])
async def test_content_that_is_captured_is_there_and_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    secret = "ghp_" + "Zq9" * 12
    if by == "variable":
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    config = traced(tmp_path, run={"tasks": 1}, capture_content=by == "configuration")
    policy = ScriptedPolicy(lambda messages, params: f"open red {secret}", name="leaky", profile="compact")
    result = await go(config, 1, policy)
    spans = spans_of(config, result.run_id)
    call, step = named(spans, "chat leaky")[0], named(spans, "execute_tool")[0]
    (asked,) = json.loads(call["content"]["gen_ai.input.messages"])
    assert asked["role"] == "user"
    assert "Open the red door." in asked["parts"][0]["content"]
    (said,) = json.loads(call["content"]["gen_ai.output.messages"])
    assert said["finish_reason"] == "stop"
    assert said["parts"][0]["content"] == "open red [REDACTED:api-key]"
    assert step["content"]["gen_ai.tool.call.arguments"] == "open red [REDACTED:api-key]"
    assert "the red door wants the word" in step["content"]["gen_ai.tool.call.result"]
    assert "Open the red door." in named(spans, "search_memory")[0]["content"]["gen_ai.memory.query.text"]


def test_a_metric_is_told_apart_by_redacted_names_and_content_is_written_once() -> None:
    reader = InMemoryMetricReader()
    asked: list[str] = []

    def messages() -> list[str]:
        asked.append("once")
        return ["hello"]

    about = {
        semconv.OPERATION: "chat",
        semconv.REQUEST_MODEL: f"sk-proj-{'Zq9' * 12}",
        semconv.PROVIDER: None,
        semconv.TASK: "train-1",
        semconv.INPUT_MESSAGES: messages,
    }
    begun = Begun("chat", about, lambda _: Noted(tokens={"input": 3}), metric=semconv.CALL_DURATION)
    Tracing(TracerProvider(), MeterProvider([reader]), content=True).open(begun).done(None)
    told = json.loads(str(reader.get_metrics_data().to_json()))  # type: ignore[union-attr]
    measured = told["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    found = {each["name"]: each["data"]["data_points"][0]["attributes"] for each in measured}
    known = {semconv.OPERATION: "chat", semconv.REQUEST_MODEL: "[REDACTED:api-key]"}
    assert found == {semconv.CALL_DURATION: known, semconv.TOKEN_USAGE: {**known, semconv.TOKEN_TYPE: "input"}}
    assert asked == ["once"]


async def test_a_failure_is_named_and_not_quoted(tmp_path: Path) -> None:
    config = traced(tmp_path)
    policy = ScriptedPolicy([PolicyUnavailable("the server at 10.0.0.7 is down")] * 9, name="dead", profile="compact")
    with pytest.raises(PolicyUnavailable):
        await go(config, policy=policy)
    (trace,) = traces(config.workspace)
    spans = spans_of(config, trace["run"])
    assert {span["error"] for span in named(spans, "chat")} == {"PolicyUnavailable"}
    assert named(spans, "invoke_workflow")[0]["error"] == "PolicyUnavailable"
    assert "10.0.0.7" not in json.dumps(spans)
    assert "error PolicyUnavailable" in next(tree(spans))


async def test_concurrent_runs_keep_apart(tmp_path: Path) -> None:
    configs = [traced(tmp_path / str(at)) for at in range(3)]
    plain = doors_config(tmp_path, run={"batch_size": 3})
    untraced = arun(plain, parts=Parts(policy=doors_policy(), environment=Doors(6)))
    *results, _ = await asyncio.gather(*(go(config) for config in configs), untraced)
    for config, result in zip(configs, results, strict=True):
        (trace,) = traces(config.workspace)
        assert trace["run"] == result.run_id
        assert trace["errors"] == 6  # each door is opened wrongly once, with and without memory alike
        runs = {span["attributes"].get(semconv.RUN) for span in spans_of(config, result.run_id)} - {None}
        assert runs == {result.run_id}
    assert not (plain.workspace / FILE).exists()


async def test_runs_of_one_workspace_share_the_file(tmp_path: Path) -> None:
    config = traced(tmp_path)
    results = await asyncio.gather(*(go(config, 3) for _ in range(3)))
    assert {trace["run"] for trace in traces(config.workspace)} == {result.run_id for result in results}


async def test_tracing_changes_nothing(tmp_path: Path) -> None:
    plain, watched = doors_config(tmp_path / "plain", run={"batch_size": 3}), traced(tmp_path / "traced")
    found: list[object] = []
    for config in (plain, watched):
        result = await go(config, 10)
        with open_store(config, read_only=True) as store:
            found.append(outcome(store, result.run_id))
    assert found[0] == found[1]
    assert plain.digest == watched.digest


async def test_an_agent_of_ones_own_is_traced(tmp_path: Path) -> None:
    def solve(task: Task, knowledge: str) -> Trajectory:
        step = Step(index=0, action="book()", error="PermissionError: login first", observation="no")
        return Trajectory(task=task, steps=(step,), outcome=Outcome(success=False, reward=0.25))

    config = traced(tmp_path).model_copy(update={"playbook": _without_a_model()})
    async with Agent(solve, config) as agent:
        await agent.run(["Book room 4 for Ann.", "Book room 4 for Ben."])
    (trace,) = traces(config.workspace)
    spans = spans_of(config, agent.run_id)
    assert (trace["run"], trace["name"]) == (agent.run_id, "invoke_workflow own")
    assert [span["attributes"]["evolve.reward"] for span in named(spans, "invoke_agent own")] == [0.25, 0.25]
    assert all(span["parent_id"] for span in spans if span["name"] != "invoke_workflow own")


def _without_a_model() -> object:
    from evolve.config.model import PlaybookSection

    return PlaybookSection(reflector="rules", curator="direct")


def one_trace(config: Config, run_id: str, caplog: pytest.LogCaptureFixture) -> None:
    """Look whether two tasks of a session are below its span, and nothing was complained about."""
    (trace,) = traces(config.workspace)
    spans = spans_of(config, run_id)
    (root,) = [span for span in spans if span["parent_id"] is None]
    assert (trace["run"], root["name"]) == (run_id, "invoke_workflow own")
    assert {span["trace_id"] for span in spans} == {root["trace_id"]}
    found = [span["name"] for span in spans if span["parent_id"] == root["span_id"]]
    assert [found.count(name) for name in ("search_memory", "evolve.reflect", "evolve.curate")] == [2, 2, 2]
    assert "Failed to detach context" not in caplog.text


async def test_an_agent_that_other_tasks_open_ask_and_close_is_one_tree(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = traced(tmp_path).model_copy(update={"playbook": _without_a_model()})
    agent = Agent(None, config)
    await asyncio.create_task(agent.__aenter__())
    for room in (4, 5):
        asked = await asyncio.create_task(agent.ask(f"Book room {room}."))
        step = Step(index=0, action="book()", observation="booked")
        given = Trajectory(task=asked.task, steps=(step,), outcome=Outcome(success=True, reward=1.0))
        await asyncio.create_task(agent.learn(asked, given))
    await asyncio.create_task(agent.__aexit__(None, None, None))
    one_trace(config, agent.run_id, caplog)


async def test_tasks_of_an_open_workspace_are_one_tree(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def book(memory: evolve.AsyncWorkspace, room: int) -> str:
        async with memory.task(f"Book room {room}") as task:
            return (await task.finish("booked", success=True)).run_id

    async with evolve.aopen(tmp_path / "later", settings={"telemetry.enabled": True}) as memory:
        config, runs = memory.sync.config, [await asyncio.create_task(book(memory, room)) for room in (4, 5)]
    one_trace(config, runs[0], caplog)
    with evolve.open(tmp_path / "now", settings={"telemetry.enabled": True}) as memory:
        for room in (4, 5):
            with memory.task(f"Book room {room}") as task:
                task.finish("booked", success=True)
        (run,) = memory.runs()
    one_trace(memory.config, run.run_id, caplog)


def test_turns_of_a_langchain_agent_are_one_tree(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = traced(tmp_path).model_copy(update={"playbook": _without_a_model()})
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        for color in ("red", "blue"):
            agent.invoke({"messages": [("user", f"Open the {color} door.")]})
    one_trace(config, learning.run_id, caplog)


def test_it_is_off_by_default_and_says_nothing(tmp_path: Path) -> None:
    assert not doors_config(tmp_path).telemetry.enabled


@pytest.mark.parametrize("package", ["opentelemetry.sdk", "opentelemetry.sdk.trace"])
async def test_without_the_extra_it_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "evolve.telemetry"))]:
        if name not in ("evolve.telemetry", "evolve.telemetry.start", "memory.sqlite.telemetry_file"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"enabled = true needs .*: pip install 'evolve-agents\[telemetry\]'"):
        await go(traced(tmp_path))
