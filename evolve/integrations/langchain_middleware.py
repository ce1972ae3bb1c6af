"""A LangChain agent that learns: three lines more.

    learning = Learning(load_config(), grade=passed)
    agent = create_agent(model, tools, middleware=[learning])
    ...
    learning.close()

Before the first model call of a conversation's turn the knowledge for its task is recalled and journalled; each model
call sees it as data, as in a run. When the agent ends, the turn is one graded episode and is learned from, through the
nodes and gates of `evolve.Agent`. The learning lives in a thread of its own, so agents may be invoked from any event
loop, or from none. Not here: skills, and a turn whose agent raised: it taught nothing.

What a LangChain conversation says of an episode: pure functions on its messages.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from evolve.config.model import Config
from evolve.environments.tool_errors import reports_error
from evolve.episode.prompting import learned, opening_messages
from evolve.episode.rollout import call_text
from evolve.integrations.agent import Agent, Asked, hosted
from evolve.integrations.loop_thread import LoopThread
from evolve.loop.runs import LANGCHAIN
from evolve.loop.session import Parts
from memory.errors import BadInput
from memory.records import Check, Outcome, Step, Task, Trajectory, Usage, new_id
from policies.langchain import LangChainPolicy
from policies.langchain_wire import to_reply
from policies.protocols import Profile


def task_message(messages: Sequence[AnyMessage]) -> HumanMessage:
    """Return the message that asks for the work: the last one of a person. Raises `BadInput` where there is none."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and message.text.strip():
            return message
    raise BadInput(f"got {len(messages)} messages and none of a person with text; the last such one is the task")


def after(messages: Sequence[AnyMessage], message_id: str) -> list[AnyMessage]:
    """Return the messages that follow one; all where it is not among them."""
    at = next((at for at, message in enumerate(messages) if message.id == message_id), -1)
    return list(messages[at + 1 :])


def steps_of(messages: Sequence[AnyMessage]) -> tuple[Step, ...]:
    """Return one step per tool call, with what the tool answered, and one for words without a call."""
    answers = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    steps: list[Step] = []
    for message in messages:
        if not isinstance(message, AIMessage):
            continue
        reply = to_reply(message, "")
        if not reply.tool_calls:
            steps.append(Step(index=len(steps), action=reply.text, usage=reply.usage))
        for at, call in enumerate(reply.tool_calls):
            answer = answers.get(call.id)
            said = str(answer.text) if answer else ""
            steps.append(
                Step(
                    index=len(steps),
                    action=call_text(call),
                    reply="" if at else reply.text,
                    observation=said,
                    error=said if answer and (answer.status == "error" or reports_error(said)) else None,
                    tool_calls=(call,),
                    usage=Usage() if at else reply.usage,
                )
            )
    return tuple(steps)


def with_knowledge(system: SystemMessage | None, rules: str) -> SystemMessage | None:
    """Return the system message with a section of what was learned; as it is where nothing was."""
    if not rules:
        return system
    section = learned(rules)
    if system is None:
        return SystemMessage(section)
    if isinstance(system.content, str):
        return SystemMessage(f"{system.content}\n\n{section}")
    return SystemMessage([*system.content, {"type": "text", "text": section}])


def with_opening(messages: Sequence[AnyMessage], message_id: str, task: Task, rules: str) -> list[AnyMessage]:
    """Return the messages with the task written as the compact dialect does: rules first, then the task."""
    profile: Profile = "compact"
    (opening,) = opening_messages(task, rules, profile, "")
    return [HumanMessage(opening.content, id=m.id) if m.id == message_id else m for m in messages]


KEPT = 1_000
"""Turns under way at most; the oldest beyond belong to agents that raised."""

Mark = Outcome | bool | None
"""How a turn went: an outcome, or whether it succeeded; None = nobody knows."""
Grade = Callable[[Any], Mark | Awaitable[Mark]]
"""Gets the agent's final state and says how it went; None = nobody knows."""
Request = ModelRequest[Any]
Response = ModelResponse[Any]


class LearningState(AgentState[Any]):
    """The agent's state, with the id of the message that is this turn's task, and the turn's own.

    Ids of messages are the caller's, and two conversations may have the same.
    """

    evolve_task: NotRequired[Annotated[str, PrivateStateAttr]]
    evolve_turn: NotRequired[Annotated[str, PrivateStateAttr]]


