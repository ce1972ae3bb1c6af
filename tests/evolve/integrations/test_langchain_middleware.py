"""The middleware on real LangChain agents: what is shown, what is recorded, what is learned, and the switch.

L1  invoke and ainvoke learn alike, from any event loop; tomorrow it is still known
L2  knowledge stands in the system message as data, in the words of a run; an agent without one gets one
L3  off, what is known is shown and nothing changes
L4  a grade may be a bool, an Outcome, None or a coroutine; several turns of one conversation are several episodes
L5  the gates are those of the configuration; `default` is static and online_ab
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from evolve.config.model import Config
from evolve.integrations.langchain_middleware import Learning, steps_of, task_message
from evolve.loop.assembly import open_store
from examples.langgraph_learns import Doorman, open_door, politely
from memory.errors import BadInput
from memory.records import Outcome
from tests.evolve.toy_doors import doors_config

NO_MODEL = {"playbook": {"reflector": "rules", "curator": "direct"}}


class Watched(Doorman):
    """Remembers what it was shown."""

    seen: list[Any] = []  # noqa: RUF012 - a pydantic field

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


def ask(color: str) -> dict[str, Any]:
    return {"messages": [("user", f"Open the {color} door.")]}


def calls(state: dict[str, Any]) -> int:
    return sum(len(message.tool_calls) for message in state["messages"] if isinstance(message, AIMessage))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return doors_config(tmp_path, **NO_MODEL)


def test_an_agent_that_is_invoked_learns_and_remembers_tomorrow(config: Config) -> None:
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        assert [calls(agent.invoke(ask(color))) for color in ("red", "blue", "red")] == [2, 2, 1]
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        assert [calls(agent.invoke(ask(color))) for color in ("blue", "red")] == [1, 1]
        with open_store(config, read_only=True) as store:
            first, second = store.trajectories(run_id=learning.run_id)
            assert (first.success, second.success) == (True, True)
            assert [step.action for step in first.steps] == ["open_door(color='blue', word='eulb')", "It is open."]
            assert [shown.label for shown in first.injected]
            assert max(record.usage.success for record in store.records("default")) >= 1


def test_every_loop_will_do(config: Config) -> None:
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])

        async def both() -> list[int]:
            return [calls(state) for state in await asyncio.gather(*(agent.ainvoke(ask(c)) for c in ("red", "blue")))]

        assert asyncio.run(both()) == [2, 2]
        assert asyncio.run(both()) == [1, 1]
        assert calls(agent.invoke(ask("red"))) == 1


@pytest.mark.parametrize("prompt", [None, "You open doors."])
def test_knowledge_stands_in_the_system_message_as_data(config: Config, prompt: str | None) -> None:
    model = Watched(seen=[])
    with Learning(config, grade=politely) as learning:
        agent = create_agent(model, [open_door], system_prompt=prompt, middleware=[learning])
        agent.invoke(ask("red"))
        assert [type(message) for message in model.seen[0]] == ([SystemMessage] if prompt else []) + [HumanMessage]
        state = agent.invoke(ask("red"))
    system = model.seen[-1][0]
    assert isinstance(system, SystemMessage)
    assert system.text.startswith(f"{prompt}\n\n# What was learned here" if prompt else "# What was learned here")
    assert "experience, not orders" in system.text
    assert "[shr-00001] open_door: the red door must hear the word der" in system.text
    assert not any(isinstance(message, SystemMessage) for message in state["messages"])


def test_off_it_shows_what_is_known_and_nothing_changes(config: Config) -> None:
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        agent.invoke(ask("red"))
        learning.learning = False
        assert [calls(agent.invoke(ask(color))) for color in ("red", "blue", "blue")] == [1, 2, 2]
        with open_store(config, read_only=True) as store:
            (record,) = store.records("default")
            assert (record.version, record.usage.injected) == (1, 0)
            assert [episode.arm for episode in store.trajectories()] == ["main", "frozen", "frozen", "frozen"]


async def graded_later(state: dict[str, Any]) -> bool:
    return politely(state)


@pytest.mark.parametrize(
    ("grade", "success"),
    [
        (politely, False),
        (graded_later, False),
        (lambda state: Outcome(success=True, reward=0.5), True),
        (lambda state: None, None),
        (None, None),
    ],
)
async def test_a_grade_may_be_many_things(config: Config, grade: Callable[..., Any], success: bool | None) -> None:
    with Learning(config, grade=grade) as learning:
        await create_agent(Doorman(), [open_door], middleware=[learning]).ainvoke(ask("red"))
        with open_store(config, read_only=True) as store:
            (episode,) = store.trajectories()
            assert (episode.outcome.success if episode.outcome else None) == success


def test_a_coroutine_grades_what_is_invoked_too(config: Config) -> None:
    with Learning(config, grade=graded_later) as learning:
        create_agent(Doorman(), [open_door], middleware=[learning]).invoke(ask("red"))
        with open_store(config, read_only=True) as store:
            assert [episode.outcome is not None for episode in store.trajectories()] == [True]


def test_each_turn_of_a_conversation_is_an_episode(config: Config) -> None:
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning], checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "one"}}
        for color in ("red", "blue"):
            agent.invoke(ask(color), thread)
        with open_store(config, read_only=True) as store:
            assert [(t.task.instruction, len(t.steps)) for t in store.trajectories()] == [
                ("Open the red door.", 3),
                ("Open the blue door.", 3),
            ]


async def test_two_conversations_whose_messages_have_one_id_stay_apart(config: Config) -> None:
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        colors = ("red", "blue", "green", "grey")
        await asyncio.gather(
            *(agent.ainvoke({"messages": [HumanMessage(f"Open the {color} door.", id="1")]}) for color in colors)
        )
        with open_store(config, read_only=True) as store:
            told = {(t.task.instruction, str(t.steps)) for t in store.trajectories()}
    assert len({task for task, _ in told}) == len(told) == len(colors)
    assert all(task.split()[2] in steps for task, steps in told)


def test_a_turn_that_goes_on_in_another_process_is_asked_for_anew(config: Config) -> None:
    saver = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "one"}}
    with Learning(config, grade=politely) as learning:
        waits = create_agent(
            Doorman(), [open_door], middleware=[learning], checkpointer=saver, interrupt_before=["tools"]
        )
        waits.invoke(ask("red"), thread)
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning], checkpointer=saver)
        agent.invoke(None, thread)
        with open_store(config, read_only=True) as store:
            (episode,) = store.trajectories()
            assert (episode.run_id, len(episode.steps)) == (learning.run_id, 3)


def test_default_gates_are_those_of_a_live_stream(tmp_path: Path) -> None:
    config = doors_config(tmp_path, gate={"names": ["default"]}, **NO_MODEL)
    with Learning(config, grade=politely) as learning:
        agent = create_agent(Doorman(), [open_door], middleware=[learning])
        for color in ("red", "blue", "red"):
            agent.invoke(ask(color))
        with open_store(config, read_only=True) as store:
            assert [event.data["gate"] for event in store.events(type="gate.verdict")][:2] == ["static", "online_ab"]
            last = store.events(type="recall")[-1].data
            assert [len(lots) for lots in last["lots"].values()] == [1]  # of two items, one is always shown


def test_an_agent_that_raised_taught_nothing(config: Config) -> None:
    class Broken(Doorman):
        def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
            raise KeyError("mine")

    with Learning(config, grade=politely) as learning:
        with pytest.raises(KeyError, match="mine"):
            create_agent(Broken(), [open_door], middleware=[learning]).invoke(ask("red"))
        with open_store(config, read_only=True) as store:
            assert store.trajectories() == ()


def test_one_that_is_closed_says_so(config: Config) -> None:
    learning = Learning(config, grade=graded_later)
    agent = create_agent(Doorman(), [open_door], middleware=[learning])
    agent.invoke(ask("red"))
    state: Any = {"messages": [HumanMessage("Open the blue door.", id="m")]}
    state |= learning.before_agent(state, None)
    learning.close()
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        for late in (
            lambda: agent.invoke(ask("blue")),
            lambda: asyncio.run(agent.ainvoke(ask("blue"))),
            lambda: learning.after_agent(state, None),
        ):
            with pytest.raises(RuntimeError, match="this Learning is closed; make another"):
                late()
        gc.collect()
    assert [str(each.message) for each in complaints] == []


def test_steps_are_read_from_messages() -> None:
    call = {"name": "look", "args": {"at": 1}, "id": "a"}
    steps = steps_of(
        [
            AIMessage("I look.", tool_calls=[call, {**call, "id": "b"}]),
            ToolMessage("ok", tool_call_id="a"),
            ToolMessage("dark", tool_call_id="b", status="error"),
            AIMessage("Done."),
        ]
    )
    assert [(step.action, step.observation, step.error, step.reply) for step in steps] == [
        ("look(at=1)", "ok", None, "I look."),
        ("look(at=1)", "dark", "dark", ""),
        ("Done.", "", None, ""),
    ]
    with pytest.raises(BadInput, match="none of a person"):
        task_message([AIMessage("hello")])


def test_the_example_gets_shorter(root: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "examples/langgraph_learns.py"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(line.split()[1]) for line in ran.stdout.splitlines()] == [2, 2, 1, 2, 1, 1]
