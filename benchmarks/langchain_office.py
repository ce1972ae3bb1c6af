"""The office for a LangChain agent: its model is the pocket model, its hands a middleware, its memory `Learning`.

The agent is what `create_agent` makes; nothing of the loop runs its episodes. What it writes is code, which `Desk` runs
in the office and answers as the next message, until the office says that it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, cast

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain.agents.middleware.types import AgentState
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from benchmarks.office_arms import office
from evolve.config.model import Config, EnvironmentSection, GateSection, MemorySection, PolicySection, RunSection
from evolve.environments.office.environment import Office
from evolve.environments.office.episode import OfficeEpisode
from evolve.integrations.langchain_middleware import Learning
from evolve.protocols import Action
from memory.records import Outcome, Step, Task
from policies.langchain_ids import TokenChatModel
from policies.langchain_wire import to_reply
from policies.protocols import Policy, SamplingParams

STEPS, TOKENS, AT_ONCE = 16, 120, 32
SPLITS = ("test_normal", "test_challenge")


class DeskState(AgentState[Any]):
    """The agent's state, with the task that it is at."""

    task_id: NotRequired[str]


class Desk(AgentMiddleware[DeskState, Any, Any]):
    """Runs what the model writes in the office, one episode per task."""

    state_schema = DeskState
    tools = ()

    def __init__(self, world: Office, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.episodes: dict[str, OfficeEpisode] = {task.id: world.start(task) for task in tasks}
        self.outcomes: dict[str, Outcome] = {}

    @hook_config(can_jump_to=["model", "end"])
    async def aafter_model(self, state: DeskState, runtime: Any) -> dict[str, Any]:
        """Do what the last message says and answer it."""
        messages = state["messages"]
        result = await self.episodes[str(state.get("task_id"))].step(Action(text=str(messages[-1].text)))
        answer = HumanMessage(result.observation, additional_kwargs={"error": result.error})
        over = result.done or sum(isinstance(message, AIMessage) for message in messages) >= STEPS
        return {"messages": [answer], "jump_to": "end" if over else "model"}

    async def grade(self, state: DeskState) -> Outcome:
        """Grade the task that the agent was at, once."""
        task_id = str(state.get("task_id"))
        episode = self.episodes.pop(task_id)
        self.outcomes[task_id] = await episode.grade()
        await episode.close()
        return self.outcomes[task_id]


def steps(messages: Sequence[AnyMessage]) -> list[Step]:
    """Return one step for each thing that was written, with its answer."""
    found: list[Step] = []
    for said, answer in zip(messages[::2], messages[1::2], strict=True):
        assert isinstance(said, AIMessage)
        reply = to_reply(said, "")
        error = answer.additional_kwargs["error"]
        text = str(answer.text)
        found.append(Step(index=len(found), action=reply.text, observation=text, error=error, usage=reply.usage))
    return found


@dataclass(frozen=True)
class Wrapped:
    """One deployment's agent with its workspace under `root`."""

    policy: Policy
    deployment: int
    root: Path

    async def work(
        self, tasks: Sequence[Task], *, learning: bool, at_once: int, params: SamplingParams | None = None
    ) -> dict[str, bool]:
        """Let the agent do tasks, so many at a time; return which were solved."""
        desk = Desk(office(self.deployment), tasks)
        model = TokenChatModel(policy=self.policy, params=params or SamplingParams(max_tokens=TOKENS))
        with Learning(self._config(), grade=desk.grade, steps=steps, learning=learning) as memory:
            agent = create_agent(model, middleware=cast("Any", [desk, memory]))
            slots = asyncio.Semaphore(at_once)

            async def one(task: Task) -> None:
                async with slots:
                    asked: Any = {"messages": [("user", task.instruction)], "task_id": task.id}
                    await agent.ainvoke(asked, {"recursion_limit": 10 * STEPS})

            await asyncio.gather(*map(one, tasks))
        return {task.id: desk.outcomes[task.id].success for task in tasks}

    async def examine(self, tasks: Sequence[Task], params: SamplingParams | None = None) -> dict[str, bool]:
        """Let the agent do held-out tasks with what is known, learning off."""
        return await self.work(tasks, learning=False, at_once=AT_ONCE, params=params)

    def _config(self) -> Config:
        return Config(
            root=self.root,
            run=RunSection(),
            policy=PolicySection(name="pocket", max_tokens=TOKENS),
            environment=EnvironmentSection(name="office"),
            memory=MemorySection(index="exact", recall_k=40),
            gate=GateSection(names=("default",)),
        )
