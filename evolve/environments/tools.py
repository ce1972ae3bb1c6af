"""An environment out of tools and a grade function: the agent acts by native tool calls.

Tools are LangChain tools: a fixed sequence (they act on the outside world), a function `task -> tools` (fresh tools
over fresh state for each episode, which can then be copied by pickling), or a `ToolSource` such as
`evolve.environments.mcp.McpTools`. The agent ends an episode by answering in words without a tool call.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, cast

from pydantic import ValidationError

from evolve.config.tables import Section
from evolve.environments.tool_errors import reports_error
from evolve.errors import EnvironmentFailure
from evolve.protocols import Action, ActionFormat, StepResult
from evolve.registry import load_object
from evolve.usercode import broke_contract
from memory.errors import BadInput
from memory.records import Check, Frozen, Outcome, Task, ToolCall, Trajectory
from policies.protocols import ToolSpec

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

Tools = Mapping[str, "BaseTool"]


class ToolsBroken(EnvironmentFailure):
    """The tools themselves failed (a dead server), which is no mistake of the agent."""


ANSWERED = " answered: "
"""Stands between a tool's name and an answer that only reads like an error: its words may be a stranger's."""


class Called(Frozen):
    """One tool call of an episode and what came back."""

    name: str
    arguments: dict[str, Any]
    result: str
    error: str | None = None


class Transcript(Frozen):
    """What an agent did: its calls in order, and its final words (empty when it gave none)."""

    calls: tuple[Called, ...] = ()
    answer: str = ""


Verdict = Outcome | float | bool
Grade = Callable[[Task, Transcript, Tools], Verdict | Awaitable[Verdict]]
"""Gets the episode's own tools too, so that it can ask them for the state they left behind."""


class ToolSource(Protocol):
    """Where the tools of an episode come from."""

    @property
    def copyable(self) -> bool:
        """True when repeating the calls on freshly opened tools gives the same state and touches nothing else."""
        ...

    def broke(self, error: Exception) -> bool:
        """Return True when what a call raised means that the tools failed, not the call."""
        ...

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return what the policy is told about the tools."""
        ...

    async def open(self, task: Task, stack: AsyncExitStack) -> Tools:
        """Return the tools of one episode; what must be closed is pushed on `stack`."""
        ...


class LangChainTools:
    """LangChain tools: a fixed sequence, or a function that makes them for a task."""

    def __init__(self, tools: Sequence[BaseTool] | Callable[[Task], Sequence[BaseTool]]) -> None:
        self._tools = tools
        self.copyable = callable(tools)

    def broke(self, error: Exception) -> bool:
        """Return False: what a function in this process raises is about its call."""
        return False

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools' JSON schemas."""
        return tuple(spec_of(tool) for tool in self._made(Task(id="", instruction="")).values())

    async def open(self, task: Task, stack: AsyncExitStack) -> Tools:
        """Return the fixed tools, or fresh ones."""
        return self._made(task)

    def _made(self, task: Task) -> Tools:
        tools = self._tools(task) if callable(self._tools) else self._tools
        if odd := next((tool for tool in tools if not hasattr(tool, "ainvoke")), None):
            raise BadInput(
                f"got {odd!r} among the tools, expected LangChain tools; put `@tool` of langchain_core.tools above a "
                "function"
            )
        return {tool.name: tool for tool in tools}


class ToolsEnvironment:
    """Tasks + tools + a grade function = an `Environment`."""

    action_format: ActionFormat = "tools"

    def __init__(
        self,
        source: ToolSource | Sequence[BaseTool] | Callable[[Task], Sequence[BaseTool]],
        grade: Grade,
        tasks: Sequence[Task] = (),
        *,
        name: str = "tools",
        description: str = "",
        trusted: Collection[str] = (),
    ) -> None:
        """Take what makes the world. `trusted` names tools whose answers no stranger can have written.

        Raises `BadInput` where `source` is one tool alone, and where `grade` is no function. A fixed sequence of tools
        is one state for all episodes, so they run one after the other; a function of the task lets them run at once.
        """
        if hasattr(source, "ainvoke"):
            raise BadInput(f"got the one tool {source!r}; expected a list of tools, or a function task -> tools")
        if not callable(grade):
            raise BadInput(f"got grade {grade!r}; expected a function (task, transcript, tools) -> verdict")
        self.name = name
        if isinstance(source, Sequence):
            self.max_concurrency = 1
        self._trusted = frozenset(trusted)
        self._source: ToolSource = (
            LangChainTools(source) if callable(source) or isinstance(source, Sequence) else source
        )
        self._grade = grade
        self._tasks = tuple(tasks)
        self._description = description
        self._specs: tuple[ToolSpec, ...] | None = None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools' names, descriptions and JSON schemas."""
        if self._specs is None:
            self._specs = self._source.specs()
        return self._specs

    def describe(self, profile: str) -> str:
        """Return the description given to the constructor; the tools themselves are offered natively."""
        return self._description

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split. Raises `BadInput` for a split that no task has."""
        found = [task for task in self._tasks if task.split == split]
        if not found:
            raise BadInput(
                f"{self.name} has no task of split {split!r}; it has {sorted({t.split for t in self._tasks})}"
            )
        return found

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return what was observed of tools that are not `trusted`, error messages that they raised left out."""
        asked = [step for step in episode.steps if {call.name for call in step.tool_calls} - self._trusted]
        return [
            step.observation
            if any(f"{call.name}{ANSWERED}" in step.observation for call in step.tool_calls)
            else step.observation.replace(step.error or "", "")
            for step in asked
        ]

    def start(self, task: Task, seed: int = 0) -> ToolsEpisode:
        """Return a fresh episode; its tools open at the first step."""
        return ToolsEpisode(self._source, self._grade, task, self._trusted)