class Learning(AgentMiddleware[LearningState, Any, Any]):
    """The middleware. `learning` may be switched at any time: off, what is known is shown and nothing changes."""

    state_schema = LearningState
    tools = ()

    def __init__(
        self,
        config: Config,
        *,
        grade: Grade | None = None,
        model: BaseChatModel | None = None,
        steps: Callable[[Sequence[AnyMessage]], Sequence[Step]] = steps_of,
        learning: bool = True,
    ) -> None:
        """Take the configuration of the workspace; nothing is opened before the first turn.

        `model` reflects and curates instead of `[policy]`. `steps` reads the messages of a turn, for agents that act
        otherwise than by tool calls.
        """
        super().__init__()
        self.learning = learning
        self._grade, self._steps = grade, steps
        parts = Parts(policy=LangChainPolicy(model)) if model is not None else None
        self._agent = hosted(config, kind=LANGCHAIN, parts=parts)
        self._asked: dict[str, Asked] = {}
        self._opening = threading.Lock()
        self._close: weakref.finalize[..., Learning] | None = None
        self._thread: LoopThread | None = None

    @property
    def run_id(self) -> str:
        """The run that all turns are in the journal."""
        return self._agent.run_id

    def close(self) -> None:
        """Close the workspace. It also happens when the process ends."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Learning:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- hooks of the agent: each once for `invoke` and once for `ainvoke` ---

    def before_agent(self, state: LearningState, runtime: Any) -> dict[str, Any]:
        """Recall for the turn's task."""
        message = task_message(state["messages"])
        return self._began(message, self._loop().submit(self._ask(message.text)).result())

    async def abefore_agent(self, state: LearningState, runtime: Any) -> dict[str, Any]:
        """Recall for the turn's task."""
        message = task_message(state["messages"])
        return self._began(message, await asyncio.wrap_future(self._loop().submit(self._ask(message.text))))

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        """Show what is known."""
        return handler(self._shown(request))

    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        """Show what is known."""
        return await handler(self._shown(request))

    def after_agent(self, state: LearningState, runtime: Any) -> None:
        """Grade the turn and learn from it."""
        asked, loop = self._over(state), self._loop()
        mark = self._grade(state) if self._grade else None
        if inspect.isawaitable(mark):
            mark = loop.submit(_awaited(mark)).result()
        loop.submit(self._agent.learn(asked, self._episode(asked, state, mark))).result()

    async def aafter_agent(self, state: LearningState, runtime: Any) -> None:
        """Grade the turn and learn from it."""
        asked, mark = self._over(state), self._grade(state) if self._grade else None
        given = self._episode(asked, state, await mark if inspect.isawaitable(mark) else mark)
        await asyncio.wrap_future(self._loop().submit(self._agent.learn(asked, given)))

    # --- the rest ---

    async def _ask(self, task: str) -> Asked:
        return await self._agent.ask(task, learning=self.learning)

    def _began(self, message: AnyMessage, asked: Asked) -> dict[str, Any]:
        turn = new_id()
        self._keep(turn, asked)
        return {"evolve_task": str(message.id), "evolve_turn": turn}

    def _keep(self, key: str, asked: Asked) -> None:
        self._asked[key] = asked
        while len(self._asked) > KEPT:
            self._asked.pop(next(iter(self._asked)))

    def _under_way(self, state: Any) -> Asked:
        """Return what was asked in this turn; one that was interrupted and goes on in another process asks anew."""
        task, key = _task(state), state["evolve_turn"]
        if key not in self._asked:
            message = task_message([message for message in state["messages"] if message.id == task])
            self._keep(key, self._loop().submit(self._ask(message.text)).result())
        return self._asked[key]

    def _over(self, state: Any) -> Asked:
        self._under_way(state)
        return self._asked.pop(state["evolve_turn"])

    def _shown(self, request: Request) -> Request:
        asked, key = self._under_way(request.state), _task(request.state)
        if asked.context.policy.profile == "compact":
            return request.override(messages=with_opening(request.messages, key, asked.task, asked.knowledge))
        return request.override(system_message=with_knowledge(request.system_message, asked.knowledge))

    def _episode(self, asked: Asked, state: LearningState, mark: Mark) -> Trajectory:
        turn = after(state["messages"], _task(state))
        steps = tuple(self._steps(turn))
        models = [message.response_metadata.get("model_name") for message in turn if isinstance(message, AIMessage)]
        return Trajectory(
            task=asked.task,
            steps=steps,
            outcome=_outcome(mark),
            policy=next(filter(None, models), ""),
            usage=sum((step.usage for step in steps), Usage()),
        )

    def _loop(self) -> LoopThread:
        with self._opening:
            if self._close is not None and not self._close.alive:
                raise RuntimeError("this Learning is closed; make another for the agents that go on")
            if self._thread is None:
                thread = LoopThread("evolve-learning")
                try:
                    thread.submit(self._agent.__aenter__()).result()
                except BaseException:
                    thread.close()
                    raise
                self._thread, self._close = thread, weakref.finalize(self, _end, thread, self._agent)
            return self._thread


def _end(thread: LoopThread, agent: Agent) -> None:
    thread.submit(agent.__aexit__(None, None, None)).result()
    thread.close()


async def _awaited(mark: Awaitable[Mark]) -> Mark:
    return await mark


def _task(state: Any) -> str:
    """Return the id of the message that is the turn's task."""
    key = state.get("evolve_task", "")
    if not key:
        raise BadInput("got a turn that never began here; put Learning into the middleware of the agent itself")
    return key


def _outcome(mark: Mark) -> Outcome | None:
    if mark is None or isinstance(mark, Outcome):
        return mark
    return Outcome(success=mark, reward=float(mark), checks=(Check(name="grade", passed=mark),))