class ToolsEpisode:
    """One attempt. Pickles when its source is `copyable` (the copy repeats the calls on fresh tools)."""

    def __init__(self, source: ToolSource, grade: Grade, task: Task, trusted: Collection[str]) -> None:
        self._source = source
        self._grade = grade
        self._task = task
        self._trusted = trusted
        self._transcript = Transcript()
        self._stack = AsyncExitStack()
        self._tools: Tools | None = None

    async def step(self, action: Action) -> StepResult:
        """Call the tools, or end with the answer. Raises `ToolsBroken` when the tools themselves died."""
        if action.tool_calls:
            tools = await self._opened()
            called = [await self._call(tools, call) for call in action.tool_calls]
            self._transcript = Transcript(calls=(*self._transcript.calls, *called))
            errors = [one.error for one in called if one.error]
            return StepResult(observation="\n".join(one.result for one in called), error="\n".join(errors) or None)
        if not action.text.strip():
            message = "empty reply: call a tool, or answer in words when the task is complete"
            return StepResult(observation=message, error=message)
        self._transcript = Transcript(calls=self._transcript.calls, answer=action.text)
        return StepResult(observation="", done=True)

    async def grade(self) -> Outcome:
        """Return the grade function's verdict: an `Outcome`, a reward in [0, 1] (success = 1), or a bool."""
        verdict = self._grade(self._task, self._transcript, await self._opened())
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if isinstance(verdict, Outcome):
            return verdict
        given = cast("object", verdict)
        if not isinstance(given, SupportsFloat):
            raise broke_contract("the grade function", self._grade, given, "an Outcome, a bool or a reward in [0, 1]")
        reward = float(verdict)
        if not 0.0 <= reward <= 1.0:
            raise BadInput(
                f"the grade function returned {verdict!r}; expected an Outcome, a bool or a reward in [0, 1]"
            )
        return Outcome(success=reward == 1.0, reward=reward, checks=(Check(name="grade", passed=reward == 1.0),))

    async def close(self) -> None:
        """Close the tools' connections."""
        self._tools = None
        await self._stack.aclose()

    async def _opened(self) -> Tools:
        if self._tools is None:
            self._tools = await self._source.open(self._task, self._stack)
            for call in self._transcript.calls:  # only a copy has a past before its tools are open
                await self._call(self._tools, ToolCall(id="copy", name=call.name, arguments=call.arguments))
        return self._tools

    async def _call(self, tools: Tools, call: ToolCall) -> Called:
        """Call one tool. Whatever it raises is the agent's to see, except that the tools died."""
        tool = tools.get(call.name)
        if tool is None:
            message = f"no tool {call.name!r}; there are {', '.join(sorted(tools))}"
            return Called(name=call.name, arguments=call.arguments, result=message, error=message)
        request = {"name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call"}
        try:
            answer: Any = await tool.ainvoke(request)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            message = f"bad arguments for {call.name}: {problems}"
            return Called(name=call.name, arguments=call.arguments, result=message, error=message)
        except Exception as error:  # a tool may raise anything; its message is an observation
            if self._source.broke(error):
                raise ToolsBroken(f"{call.name!r} cannot be reached ({error!r}); is its server running?") from error
            message = f"{type(error).__name__}: {error}"
            return Called(name=call.name, arguments=call.arguments, result=message, error=message)
        text = _text(answer.content)
        if answer.status == "error":
            return Called(name=call.name, arguments=call.arguments, result=text, error=text)
        error = text if reports_error(text) else None
        if error and call.name not in self._trusted:  # it may be a stranger's page that opens with `Error:`
            text = f"{call.name}{ANSWERED}{text}"
        return Called(name=call.name, arguments=call.arguments, result=text, error=error)

    def __getstate__(self) -> dict[str, Any]:
        if not self._source.copyable:
            raise TypeError(
                "these tools act on the outside world, so this episode has no copy; pass a function of tasks"
            )
        return self.__dict__ | {"_tools": None, "_stack": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_stack": AsyncExitStack()})


class ToolsConfig(Section):
    """The `[environment]` keys of `tools`; each names an object of the user's as `module:attribute`."""

    tools: str
    """A sequence of LangChain tools, a function `task -> tools`, or a `ToolSource`."""
    grade: str
    """A `Grade` function."""
    description: str = ""
    """What the agent is told about this world."""
    trusted: tuple[str, ...] = ()
    """Tools whose answers no stranger can have written: a lesson written after reading them needs no measurement."""


def from_config(config: ToolsConfig) -> ToolsEnvironment:
    """Return the environment a configuration names; its tasks come from `tasks_file`. Raises `ConfigError`."""
    tools, grade = load_object(config.tools), load_object(config.grade)
    return ToolsEnvironment(tools, grade, description=config.description, trusted=config.trusted)


def spec_of(tool: BaseTool) -> ToolSpec:
    """Return a LangChain tool's name, description and JSON schema."""
    from langchain_core.utils.function_calling import convert_to_openai_tool

    function = convert_to_openai_tool(tool)["function"]
    return ToolSpec(
        name=function["name"],
        description=function.get("description", ""),
        parameters=function.get("parameters", {"type": "object", "properties": {}}),
    )


def _text(content: Any) -> str:
    """Return the text of a tool message: text blocks joined, other blocks as JSON."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(
        block["text"] if isinstance(block, dict) and block.get("type") == "text" else json.dumps(block, default=str)
        for block in blocks
    )


MEMBER = from_config
